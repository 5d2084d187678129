//! The life of a journal without crashes, and with errors of the medium.

use super::super::apply::Apply;
use super::super::replay::Pages;
use super::super::scan::scan_as;
use super::super::{Batch, Block, Geometry, RecordLog, scan};
use super::test_hooks::{JournalFile, MIDDLE, SMALL, TestHooks, recover};
use crate::journal::testing::KERNEL;
use crate::journal::{BootId, Header, State};
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::sync::Arc;

#[test]
fn epochs_come_back() {
    let mut test_hooks = TestHooks::new();
    test_hooks.recovers_to(0);
    test_hooks.write(100, b"hello");
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(1);
    test_hooks.write(5000, &[7; 9000]); // grows
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(2);
    test_hooks.truncate(40);
    test_hooks.commit().unwrap();
    test_hooks.truncate(20_000); // zeros where bytes were
    test_hooks.write(0, b"x");
    test_hooks.commit().unwrap();
    test_hooks.commit().unwrap(); // nothing to commit
    test_hooks.recovers_to(5);
    test_hooks.write(1, b"lost");
    test_hooks.recovers_to(5);
}

#[test]
fn an_epoch_larger_than_segments_comes_back() {
    for size in [4096, 20_000, 600 << 10, 3 << 20] {
        let mut test_hooks = TestHooks::new();
        let bytes: Vec<u8> = (0..size as u32).map(|i| (i / 7) as u8).collect();
        test_hooks.write(1234, &bytes);
        test_hooks.commit().unwrap();
        test_hooks.write(3, b"a");
        test_hooks.commit().unwrap();
        test_hooks.recovers_to(2);
    }
}

#[test]
fn scattered_granules_come_back() {
    let mut test_hooks = TestHooks::with(Geometry::default(), 1 << 30, true);
    test_hooks.write(0, &vec![1; 2 << 20]);
    test_hooks.commit().unwrap();
    for i in 0..(2 << 20) / 192 {
        test_hooks.write(i * 192, &[i as u8; 64]);
    }
    test_hooks.commit().unwrap();
    for i in 0..500 {
        test_hooks.write(i * 4096 + 640, &[i as u8; 1024]);
        test_hooks.write(i * 4096 + 2048, &[i as u8; 600]);
    }
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(3);
}

#[test]
fn parts_count_only_with_their_commit() {
    let mut test_hooks = TestHooks::new();
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    test_hooks.write(10_000, &[2; 5000]);
    test_hooks.append(false).unwrap();
    test_hooks.truncate(50); // after that part
    test_hooks.write(8000, &[3; 10]);
    test_hooks.append(false).unwrap();
    test_hooks.recovers_to(1);
    test_hooks.write(20, b"two");
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(2);
}

#[test]
fn segments_are_used_again() {
    let mut test_hooks = TestHooks::new();
    for i in 0..300u64 {
        test_hooks.write(i as usize * 37, &[i as u8; 3000]);
        if i % 3 == 0 {
            test_hooks.truncate(i as usize * 11);
        }
        test_hooks.commit().unwrap();
        if i % 4 == 3 {
            test_hooks.checkpoint(i - 1);
        }
        if i % 50 == 0 {
            test_hooks.recovers_to(i as usize + 1);
        }
    }
    assert!(test_hooks.log.len() < 300 << 10, "{} bytes", test_hooks.log.len());
    test_hooks.recovers_to(300);
    test_hooks.checkpoint(300);
    test_hooks.log.shrink().unwrap();
    assert_eq!(test_hooks.log.len(), SMALL.end(2));
    assert_eq!(fs::metadata(test_hooks.journal_path()).unwrap().len(), SMALL.end(2));
    test_hooks.recovers_to(300);
    test_hooks.write(0, &[9; 200_000]);
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(301);
}

