//! Requests of `famio flush`, as an owner carries them out.

use crate::Settings;
use crate::file::{Access, AtomicFile, UserBuf};
use core::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;

const BLOCK: usize = 4096;

/// A file of `/var/tmp`, with a journal of records, that this process has open.
struct OnDisk {
    path: PathBuf,
    file: File,
    atomic: Arc<AtomicFile>,
}

impl OnDisk {
    fn new(name: &str, blocks: usize) -> Self {
        let path = PathBuf::from(format!("/var/tmp/famio-flush-{name}-{}", std::process::id()));
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

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = self.atomic.remove_descriptor(self.file.as_raw_fd());
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The background once went round for ever, in an interrupted pass with nothing to do.
#[test]
fn a_cut_between_two_rounds_does_not_hold_the_background() {
    const BLOCKS: usize = 200; // several rounds
    let file = OnDisk::new("cut", BLOCKS);
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
    assert!(session.flush(&file.atomic.fds, &wanted, &goes_on).unwrap(), "{} rounds", rounds.get());
    assert!(rounds.get() > 0);
    assert!(std::fs::read(&file.path).unwrap() == vec![b'x'; BLOCKS * BLOCK]);
}
