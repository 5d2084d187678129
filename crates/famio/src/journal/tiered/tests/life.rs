//! The ordinary life of a log.

use super::super::TieredLog;
use super::lab::{Lab, SMALL};
use crate::journal::inplace::Key;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::testing::KERNEL;
use crate::pmem::Domain;
use std::os::fd::AsFd;

const LIMIT: u64 = 1 << 20;

#[test]
fn every_epoch_is_recovered_over_segments_that_come_again() {
    let mut lab = Lab::new(LIMIT, &KERNEL);
    lab.recovers();
    for epoch in 2..120usize {
        lab.write(epoch * 911 % 20_000, &vec![epoch as u8; 100 + epoch * 37 % 6000]);
        if epoch % 11 == 0 {
            lab.truncate(epoch * 100);
        }
        lab.commit().unwrap();
        lab.recovers();
        if epoch % 5 == 0 {
            lab.settled = epoch - 2;
            lab.log.release(epoch as u64 - 2);
            lab.recovers();
        }
    }
    assert!(lab.log.len() < 200_000, "segments are used again: {}", lab.log.len());
}

#[test]
fn what_is_reserved_can_be_appended_and_what_can_not_is_told_before() {
    let mut lab = Lab::new(200_000, &KERNEL);
    let mut committed = 0;
    let error = loop {
        // Blocks that do not fit at the end of a segment, and single granules.
        for block in 0..7 {
            lab.write(block * 4096, &[committed as u8 + 1; 4096]);
            lab.write(100_000 + block * 5000, &[committed as u8 + 1; 64]);
        }
        match lab.commit() {
            Ok(()) => committed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    assert!(committed >= 4, "{committed} epochs fit");
    lab.recovers();
    // After a write-back there is space again, for the same epoch.
    lab.settled = lab.log.committed() as usize;
    lab.log.release(lab.log.committed());
    lab.commit().unwrap();
    lab.recovers();
}

#[test]
fn an_epoch_larger_than_a_segment_is_split() {
    let mut lab = Lab::new(LIMIT, &KERNEL);
    lab.write(0, &[7; 150_000]);
    lab.commit().unwrap();
    lab.recovers();
}

#[test]
fn with_nothing_pending_it_shrinks_and_goes_on() {
    let mut lab = Lab::new(LIMIT, &KERNEL);
    for round in 0..4 {
        for epoch in 0..20 {
            lab.write(epoch * 3000, &[round * 20 + epoch as u8 + 1; 5000]);
            lab.commit().unwrap();
        }
        let before = lab.log.len();
        lab.log.shrink().unwrap();
        assert_eq!(lab.log.len(), before, "what is pending stays");
        lab.settled = lab.log.committed() as usize;
        lab.log.release(lab.log.committed());
        lab.recovers();
        lab.log.shrink().unwrap();
        assert_eq!((lab.log.len(), lab.log.used()), (8192 + SMALL.first, 0));
        lab.recovers();
    }
}

#[test]
fn another_owner_goes_on_with_it() {
    let mut lab = Lab::new(LIMIT, &KERNEL);
    for epoch in 0..30 {
        lab.write(epoch * 2500, &[epoch as u8 + 1; 4000]);
        lab.commit().unwrap();
        let (state, segments) = lab.log.leave_state().unwrap().unwrap();
        let key = Key::of(lab.header.journal_id);
        let mapped = Mapped::attach(lab.journal.as_fd(), Domain::Emulated, &KERNEL, key, LIMIT).unwrap();
        let mut other = TieredLog::attach(mapped, SMALL).unwrap();
        let mut wrong = state;
        wrong[1] += 32;
        assert_eq!(other.take_state(wrong, &segments).unwrap_err().errno(), libc::EIO);
        assert_eq!(other.take_state(state, &[0; 1000]).unwrap_err().errno(), libc::EIO);
        other.take_state(state, &segments).unwrap();
        lab.log = other;
        if epoch % 7 == 0 {
            lab.settled = lab.log.committed() as usize - 1;
            lab.log.release(lab.settled as u64);
        }
        lab.recovers();
    }
}

#[test]
fn the_oldest_part_is_told_by_its_last_epoch() {
    let mut lab = Lab::new(LIMIT, &KERNEL);
    assert_eq!(lab.log.epoch_before(0), 1);
    for epoch in 0..40 {
        lab.write(epoch * 4096, &[1; 4096]);
        lab.commit().unwrap();
    }
    let used = lab.log.used();
    assert_eq!(lab.log.epoch_before(used), 1, "all of it may stay");
    let epoch = lab.log.epoch_before(used / 2);
    assert!(epoch > 10 && epoch < 40, "{epoch}");
    lab.settled = epoch as usize;
    lab.log.release(epoch);
    assert!(lab.log.used() <= used / 2, "{} of {used}", lab.log.used());
    lab.recovers();
}
