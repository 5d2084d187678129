//! The life of a journal without crashes, and with errors of the medium.

use super::super::apply::Apply;
use super::super::replay::Pages;
use super::super::scan::scan_as;
use super::super::{Batch, Block, Geometry, RecordLog, scan};
use super::lab::{Lab, MIDDLE, SMALL, recover};
use crate::journal::testing::KERNEL;
use crate::journal::{BootId, Header, Stamp, State};
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, File};
use std::os::fd::AsFd;

#[test]
fn epochs_come_back() {
    let mut lab = Lab::new();
    lab.recovers_to(0);
    lab.write(100, b"hello");
    lab.commit().unwrap();
    lab.recovers_to(1);
    lab.write(5000, &[7; 9000]); // grows
    lab.commit().unwrap();
    lab.recovers_to(2);
    lab.truncate(40);
    lab.commit().unwrap();
    lab.truncate(20_000); // zeros where bytes were
    lab.write(0, b"x");
    lab.commit().unwrap();
    lab.commit().unwrap(); // nothing to commit
    lab.recovers_to(5);
    lab.write(1, b"lost");
    lab.recovers_to(5);
}

#[test]
fn an_epoch_larger_than_segments_comes_back() {
    for size in [4096, 20_000, 600 << 10, 3 << 20] {
        let mut lab = Lab::new();
        let bytes: Vec<u8> = (0..size as u32).map(|i| (i / 7) as u8).collect();
        lab.write(1234, &bytes);
        lab.commit().unwrap();
        lab.write(3, b"a");
        lab.commit().unwrap();
        lab.recovers_to(2);
    }
}

#[test]
fn scattered_granules_come_back() {
    let mut lab = Lab::with(Geometry::default(), 1 << 30, true);
    lab.write(0, &vec![1; 2 << 20]);
    lab.commit().unwrap();
    for i in 0..(2 << 20) / 192 {
        lab.write(i * 192, &[i as u8; 64]);
    }
    lab.commit().unwrap();
    for i in 0..500 {
        lab.write(i * 4096 + 640, &[i as u8; 1024]);
        lab.write(i * 4096 + 2048, &[i as u8; 600]);
    }
    lab.commit().unwrap();
    lab.recovers_to(3);
}

#[test]
fn parts_count_only_with_their_commit() {
    let mut lab = Lab::new();
    lab.write(0, b"one");
    lab.commit().unwrap();
    lab.write(10_000, &[2; 5000]);
    lab.append(false).unwrap();
    lab.truncate(50); // after that part
    lab.write(8000, &[3; 10]);
    lab.append(false).unwrap();
    lab.recovers_to(1);
    lab.write(20, b"two");
    lab.commit().unwrap();
    lab.recovers_to(2);
}

#[test]
fn segments_are_used_again() {
    let mut lab = Lab::new();
    for i in 0..300u64 {
        lab.write(i as usize * 37, &[i as u8; 3000]);
        if i % 3 == 0 {
            lab.truncate(i as usize * 11);
        }
        lab.commit().unwrap();
        if i % 4 == 3 {
            lab.settle(i - 1);
        }
        if i % 50 == 0 {
            lab.recovers_to(i as usize + 1);
        }
    }
    assert!(lab.log.len() < 300 << 10, "{} bytes", lab.log.len());
    lab.recovers_to(300);
    lab.settle(300);
    lab.log.shrink().unwrap();
    assert_eq!(lab.log.len(), SMALL.end(2));
    assert_eq!(fs::metadata(lab.journal_path()).unwrap().len(), SMALL.end(2));
    lab.recovers_to(300);
    lab.write(0, &[9; 200_000]);
    lab.commit().unwrap();
    lab.recovers_to(301);
}

#[test]
fn space_is_reserved_or_refused() {
    let mut lab = Lab::with(MIDDLE, MIDDLE.end(4), true);
    let mut refused = 0;
    for i in 0..200u64 {
        lab.write(i as usize % 50 * 100, &[i as u8; 9000]);
        match lab.commit() {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "{error}");
                assert!(!lab.log.is_suspect());
                lab.recovers_to(lab.log.committed() as usize);
                lab.settle(lab.log.committed());
                lab.commit().unwrap();
                refused += 1;
            }
        }
        assert!(lab.log.len() <= MIDDLE.end(4));
    }
    assert!(refused > 5);
    lab.recovers_to(200);
    // A change of size alone finds space in a full journal, and frees some.
    while lab.log.reserve(RecordLog::cost(1, 64)).is_ok() {
        lab.write(0, &[1; 4096]);
        lab.commit().unwrap();
    }
    let full = lab.log.committed();
    lab.settle(full);
    lab.truncate(1000);
    lab.append_unreserved().unwrap();
    lab.recovers_to(full as usize + 1);
    lab.write(0, &[1; 4096]);
    lab.commit().unwrap();
    // An unreserved append is refused completely, and can be repeated.
    let committed = lab.log.committed();
    let data = [1; 4096];
    let blocks: Vec<Block<'_>> = (0..120).map(|number| Block { number, mask: u64::MAX, data: &data }).collect();
    let size = lab.now.len() as u64;
    let batch = Batch { epoch: committed + 1, size, cut: size, commit: true, blocks: &blocks };
    assert_eq!(lab.log.append(&batch).unwrap_err().errno(), libc::ENOSPC);
    lab.recovers_to(committed as usize);
    lab.settle(committed);
    lab.write(7, b"again");
    lab.commit().unwrap();
    lab.recovers_to(committed as usize + 1);
}