/// What is pending, and what is reserved, keeps its room; all else can go, while epochs come on.
#[test]
fn it_gives_back_what_it_does_not_need() {
    let mut test_hooks = TestHooks::new();
    let write = |test_hooks: &mut TestHooks, epoch: u64| {
        test_hooks.write(epoch as usize * 3000 % 60_000, &[epoch as u8 + 1; 9000]);
        test_hooks.commit().unwrap();
    };
    (0..40).for_each(|epoch| write(&mut test_hooks, epoch));
    let long = test_hooks.log.len();
    test_hooks.log.give_back(0, 0).unwrap();
    assert_eq!(test_hooks.log.len(), long, "all of it is pending");
    test_hooks.checkpoint(test_hooks.log.committed() - 3);
    test_hooks.log.give_back(0, 100_000).unwrap();
    test_hooks.recovers_to(40);
    test_hooks.log.reserve(100_000).unwrap();
    assert!(test_hooks.log.len() <= long, "what was reserved was there");
    // The segment at the end is left, and goes when its epochs are in the file.
    for epoch in 40..60 {
        write(&mut test_hooks, epoch);
        test_hooks.checkpoint(test_hooks.log.committed() - 1);
        test_hooks.log.give_back(0, 6000).unwrap();
        test_hooks.recovers_to(epoch as usize + 1);
    }
    assert!(test_hooks.log.len() < long / 2, "{} of {long}", test_hooks.log.len());
    assert_eq!(fs::metadata(test_hooks.journal_path()).unwrap().len(), test_hooks.log.len());
}

#[test]
fn space_is_reserved_or_refused() {
    let mut test_hooks = TestHooks::with(MIDDLE, MIDDLE.end(4), true);
    let mut refused = 0;
    for i in 0..200u64 {
        test_hooks.write(i as usize % 50 * 100, &[i as u8; 9000]);
        match test_hooks.commit() {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "{error}");
                assert!(!test_hooks.log.is_suspect());
                test_hooks.recovers_to(test_hooks.log.committed() as usize);
                test_hooks.checkpoint(test_hooks.log.committed());
                test_hooks.commit().unwrap();
                refused += 1;
            }
        }
        assert!(test_hooks.log.len() <= MIDDLE.end(4));
    }
    assert!(refused > 5);
    test_hooks.recovers_to(200);
    // A change of size alone finds space in a full journal, and frees some.
    while test_hooks.log.reserve(RecordLog::cost(1, 64)).is_ok() {
        test_hooks.write(0, &[1; 4096]);
        test_hooks.commit().unwrap();
    }
    let full = test_hooks.log.committed();
    test_hooks.checkpoint(full);
    test_hooks.truncate(1000);
    test_hooks.append_unreserved().unwrap();
    test_hooks.recovers_to(full as usize + 1);
    test_hooks.write(0, &[1; 4096]);
    test_hooks.commit().unwrap();
    // An unreserved append is refused completely, and can be repeated.
    let committed = test_hooks.log.committed();
    let data = [1; 4096];
    let blocks: Vec<Block<'_>> = (0..120).map(|number| Block { number, mask: u64::MAX, data: &data }).collect();
    let size = test_hooks.now.len() as u64;
    let batch = Batch { epoch: committed + 1, size, cut: size, commit: true, blocks: &blocks };
    assert_eq!(test_hooks.log.append(&batch).unwrap_err().errno(), libc::ENOSPC);
    test_hooks.recovers_to(committed as usize);
    test_hooks.checkpoint(committed);
    test_hooks.write(7, b"again");
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(committed as usize + 1);
}

#[test]
fn what_is_reserved_fits() {
    let mut test_hooks = TestHooks::with(SMALL, 1 << 24, true);
    let data = [5; 4096];
    for (i, count) in [1, 2, 5, 6, 7, 30, 121, 122, 250, 3, 1000].into_iter().cycle().take(60).enumerate() {
        let mask = [u64::MAX, 1, 0x5555_5555_5555_5555, u64::MAX >> 1][i % 4];
        let blocks: Vec<Block<'_>> = (0..count).map(|number| Block { number, mask, data: &data }).collect();
        test_hooks.log.reserve(RecordLog::cost(count, count * u64::from(mask.count_ones()))).unwrap();
        let before = test_hooks.log.space();
        let (epoch, size) = (test_hooks.log.committed() + 1, test_hooks.now.len() as u64);
        test_hooks.log.append(&Batch { epoch, size, cut: size, commit: true, blocks: &blocks }).unwrap();
        assert_eq!(test_hooks.log.space(), before);
        test_hooks.log.release(epoch);
    }
}

