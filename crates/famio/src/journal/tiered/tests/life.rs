//! The ordinary life of a log.

use super::super::TieredLog;
use super::test_hooks::{SMALL, TestHooks};
use crate::error::{Error, Result};
use crate::journal::inplace::Key;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
use crate::pmem::{Domain, Medium};
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd};

const LIMIT: u64 = 1 << 20;

#[test]
fn every_epoch_is_recovered_over_segments_that_come_again() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    test_hooks.recovers();
    for epoch in 2..120usize {
        test_hooks.write(epoch * 911 % 20_000, &vec![epoch as u8; 100 + epoch * 37 % 6000]);
        if epoch % 11 == 0 {
            test_hooks.truncate(epoch * 100);
        }
        test_hooks.commit().unwrap();
        test_hooks.recovers();
        if epoch % 5 == 0 {
            test_hooks.checkpointed = epoch - 2;
            test_hooks.log.release(epoch as u64 - 2);
            test_hooks.recovers();
        }
    }
    assert!(test_hooks.log.len() < 200_000, "segments are used again: {}", test_hooks.log.len());
}

#[test]
fn what_is_reserved_can_be_appended_and_what_can_not_is_told_before() {
    let mut test_hooks = TestHooks::new(200_000, &KERNEL);
    let mut committed = 0;
    let error = loop {
        // Blocks that do not fit at the end of a segment, and single granules.
        for block in 0..7 {
            test_hooks.write(block * 4096, &[committed as u8 + 1; 4096]);
            test_hooks.write(100_000 + block * 5000, &[committed as u8 + 1; 64]);
        }
        match test_hooks.commit() {
            Ok(()) => committed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    assert!(committed >= 4, "{committed} epochs fit");
    test_hooks.recovers();
    // After a write-back there is space again, for the same epoch.
    test_hooks.checkpointed = test_hooks.log.committed() as usize;
    test_hooks.log.release(test_hooks.log.committed());
    test_hooks.commit().unwrap();
    test_hooks.recovers();
}

#[test]
fn blocks_stored_early_are_those_of_the_commit() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    test_hooks.write(0, &[1; 4096]);
    test_hooks.commit().unwrap(); // the log has a segment now
    let step = |test_hooks: &mut TestHooks, early: usize, changes: &dyn Fn(&mut TestHooks)| {
        test_hooks.early = 0;
        changes(test_hooks);
        test_hooks.commit().unwrap();
        assert_eq!(test_hooks.early, early);
        test_hooks.recovers();
    };
    step(&mut test_hooks, 2, &|hooks| {
        hooks.write(8192, &[2; 4096]);
        hooks.write(100, &[3; 100]); // the block between the two early ones, in their order
        hooks.write(4096, &[4; 4096]);
    });
    // Of what the epoch writes over, the commit has the last.
    step(&mut test_hooks, 2, &|hooks| {
        hooks.write(4096, &[5; 4096]);
        hooks.write(4100, &[6; 10]);
        hooks.write(8192, &[7; 4096]);
    });
    step(&mut test_hooks, 1, &|hooks| {
        hooks.write(4096, &[8; 4096]);
        hooks.truncate(5000);
        hooks.write(4096, &[9; 2000]);
    });
    // The segment has no room for all.
    step(&mut test_hooks, 2, &|hooks| (0..12).for_each(|block| hooks.write(block * 4096, &[block as u8; 4096])));
}

#[test]
fn a_place_that_was_given_up_is_the_next_ones() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    test_hooks.write(0, &[1; 12_288]);
    test_hooks.commit().unwrap();
    test_hooks.write(4096, &[5; 4096]);
    let first = test_hooks.log.place_early(2, 9).unwrap().bytes();
    test_hooks.log.give_up_early(2);
    let second = test_hooks.log.place_early(2, 9).unwrap().bytes();
    assert_eq!(first, second);
    test_hooks.log.give_up_early(1); // not the last
    test_hooks.log.give_up_early(2);
    test_hooks.write(100, &[6; 9000]);
    test_hooks.commit().unwrap();
    test_hooks.recovers();
}

#[test]
fn an_epoch_larger_than_a_segment_is_split() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    test_hooks.write(0, &[7; 150_000]);
    test_hooks.commit().unwrap();
    test_hooks.recovers();
}

#[test]
fn with_nothing_pending_it_shrinks_and_goes_on() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    for round in 0..4 {
        for epoch in 0..20 {
            test_hooks.write(epoch * 3000, &[round * 20 + epoch as u8 + 1; 5000]);
            test_hooks.commit().unwrap();
        }
        let before = test_hooks.log.len();
        test_hooks.log.shrink().unwrap();
        assert_eq!(test_hooks.log.len(), before, "what is pending stays");
        test_hooks.checkpointed = test_hooks.log.committed() as usize;
        test_hooks.log.release(test_hooks.log.committed());
        test_hooks.recovers();
        test_hooks.log.shrink().unwrap();
        assert_eq!((test_hooks.log.len(), test_hooks.log.used()), (8192 + SMALL.first, 0));
        test_hooks.recovers();
    }
}

/// The kernel, which cannot cut a file while this is set.
struct CutsNothing(AtomicBool);