#[test]
fn what_is_reserved_fits() {
    let mut lab = Lab::with(SMALL, 1 << 24, true);
    let data = [5; 4096];
    for (i, count) in [1, 2, 5, 6, 7, 30, 121, 122, 250, 3, 1000].into_iter().cycle().take(60).enumerate() {
        let mask = [u64::MAX, 1, 0x5555_5555_5555_5555, u64::MAX >> 1][i % 4];
        let blocks: Vec<Block<'_>> = (0..count).map(|number| Block { number, mask, data: &data }).collect();
        lab.log.reserve(RecordLog::cost(count, count * u64::from(mask.count_ones()))).unwrap();
        let before = lab.log.space();
        let (epoch, size) = (lab.log.committed() + 1, lab.now.len() as u64);
        lab.log.append(&Batch { epoch, size, cut: size, commit: true, blocks: &blocks }).unwrap();
        assert_eq!(lab.log.space(), before);
        lab.log.release(epoch);
    }
}

/// A write used to wait for zeros and three flushes with each segment.
#[test]
fn to_reserve_flushes_nothing() {
    let mut lab = Lab::with(MIDDLE, 1 << 30, true);
    lab.write(0, b"one");
    lab.commit().unwrap();
    let flushes = lab.medium.flushes_to_fail.load(Ordering::Relaxed);
    let before = lab.log.len();
    lab.log.reserve(20 * MIDDLE.max).unwrap();
    assert_eq!((lab.medium.flushes_to_fail.load(Ordering::Relaxed), lab.log.len()), (flushes, before));
    assert!(lab.log.space() >= before + 20 * MIDDLE.max);
    // Space that was taken is used, or given back.
    let epoch = lab.log.committed() + 1;
    lab.write(0, &[2; 200_000]);
    lab.commit().unwrap();
    assert!(lab.log.len() > before);
    lab.settle(epoch);
    lab.log.shrink().unwrap();
    assert!(lab.log.space() <= before + MIDDLE.max);
    lab.recovers_to(2);
}

#[test]
fn the_background_prepares() {
    let mut lab = Lab::with(MIDDLE, 1 << 30, true);
    lab.write(0, &[1; 100]);
    assert!(lab.log.prepare_next().is_none(), "one is free");
    lab.commit().unwrap();
    let one = lab.log.prepare_next().unwrap();
    let two = lab.log.prepare_next().unwrap();
    let before = lab.log.len();
    std::thread::scope(|scope| {
        scope.spawn(|| one.run().unwrap());
        scope.spawn(|| two.run().unwrap());
        lab.write(50, &[2; 100]);
        lab.commit().unwrap();
    });
    assert!(lab.log.prepare_next().is_none());
    assert_eq!(lab.log.len() - before, MIDDLE.next);
    lab.write(0, &[3; 30_000]);
    lab.commit().unwrap();
    lab.recovers_to(3);
}

#[test]
fn a_failed_flush_is_the_last() {
    for (fails, epoch) in [(0, 1), (1, 2)] {
        let mut lab = Lab::with(MIDDLE, 1 << 30, true);
        lab.write(0, b"one");
        lab.medium.flushes_to_fail.store(fails, Ordering::Relaxed);
        let first = lab.commit();
        assert_eq!(first.is_ok(), fails == 1);
        lab.write(0, b"two");
        assert_eq!(lab.commit().unwrap_err().errno(), libc::EIO);
        lab.write(0, b"three");
        assert_eq!(lab.commit().unwrap_err().errno(), libc::EIO);
        assert!(lab.log.is_suspect());
        assert_eq!(lab.log.header().state, State::Suspect);
        let replayed = recover(&lab.copy(), &lab.data, &KERNEL).unwrap();
        assert_eq!(replayed.epoch, epoch, "what the cache has");
    }
}

