//! Requests of `famio flush`, as an owner carries them out.

use crate::Settings;
use crate::file::{Access, AtomicFile, UserBuf};
use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
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
    assert!(session.flush(&file.atomic.fds, &wanted, &AtomicU32::new(0), &goes_on).unwrap(), "{} rounds", rounds.get());
    assert!(rounds.get() > 0);
    assert!(std::fs::read(&file.path).unwrap() == vec![b'x'; BLOCKS * BLOCK]);
}

/// Each block that was committed meanwhile once counted for a round, and an interrupted flush began anew.
#[test]
fn a_busy_writer_and_other_work_do_not_keep_a_flush_from_its_end() {
    const BLOCKS: usize = 2000;
    const AT_MOST: u32 = BLOCKS as u32 / 256 + 2;
    let policy = Some(crate::settings::PolicyChoice::Redo);
    crate::pmem::TestHooks { policy, ..Default::default() }.enter();
    let file = Opened::new("/dev/shm", "busy", BLOCKS);
    file.write(b'x', 0, BLOCKS * BLOCK);
    file.atomic.sync().unwrap();
    let session = file.atomic.session().unwrap();
    let wanted = file.atomic.ownership.membership.flush_for_test();
    let (left, rounds) = (AtomicU32::new(0), Cell::new(0));
    let stops = || {
        rounds.set(rounds.get() + 1);
        file.write(b'y', 0, 100);
        file.atomic.sync().unwrap();
        false
    };
    while !session.flush(&file.atomic.fds, &wanted, &left, &stops).unwrap() {
        assert!(rounds.get() <= AT_MOST);
    }
    assert!(std::fs::read(&file.path).unwrap()[BLOCK..] == vec![b'x'; (BLOCKS - 1) * BLOCK]);
    crate::pmem::TestHooks::default().enter();
}
