//! Requests of `famio flush`, as an owner carries them out.

use crate::Settings;
use crate::file::session::flush::FlushStep;
use crate::file::session::flush_tries::FlushTries;
use crate::file::state::hand_over_image::{Change, HandOverImage, What};
use crate::file::{Access, AtomicFile, UserBuf};
use crate::index::{HAS_IMAGE, ImageKind, Membership, SESSION};
use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
use crate::pmem::{Medium, TestHooks};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

const BLOCK: usize = 4096;

/// A file that this process has open.
struct Opened {
    path: PathBuf,
    file: File,
    atomic: Arc<AtomicFile>,
}

impl Opened {
    /// In `/var/tmp` with a journal of records, in `/dev/shm` with one in place.
    fn new(folder: &str, name: &str, blocks: usize) -> Self {
        let path = PathBuf::from(format!("{folder}/famio-flush-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![b'-'; blocks * BLOCK]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        Self { path, file, atomic }
    }

    fn write(&self, byte: u8, offset: usize, len: usize) {
        // SAFETY: the test's memory.
        let written = unsafe { self.atomic.write(offset as u64, &[UserBuf::of(&mut vec![byte; len])]) };
        assert_eq!(written.unwrap(), len);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = self.atomic.remove_descriptor(self.file.as_raw_fd());
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The background once went round for ever, in an interrupted pass with nothing to do.
#[test]
fn a_cut_between_two_rounds_does_not_hold_the_background() {
    const BLOCKS: usize = 200; // several rounds
    let file = Opened::new("/var/tmp", "cut", BLOCKS);
    file.write(b'x', 0, BLOCKS * BLOCK);
    file.atomic.sync().unwrap();
    let session = file.atomic.session().unwrap();
    let wanted = file.atomic.ownership.membership.flush_for_test();
    let rounds = Cell::new(0);
    let goes_on = || {
        if rounds.get() == 0 {
            file.atomic.set_size(100).unwrap();
        }
        rounds.set(rounds.get() + 1);
        rounds.get() < 1000
    };
    let flushed = session.flush(&file.atomic.fds, &wanted, &FlushTries::default(), &goes_on);
    assert_eq!(flushed.unwrap(), FlushStep::Done, "{} rounds", rounds.get());
    assert!(rounds.get() > 0);
    assert!(std::fs::read(&file.path).unwrap() == vec![b'x'; BLOCKS * BLOCK]);
}

/// Each block that was committed meanwhile once counted for a round, and an interrupted flush began anew.
#[test]
fn a_busy_writer_and_other_work_do_not_keep_a_flush_from_its_end() {
    const BLOCKS: usize = 2000;
    const AT_MOST: u32 = BLOCKS as u32 / 256 + 2;
    let policy = Some(crate::settings::PolicyChoice::Redo);
    TestHooks { policy, ..Default::default() }.enter();
    let file = Opened::new("/dev/shm", "busy", BLOCKS);
    file.write(b'x', 0, BLOCKS * BLOCK);
    file.atomic.sync().unwrap();
    let session = file.atomic.session().unwrap();
    let wanted = file.atomic.ownership.membership.flush_for_test();
    let (tries, rounds) = (FlushTries::default(), Cell::new(0));
    let stops = || {
        rounds.set(rounds.get() + 1);
        file.write(b'y', 0, 100);
        file.atomic.sync().unwrap();
        false
    };
    while session.flush(&file.atomic.fds, &wanted, &tries, &stops).unwrap() == FlushStep::More {
        assert!(rounds.get() <= AT_MOST);
    }
    assert!(std::fs::read(&file.path).unwrap()[BLOCK..] == vec![b'x'; (BLOCKS - 1) * BLOCK]);
    TestHooks::default().enter();
}

/// Each loss of the session once began the flush anew.
#[test]
fn a_session_that_is_lost_in_the_middle_of_each_try_is_flushed_all_the_same() {
    const BLOCKS: usize = 600; // several rounds
    for folder in ["/var/tmp", "/dev/shm"] {
        let file = Opened::new(folder, "turns", BLOCKS);
        let tries = FlushTries::default();
        let mut lost = 0;
        loop {
            file.write(b'x', 0, BLOCKS * BLOCK); // takes the session
            file.atomic.sync().unwrap();
            let session = file.atomic.session().unwrap();
            let hands_over = || file.atomic.hand_over().is_ok();
            let wanted = file.atomic.ownership.membership.flush_for_test();
            match session.flush(&file.atomic.fds, &wanted, &tries, &hands_over) {
                Ok(step) => break assert_eq!(step, FlushStep::Done),
                Err(refusal) => assert!(refusal.is_session_ended()),
            }
            tries.lost();
            lost += 1;
            assert!(lost < 10, "{folder}: no end");
        }
        assert!(lost > 0, "{folder}: it kept the session");
        assert!(std::fs::read(&file.path).unwrap() == vec![b'x'; BLOCKS * BLOCK]);
    }
}

#[test]
fn a_request_begins_anew_whatever_was_left_of_one_that_another_process_has_answered() {
    let tries = FlushTries::default();
    tries.begin(1, 2);
    tries.count();
    tries.begin(1, 2);
    tries.count();
    assert!(tries.is_last());
    tries.begin(2, 2);
    assert!(!tries.is_last());
    tries.lost();
    assert!(!tries.is_last());
    tries.lost();
    assert!(tries.is_last());
}

/// A kill while bytes were moved in the session once took those of all others, too.
#[test]
fn what_others_have_written_is_not_moved_in_the_session() {
    let file = Opened::new("/dev/shm", "others", 1);
    let other = Membership::new();
    other.attach(|| crate::journal::control::find_or_make(file.file.as_fd(), None), || Ok(false)).unwrap();
    let theirs = Change { writer: other.me(), what: What::Bytes { offset: 50, data: b"theirs".to_vec() } };
    let number = other.begin_epoch();
    let memory =
        crate::file::descriptors::shared_memory::make(&file.atomic.fds, &other, &other.epoch_path(number)).unwrap();
    HandOverImage { changes: vec![theirs] }.store(&memory).unwrap();
    other.set_epoch(number, ImageKind::default());

    let committed = std::fs::read(&file.path).unwrap();
    file.atomic.growing.is_over.store(true, Ordering::Relaxed); // the other member has no descriptor, as a process has
    file.write(b'm', 0, 4);
    let mut open = committed.clone();
    open[..4].fill(b'm');
    open[50..56].copy_from_slice(b"theirs");
    let session = file.atomic.session().unwrap();
    let wanted = file.atomic.ownership.membership.flush_for_test();
    let step = session.flush(&file.atomic.fds, &wanted, &FlushTries::default(), &|| true).unwrap();
    assert_eq!((step, session.arena.shared().moving.load(Ordering::Relaxed)), (FlushStep::ToEnd, 0));
    assert!(file.atomic.flush_as_asked().unwrap());
    assert_eq!(other.state() & (SESSION | HAS_IMAGE), HAS_IMAGE);
    assert!(std::fs::read(&file.path).unwrap() == committed);
    // It goes on, and is committed as a whole.
    file.write(b'm', 2, 2);
    file.atomic.sync().unwrap();
    assert!(other.leave());
    file.atomic.remove_descriptor(file.file.as_raw_fd()).unwrap();
    assert!(std::fs::read(&file.path).unwrap() == open);
}

/// The disk is full.
static FULL: AtomicBool = AtomicBool::new(false);

struct Full;

// SAFETY: as the kernel's.
unsafe impl Medium for Full {
    kernels_memory!();
    kernels_calls!(fence fsync ftruncate fdatasync);
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> crate::Result<()> {
        if FULL.load(Ordering::Relaxed) {
            Err(crate::Error::new(libc::ENOSPC))
        } else {
            KERNEL.pwritev(fd, bufs, offset)
        }
    }
}

/// A kill after it looked as if another program had changed the file.
#[test]
fn a_flush_that_fails_records_when_it_has_changed_the_file() {
    TestHooks { medium: Some(&Full), still: true, ..TestHooks::default() }.enter();
    let file = Opened::new("/var/tmp", "full", 2);
    file.write(b'x', 0, 2 * BLOCK);
    file.atomic.sync().unwrap();
    let session = file.atomic.session().unwrap();
    let touched = &session.arena.shared().touched;
    FULL.store(true, Ordering::Relaxed);
    // In a pass, and in the last try.
    for last in [false, true] {
        let tries = FlushTries::default();
        if last {
            tries.begin(0, 1);
            tries.skip();
        }
        touched.store(1, Ordering::Relaxed);
        let wanted = file.atomic.ownership.membership.flush_for_test();
        if last {
            file.write(b'y', 0, 10); // what it has overwritten is in the journal alone
            touched.store(1, Ordering::Relaxed);
        }
        let flushed = session.flush(&file.atomic.fds, &wanted, &tries, &|| true);
        assert_eq!(crate::Error::from(flushed.unwrap_err()).errno(), libc::ENOSPC);
        assert!(touched.load(Ordering::Relaxed) > 1, "last: {last}");
    }
    FULL.store(false, Ordering::Relaxed);
    TestHooks::default().enter();
}