#[test]
fn a_descriptor_taken_away_is_noticed() {
    let mut lab = Lab::new();
    lab.write(0, b"one");
    lab.commit().unwrap();
    let journal = File::open(lab.journal_path()).unwrap();
    let stranger = File::options().write(true).create_new(true).open(lab.dir.path("stranger")).unwrap();
    drop(journal);
    // As if the program had closed the journal and opened another file.
    let fd = lab.log.journal_for_test();
    // SAFETY: both descriptors are open; the journal's number now leads to another file.
    unsafe {
        crate::sys::syscall(
            libc::SYS_dup2,
            [std::os::fd::AsRawFd::as_raw_fd(&stranger) as usize, fd as usize, 0, 0, 0, 0],
        )
    };
    lab.write(0, b"two");
    assert!(lab.commit().unwrap_err().to_string().contains("the program closed a descriptor"));
    assert_eq!(fs::metadata(lab.dir.path("stranger")).unwrap().len(), 0);
}

#[test]
fn many_threads_do_the_same() {
    let mut lab = Lab::with(Geometry::default(), 1 << 30, true);
    for i in 0..40usize {
        lab.write(i * 60_000, &vec![i as u8; 3 << 20]);
        if i % 7 == 3 {
            lab.truncate(i * 50_000);
        }
        lab.commit().unwrap();
    }
    let journal = File::open(lab.journal_path()).unwrap();
    let (header, _) = Header::load(journal.as_fd()).unwrap();
    let found = scan(journal.as_fd(), &header).unwrap();
    let plan = found.plan();
    assert_eq!((plan.epoch, plan.settled, plan.size), (40, 0, Some(lab.now.len() as u64)));
    for threads in [1, 2, 5] {
        lab.data.set_len(77).unwrap();
        let told = AtomicU64::new(0);
        let progress = |bytes| {
            told.fetch_add(bytes, Ordering::Relaxed);
        };
        let apply = Apply {
            source: &Pages { journal: journal.as_fd() },
            file: lab.data.as_fd(),
            medium: &KERNEL,
            threads,
            progress: &progress,
        };
        apply.all(&found.records, found.size).unwrap();
        // The first 77 bytes are as found; everything else was written.
        assert!(lab.file() == lab.states[40]);
        assert_eq!(told.into_inner(), plan.bytes);
    }
}

#[test]
fn only_pending_journals_of_this_file_are_replayed() {
    let mut lab = Lab::new();
    lab.write(0, b"one");
    lab.commit().unwrap();
    let other = File::options().read(true).write(true).create_new(true).open(lab.dir.path("other")).unwrap();
    let error = recover(&lab.journal_path(), &other, &KERNEL).unwrap_err();
    assert!(error.to_string().contains("another file's"));
    lab.log.change_header(|header| header.state = State::Clean).unwrap();
    assert!(recover(&lab.copy(), &lab.data, &KERNEL).unwrap_err().to_string().contains("clean"));
    assert_eq!(lab.file(), lab.states[0]);
}

#[test]
fn the_segment_that_tells_the_tail_stays() {
    let mut lab = Lab::new();
    for i in 0..30u64 {
        lab.write(0, &vec![i as u8; 1 + i as usize * 500]);
        lab.commit().unwrap();
        lab.settle(i + 1);
        lab.log.shrink().unwrap();
        // Parts only, in whatever segments are free: what is committed must not be overwritten for them.
        for part in 0..i % 6 {
            lab.write(part as usize * 5000, &[part as u8; 5000]);
            lab.append(false).unwrap();
            lab.log.shrink().unwrap();
            lab.recovers_to(i as usize + 1);
        }
    }
}

#[test]
fn recovery_says_that_it_is_at_it() {
    let mut lab = Lab::with(SMALL, 1 << 30, false);
    lab.write(0, b"one");
    lab.commit().unwrap();
    lab.log.change_header(|header| header.stamp = Some(Stamp::default())).unwrap();
    lab.recovers_to(1);
    let (header, _) = Header::load(File::open(lab.dir.path("copy")).unwrap().as_fd()).unwrap();
    assert_eq!((header.boot_id, header.stamp), (BootId::current().unwrap(), None));
}

#[test]
fn a_scan_changes_nothing() {
    let mut lab = Lab::new();
    lab.write(0, b"one");
    lab.commit().unwrap();
    let before = fs::read(lab.journal_path()).unwrap();
    let journal = File::open(lab.journal_path()).unwrap();
    let (header, _) = Header::load(journal.as_fd()).unwrap();
    for strict in [true, false] {
        assert_eq!(scan_as(journal.as_fd(), &header, strict).unwrap().plan().epoch, 1);
    }
    assert_eq!(fs::read(lab.journal_path()).unwrap(), before);
}