/// A write used to wait for zeros and three flushes with each segment.
#[test]
fn to_reserve_flushes_nothing() {
    let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    let flushes = test_hooks.medium.flushes_to_fail.load(Ordering::Relaxed);
    let before = test_hooks.log.len();
    test_hooks.log.reserve(20 * MIDDLE.max).unwrap();
    assert_eq!((test_hooks.medium.flushes_to_fail.load(Ordering::Relaxed), test_hooks.log.len()), (flushes, before));
    assert!(test_hooks.log.space() >= before + 20 * MIDDLE.max);
    // Space that was taken is used, or given back.
    let epoch = test_hooks.log.committed() + 1;
    test_hooks.write(0, &[2; 200_000]);
    test_hooks.commit().unwrap();
    assert!(test_hooks.log.len() > before);
    test_hooks.checkpoint(epoch);
    test_hooks.log.shrink().unwrap();
    assert!(test_hooks.log.space() <= before + MIDDLE.max);
    test_hooks.recovers_to(2);
}

pub fn left_by(log: &mut RecordLog) -> Vec<u64> {
    let mut words = Vec::new();
    assert!(log.leave_state(&mut words).unwrap());
    words
}

pub fn goes_on(log: &mut RecordLog, words: &[u64]) {
    let (first, rest) = words.split_first_chunk().unwrap();
    let (second, rest) = rest.split_first_chunk().unwrap();
    let (third, rest) = rest.split_first_chunk().unwrap();
    log.take_state(*first, *second, *third, &rest[1..]).unwrap();
}

/// The log of another process.
fn other_owner(test_hooks: &TestHooks) -> RecordLog {
    let journal = File::options().read(true).write(true).open(test_hooks.journal_path()).unwrap();
    let (header, _) = Header::load(journal.as_fd()).unwrap();
    let keeper = Arc::new(JournalFile::new(journal, header, test_hooks.medium));
    RecordLog::attach(keeper, MIDDLE, 1 << 30, test_hooks.medium)
}

/// Another owner had made the journal longer, and as short again: what the log stored in the header then had a lower
/// number than the copy that it did not replace, and did not count until the other copy was there, too.
#[test]
fn a_log_that_goes_on_stores_the_header_after_the_last_owner() {
    let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
    let grows_and_shrinks = |test_hooks: &mut TestHooks| {
        test_hooks.write(0, &[1; 200_000]);
        test_hooks.commit().unwrap();
        test_hooks.checkpoint(test_hooks.log.committed());
        let long = test_hooks.log.len();
        test_hooks.log.shrink().unwrap();
        assert!(test_hooks.log.len() < long);
        test_hooks.log.len()
    };
    let before = grows_and_shrinks(&mut test_hooks);
    let mut other = other_owner(&test_hooks);
    goes_on(&mut other, &left_by(&mut test_hooks.log));
    core::mem::swap(&mut test_hooks.log, &mut other);
    assert_eq!(grows_and_shrinks(&mut test_hooks), before);
    goes_on(&mut other, &left_by(&mut test_hooks.log));
    core::mem::swap(&mut test_hooks.log, &mut other);
    test_hooks.log.change_header(|header| header.path_hint = "/elsewhere".into()).unwrap();
    // The medium noted what was there at its flush, between the two copies.
    let (header, _) = Header::read(&test_hooks.medium.durable.lock().unwrap()).unwrap();
    assert_eq!(header.path_hint, std::path::Path::new("/elsewhere"));
}

/// What a log had booked, another owner may have given back before the log goes on.
#[test]
fn a_log_that_goes_on_counts_on_nothing_booked_before() {
    let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    let before = test_hooks.log.space();
    test_hooks.log.reserve(4 * MIDDLE.max).unwrap();
    assert!(test_hooks.log.space() > before);
    let mut other = other_owner(&test_hooks);
    goes_on(&mut other, &left_by(&mut test_hooks.log));
    other.give_back(0, 0).unwrap();
    assert_eq!(other.space(), before);
    goes_on(&mut test_hooks.log, &left_by(&mut other));
    assert_eq!(test_hooks.log.space(), before);
    test_hooks.write(0, &[2; 200_000]);
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(2);
}

