use super::{ASLEEP, AWAKE, look_at_file};
use crate::file::{Access, AtomicFile, UserBuf};
use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
use crate::pmem::{Medium, TestHooks};
use crate::settings::Settings;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Whether the thread stays awake for a while after each look, so that others see it awake.
static PAUSES: AtomicBool = AtomicBool::new(false);

pub(super) fn pause_after_look() {
    if PAUSES.load(Ordering::Relaxed) && ASLEEP.load(Ordering::SeqCst) == AWAKE {
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// It was once seen only with the next event, if there was one: the journal of a file that is written once stayed
/// full.
#[test]
fn what_comes_after_the_last_look_is_seen_before_a_deep_sleep() {
    let path = std::path::PathBuf::from(format!("/dev/shm/famio-background-{}", std::process::id()));
    std::fs::write(&path, [1; 64 << 10]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    PAUSES.store(true, Ordering::Relaxed);
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
    for round in 2..8 {
        // SAFETY: the test's memory.
        unsafe { atomic.write(0, &[UserBuf::of(&mut [round; 32 << 10])]) }.unwrap();
        atomic.sync().unwrap();
        let begun = Instant::now();
        while atomic.with_session(|session| session.arena.shared().used.load(Ordering::Relaxed)) != Some(0) {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: no checkpoint within a minute");
            std::thread::yield_now();
        }
    }
    PAUSES.store(false, Ordering::Relaxed);
    atomic.remove_descriptor(file.as_raw_fd()).unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// The file for which `famio flush` knocks at each write.
static ASKED: Mutex<Weak<AtomicFile>> = Mutex::new(Weak::new());

struct Asking;

// SAFETY: as the kernel's.
unsafe impl Medium for Asking {
    kernels_memory!();
    kernels_calls!(fence fsync ftruncate fdatasync);
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> crate::Result<()> {
        if let Some(file) = ASKED.lock().unwrap().upgrade() {
            file.ownership.flush_seen.fetch_sub(1, Ordering::Relaxed);
        }
        KERNEL.pwritev(fd, bufs, offset)
    }
}

/// It waited for the end of the pass, and then for that of all the others.
#[test]
fn a_request_to_flush_interrupts_a_pass() {
    const BLOCKS: usize = 1000; // many rounds
    let path = std::path::PathBuf::from(format!("/var/tmp/famio-background-asked-{}", std::process::id()));
    std::fs::write(&path, vec![1; BLOCKS * 4096]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    TestHooks { medium: Some(&Asking), still: true, ..TestHooks::default() }.enter();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
    // SAFETY: the test's memory.
    unsafe { atomic.write(0, &[UserBuf::of(&mut vec![2; BLOCKS * 4096])]) }.unwrap();
    atomic.sync().unwrap();
    *ASKED.lock().unwrap() = Arc::downgrade(&atomic);
    let (mut waiting, known) = (Vec::new(), Arc::downgrade(&atomic));
    look_at_file((&known, atomic.clone()), false, &mut waiting, &mut false);
    *ASKED.lock().unwrap() = Weak::new();
    let left = atomic.with_session(|session| session.arena.shared().used.load(Ordering::Relaxed));
    atomic.remove_descriptor(file.as_raw_fd()).unwrap();
    TestHooks::default().enter();
    std::fs::remove_file(&path).unwrap();
    assert!(left.is_some_and(|left| left > 0) && waiting.len() == 1, "{left:?} blocks are left");
}
