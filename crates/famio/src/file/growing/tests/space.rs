//! Preallocated space beyond the end of a growing file, and holes in it.

use super::Grown;
use crate::error::Result;
use crate::file::atomic::{ATTACHED, GROWING};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use std::path::Path;

const SPACE: u64 = 1 << 20;

impl Grown {
    fn preallocate(&self) {
        let flags = FallocateFlags::KEEP_SIZE;
        let done: Result<()> = self.atomic.preallocate(SPACE, || Ok(fallocate(&self.file, flags, 0, SPACE)?));
        done.unwrap();
    }

    fn allocated(&self) -> u64 {
        fstat(&self.file).unwrap().st_blocks as u64 * 512
    }
}

#[test]
fn a_new_file_with_preallocated_space_needs_no_journal() {
    let grown = Grown::new("space-new");
    grown.preallocate();
    assert_eq!((grown.state(), grown.atomic.size()), (GROWING, 0));
    grown.write(0, b"abc");
    grown.atomic.sync().unwrap();
    grown.write(3, b"def");
    grown.close();
    assert_eq!((std::fs::read(&grown.path).unwrap(), grown.allocated()), (b"abcdef".to_vec(), SPACE));
    std::fs::remove_file(&grown.path).unwrap();
}

/// It was once freed as the session ended, or began.
#[test]
fn preallocated_space_outlives_a_session() {
    let places = [Path::new("/dev/shm"), &std::env::temp_dir()];
    let new = |folder| (folder, &b""[..], &b"0123456789"[..]);
    let there = |folder| (folder, &b"0123456789"[..], &b""[..]);
    for (folder, before, after) in places.into_iter().flat_map(|folder| [new(folder), there(folder)]) {
        let grown = Grown::at(folder, "space-session", before, &crate::Settings::default());
        grown.preallocate();
        grown.write(before.len() as u64, after);
        grown.atomic.sync().unwrap();
        grown.write(10, b"tail");
        grown.take_no_overwrites();
        grown.write(2, b"xy");
        assert_eq!((grown.state(), grown.allocated() >= SPACE), (ATTACHED, true));
        grown.atomic.sync().unwrap();
        grown.close();
        assert_eq!((std::fs::read(&grown.path).unwrap(), grown.allocated()), (b"01xy456789tail".to_vec(), SPACE));
        std::fs::remove_file(&grown.path).unwrap();
    }
}

/// As on a plain file.
#[test]
fn setting_the_size_frees_preallocated_space() {
    for is_attached in [false, true] {
        let grown = Grown::new("space-cut");
        grown.write(0, b"0123456789");
        grown.atomic.sync().unwrap();
        if is_attached {
            grown.take_no_overwrites();
            grown.write(0, b"x");
        }
        grown.preallocate();
        grown.atomic.set_size(10).unwrap();
        grown.close();
        assert_eq!((fstat(&grown.file).unwrap().st_size, grown.allocated()), (10, 4096));
        std::fs::remove_file(&grown.path).unwrap();
    }
}

/// It once began a session, in which holes are filled.
#[test]
fn a_hole_in_what_is_not_committed_is_one() {
    let grown = Grown::new("space-hole");
    grown.write(0, &[7; 64 << 10]);
    grown.atomic.sync().unwrap();
    grown.write(64 << 10, &[8; 128 << 10]);
    let (from, to) = (64 << 10, 128 << 10);
    grown.atomic.zero(from, to).unwrap();
    assert_eq!((grown.state(), grown.allocated()), (GROWING, 128 << 10));
    let expected = [vec![7; 64 << 10], vec![0; 64 << 10], vec![8; 64 << 10]].concat();
    assert!(grown.read() == expected);
    grown.atomic.zero(0, from).unwrap(); // of committed bytes
    assert_eq!(grown.state(), ATTACHED);
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}