/// An open epoch counts on what the last owner had booked for it: the new owner knew nothing of that space, gave it
/// back to the pool, and had no room for the commit.
#[test]
fn a_log_that_goes_on_keeps_what_the_last_owner_has_booked() {
    let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    test_hooks.log.reserve(4 * MIDDLE.max).unwrap();
    let space = test_hooks.log.space();
    let mut other = other_owner(&test_hooks);
    goes_on(&mut other, &left_by(&mut test_hooks.log));
    assert_eq!(other.space(), space);
    other.give_back(0, 4 * MIDDLE.max).unwrap();
    assert_eq!(other.space(), space, "all of it is reserved");
    // A damaged index.
    let mut words = left_by(&mut other);
    words[16] = u64::MAX;
    let (first, rest) = words.split_first_chunk().unwrap();
    let (second, rest) = rest.split_first_chunk().unwrap();
    let (third, rest) = rest.split_first_chunk().unwrap();
    assert_eq!(test_hooks.log.take_state(*first, *second, *third, &rest[1..]).unwrap_err().errno(), libc::EIO);
}

#[test]
fn the_background_prepares() {
    let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
    test_hooks.write(0, &[1; 100]);
    assert!(test_hooks.log.prepare_next().is_none(), "one is free");
    test_hooks.commit().unwrap();
    let one = test_hooks.log.prepare_next().unwrap();
    let two = test_hooks.log.prepare_next().unwrap();
    let before = test_hooks.log.len();
    std::thread::scope(|scope| {
        scope.spawn(|| one.run().unwrap());
        scope.spawn(|| two.run().unwrap());
        test_hooks.write(50, &[2; 100]);
        test_hooks.commit().unwrap();
    });
    assert!(test_hooks.log.prepare_next().is_none());
    assert_eq!(test_hooks.log.len() - before, MIDDLE.next);
    test_hooks.write(0, &[3; 30_000]);
    test_hooks.commit().unwrap();
    test_hooks.recovers_to(3);
}

#[test]
fn a_failed_flush_is_the_last() {
    for (fails, epoch) in [(0, 1), (1, 2)] {
        let mut test_hooks = TestHooks::with(MIDDLE, 1 << 30, true);
        test_hooks.write(0, b"one");
        test_hooks.medium.flushes_to_fail.store(fails, Ordering::Relaxed);
        let first = test_hooks.commit();
        assert_eq!(first.is_ok(), fails == 1);
        test_hooks.write(0, b"two");
        assert_eq!(test_hooks.commit().unwrap_err().errno(), libc::EIO);
        test_hooks.write(0, b"three");
        assert_eq!(test_hooks.commit().unwrap_err().errno(), libc::EIO);
        assert!(test_hooks.log.is_suspect());
        assert_eq!(test_hooks.log.header().state, State::Suspect);
        let replayed = recover(&test_hooks.copy(), &test_hooks.data, &KERNEL).unwrap();
        assert_eq!(replayed.epoch, epoch, "what the cache has");
    }
}

#[test]
fn a_descriptor_taken_away_is_noticed() {
    let mut test_hooks = TestHooks::new();
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    let journal = File::open(test_hooks.journal_path()).unwrap();
    let stranger = File::options().write(true).create_new(true).open(test_hooks.dir.path("stranger")).unwrap();
    drop(journal);
    // As if the program had closed the journal and opened another file.
    let fd = test_hooks.log.journal_for_test();
    // SAFETY: both descriptors are open; the journal's number now leads to another file.
    unsafe {
        crate::sys::syscall(
            libc::SYS_dup2,
            [std::os::fd::AsRawFd::as_raw_fd(&stranger) as usize, fd as usize, 0, 0, 0, 0],
        )
    };
    test_hooks.write(0, b"two");
    assert!(test_hooks.commit().unwrap_err().to_string().contains("the program closed a descriptor"));
    assert_eq!(fs::metadata(test_hooks.dir.path("stranger")).unwrap().len(), 0);
}

