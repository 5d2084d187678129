use super::{ASLEEP, AWAKE};
use crate::file::{Access, AtomicFile, UserBuf};
use crate::settings::Settings;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd};
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