// SAFETY: memory operations as the kernel's.
unsafe impl Medium for CutsNothing {
    kernels_memory!();
    kernels_calls!(fence pwritev fsync fdatasync);
    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        if self.0.load(Ordering::Relaxed) && rustix::fs::fstat(fd)?.st_size as u64 > size {
            return Err(Error::new(libc::EROFS));
        }
        KERNEL.ftruncate(fd, size)
    }
}

/// The medium did not count the segments any more in which the log went on; the next growth removed them.
#[test]
fn it_goes_on_in_segments_that_are_counted_if_it_could_not_shrink() {
    static MEDIUM: CutsNothing = CutsNothing(AtomicBool::new(false));
    for gives_back in [false, true] {
        let mut test_hooks = TestHooks::new(LIMIT, &MEDIUM);
        let write = |test_hooks: &mut TestHooks, epoch: usize| {
            test_hooks.write(epoch * 3000 % 60_000, &[epoch as u8 + 1; 5000]);
            test_hooks.commit().unwrap();
            test_hooks.recovers();
        };
        (0..40).for_each(|epoch| write(&mut test_hooks, epoch));
        test_hooks.checkpointed = test_hooks.log.committed() as usize;
        test_hooks.log.release(test_hooks.log.committed());
        MEDIUM.0.store(true, Ordering::Relaxed);
        let cut = if gives_back { test_hooks.log.give_back(0, 0) } else { test_hooks.log.shrink() };
        assert_eq!(cut.unwrap_err().errno(), libc::EROFS);
        MEDIUM.0.store(false, Ordering::Relaxed);
        (0..80).for_each(|epoch| write(&mut test_hooks, epoch));
    }
}

/// What is pending, and what is reserved, keeps its room; all else can go, while epochs come on.
#[test]
fn it_gives_back_what_it_does_not_need() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    let write = |test_hooks: &mut TestHooks, epoch: usize| {
        test_hooks.write(epoch * 3000 % 60_000, &[epoch as u8 + 1; 5000]);
        test_hooks.commit().unwrap();
        test_hooks.recovers();
    };
    (0..40).for_each(|epoch| write(&mut test_hooks, epoch));
    let long = test_hooks.log.len();
    test_hooks.log.give_back(0, 0).unwrap();
    assert_eq!(test_hooks.log.len(), long, "all of it is pending");
    test_hooks.checkpointed = test_hooks.log.committed() as usize - 3;
    test_hooks.log.release(test_hooks.checkpointed as u64);
    test_hooks.log.give_back(0, 100_000).unwrap();
    test_hooks.recovers();
    test_hooks.log.reserve(100_000).unwrap();
    assert!(test_hooks.log.len() <= long, "what was reserved was there");
    // The segment at the end is left, and goes when its epochs are in the file.
    for epoch in 40..60 {
        write(&mut test_hooks, epoch);
        test_hooks.checkpointed = test_hooks.log.committed() as usize - 1;
        test_hooks.log.release(test_hooks.checkpointed as u64);
        test_hooks.log.give_back(0, 6000).unwrap();
        test_hooks.recovers();
    }
    assert!(test_hooks.log.len() < long / 2, "{} of {long}", test_hooks.log.len());
}

#[test]
fn another_owner_goes_on_with_it() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    for epoch in 0..30 {
        test_hooks.write(epoch * 2500, &[epoch as u8 + 1; 4000]);
        test_hooks.commit().unwrap();
        let (state, segments) = test_hooks.log.leave_state().unwrap().unwrap();
        let key = Key::of(test_hooks.header.journal_id);
        let mapped = Mapped::attach(test_hooks.journal.as_fd(), Domain::Emulated, &KERNEL, key, LIMIT).unwrap();
        let mut other = TieredLog::attach(mapped, SMALL).unwrap();
        let mut wrong = state;
        wrong[1] += 32;
        assert_eq!(other.take_state(wrong, &segments).unwrap_err().errno(), libc::EIO);
        assert_eq!(other.take_state(state, &[0; 1000]).unwrap_err().errno(), libc::EIO);
        other.take_state(state, &segments).unwrap();
        test_hooks.log = other;
        if epoch % 7 == 0 {
            test_hooks.checkpointed = test_hooks.log.committed() as usize - 1;
            test_hooks.log.release(test_hooks.checkpointed as u64);
        }
        test_hooks.recovers();
    }
}

#[test]
fn the_oldest_part_is_told_by_its_last_epoch() {
    let mut test_hooks = TestHooks::new(LIMIT, &KERNEL);
    assert_eq!(test_hooks.log.epoch_before(0), 1);
    for epoch in 0..40 {
        test_hooks.write(epoch * 4096, &[1; 4096]);
        test_hooks.commit().unwrap();
    }
    let used = test_hooks.log.used();
    assert_eq!(test_hooks.log.epoch_before(used), 1, "all of it may stay");
    let epoch = test_hooks.log.epoch_before(used / 2);
    assert!(epoch > 10 && epoch < 40, "{epoch}");
    test_hooks.checkpointed = epoch as usize;
    test_hooks.log.release(epoch);
    assert!(test_hooks.log.used() <= used / 2, "{} of {used}", test_hooks.log.used());
    test_hooks.recovers();
}