#[test]
fn many_threads_do_the_same() {
    let mut test_hooks = TestHooks::with(Geometry::default(), 1 << 30, true);
    for i in 0..40usize {
        test_hooks.write(i * 60_000, &vec![i as u8; 3 << 20]);
        if i % 7 == 3 {
            test_hooks.truncate(i * 50_000);
        }
        test_hooks.commit().unwrap();
    }
    let journal = File::open(test_hooks.journal_path()).unwrap();
    let (header, _) = Header::load(journal.as_fd()).unwrap();
    let found = scan(journal.as_fd(), &header).unwrap();
    let plan = found.plan();
    assert_eq!((plan.epoch, plan.checkpointed, plan.size), (40, 0, Some(test_hooks.now.len() as u64)));
    for threads in [1, 2, 5] {
        test_hooks.data.set_len(77).unwrap();
        let told = AtomicU64::new(0);
        let progress = |bytes| {
            told.fetch_add(bytes, Ordering::Relaxed);
        };
        let apply = Apply {
            source: &Pages { journal: journal.as_fd() },
            file: test_hooks.data.as_fd(),
            medium: &KERNEL,
            threads,
            progress: &progress,
        };
        apply.all(&found.records, found.size).unwrap();
        // The first 77 bytes are as found; everything else was written.
        assert!(test_hooks.file() == test_hooks.states[40]);
        assert_eq!(told.into_inner(), plan.bytes);
    }
}

#[test]
fn only_pending_journals_of_this_file_are_replayed() {
    let mut test_hooks = TestHooks::new();
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    let other = File::options().read(true).write(true).create_new(true).open(test_hooks.dir.path("other")).unwrap();
    let error = recover(&test_hooks.journal_path(), &other, &KERNEL).unwrap_err();
    assert!(error.to_string().contains("another file's"));
    test_hooks.log.change_header(|header| header.state = State::Clean).unwrap();
    assert!(recover(&test_hooks.copy(), &test_hooks.data, &KERNEL).unwrap_err().to_string().contains("clean"));
    assert_eq!(test_hooks.file(), test_hooks.states[0]);
}

#[test]
fn the_segment_that_tells_the_tail_stays() {
    let mut test_hooks = TestHooks::new();
    for i in 0..30u64 {
        test_hooks.write(0, &vec![i as u8; 1 + i as usize * 500]);
        test_hooks.commit().unwrap();
        test_hooks.checkpoint(i + 1);
        test_hooks.log.shrink().unwrap();
        // Parts only, in whatever segments are free: what is committed must not be overwritten for them.
        for part in 0..i % 6 {
            test_hooks.write(part as usize * 5000, &[part as u8; 5000]);
            test_hooks.append(false).unwrap();
            test_hooks.log.shrink().unwrap();
            test_hooks.recovers_to(i as usize + 1);
        }
    }
}

#[test]
fn recovery_says_that_it_is_at_it() {
    let mut test_hooks = TestHooks::with(SMALL, 1 << 30, false);
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    test_hooks.log.change_header(|header| header.boot_id.0[0] ^= 1).unwrap();
    test_hooks.recovers_to(1);
    let (header, _) = Header::load(File::open(test_hooks.dir.path("copy")).unwrap().as_fd()).unwrap();
    assert_eq!(header.boot_id, BootId::current().unwrap());
}

#[test]
fn a_scan_changes_nothing() {
    let mut test_hooks = TestHooks::new();
    test_hooks.write(0, b"one");
    test_hooks.commit().unwrap();
    let before = fs::read(test_hooks.journal_path()).unwrap();
    let journal = File::open(test_hooks.journal_path()).unwrap();
    let (header, _) = Header::load(journal.as_fd()).unwrap();
    for strict in [true, false] {
        assert_eq!(scan_as(journal.as_fd(), &header, strict).unwrap().plan().epoch, 1);
    }
    assert_eq!(fs::read(test_hooks.journal_path()).unwrap(), before);
}
