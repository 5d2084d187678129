//! Crashes at any point: random histories that end at random, their recovery, and interruptions of the recovery
//! itself.

use super::super::head::{Kind, parse};
use super::super::scan::scan_as;
use super::test_hooks::{MIDDLE, SMALL, TestHooks, contents, recover, rewrite};
use crate::journal::Header;
use crate::journal::testing::KERNEL;
use crate::pmem::Domain;
use crate::pmem::record::{Plan, Recorder};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use famio_test_support::random::Random;
use proptest::prelude::*;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A step of a program.
#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        len: usize,
        byte: u8,
    },
    Truncate {
        to: usize,
    },
    Part,
    Commit,
    /// Everything up to this many epochs before the last goes to the file.
    Checkpoint {
        behind: u64,
    },
    Shrink,
    /// To a pool: down to this part of the journal, in percent, with room for this many bytes.
    GiveBack {
        to: u64,
        reserved: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_000usize, 1..9000usize, 1..=255u8).prop_map(|(at, len, byte)| Step::Write { at, len, byte }),
        1 => (0..45_000usize).prop_map(|to| Step::Truncate { to }),
        1 => Just(Step::Part),
        5 => Just(Step::Commit),
        2 => (0..4u64).prop_map(|behind| Step::Checkpoint { behind }),
        1 => Just(Step::Shrink),
        2 => (0..100u64, 0..40_000u64).prop_map(|(to, reserved)| Step::GiveBack { to, reserved }),
    ]
}

/// Executes the steps until one fails. Returns whether the process died before the end.
fn run(test_hooks: &mut TestHooks, steps: &[Step]) -> bool {
    for step in steps {
        let result = match step {
            Step::Write { at, len, byte } => {
                test_hooks.write(*at, &vec![*byte; *len]);
                Ok(())
            }
            Step::Truncate { to } => {
                test_hooks.truncate(*to);
                Ok(())
            }
            Step::Part => test_hooks.append(false),
            Step::Commit => test_hooks.commit(),
            Step::Checkpoint { behind } => {
                let epoch = test_hooks.log.committed().saturating_sub(*behind);
                if epoch >= test_hooks.checkpointed {
                    test_hooks.checkpoint(epoch);
                }
                Ok(())
            }
            Step::Shrink => test_hooks.log.shrink(),
            Step::GiveBack { to, reserved } => {
                let length = test_hooks.log.len() / 100 * to;
                test_hooks.log.give_back(length, *reserved)
            }
        };
        if let Err(error) = result {
            assert_eq!(error.errno(), libc::EIO, "{error}");
            return true;
        }
    }
    false
}

/// A recovery must find the last epoch that returned, or the one whose commit was under way.
fn recovers_to_last_or_next(test_hooks: &TestHooks, journal: &std::path::Path, what: &str) {
    let committed = test_hooks.log.committed() as usize;
    let replayed = recover(journal, &test_hooks.data, &KERNEL).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = replayed.epoch as usize;
    assert!(found == committed || found == committed + 1, "{what}: epoch {found}, {committed} was acknowledged");
    let right = if found == committed { &test_hooks.states[committed] } else { &test_hooks.now };
    assert!(test_hooks.file() == *right, "{what}: epoch {found} is torn");
    // What recovery has shown stays, whatever the boot.
    for same_boot in [true, false] {
        rewrite(journal, fs::read(journal).unwrap(), same_boot);
        assert_eq!(recover(journal, &test_hooks.data, &KERNEL).unwrap().epoch as usize, found, "{what}: again");
        assert!(test_hooks.file() == *right);
    }
}

/// The journal after a power cut: of what was not flushed, only some sectors.
fn power_cut(test_hooks: &TestHooks, seed: u64) -> Vec<u8> {
    let now = fs::read(test_hooks.journal_path()).unwrap();
    some_sectors(&now, test_hooks.medium.durable.lock().unwrap().clone(), seed)
}

/// Some sectors of `now`, the cached content, over the durable one.
fn some_sectors(now: &[u8], mut image: Vec<u8>, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let durable = image.len();
    image.resize(now.len().max(durable), 0);
    // Some seeds keep nearly everything, some nearly nothing.
    let odds = seed % 7 + 1;
    for (sector, new) in now.chunks(512).enumerate() {
        if random.below(8) < odds {
            image[sector * 512..sector * 512 + new.len()].copy_from_slice(new);
        }
    }
    if seed & 256 == 0 {
        image.truncate(durable); // the size may be lost, too
    }
    image
}

/// Interrupts recovery within its writes to the journal or the file, by the death of the process or a power cut.
fn cut_recovery(test_hooks: &TestHooks, journal: &std::path::Path, seed: u64, bytes: i64) {
    let watched = if seed.is_multiple_of(2) { journal.to_path_buf() } else { test_hooks.dir.path("data") };
    let file = File::options().read(true).write(true).open(&watched).unwrap();
    let dying = super::test_hooks::Failing::new(&file);
    let before = contents(file.as_fd());
    dying.durable.lock().unwrap().clone_from(&before);
    dying.bytes_to_live.store(bytes, Ordering::Relaxed);
    let _ = recover(journal, &test_hooks.data, dying);
    if seed.is_multiple_of(5) {
        let image = some_sectors(&contents(file.as_fd()), dying.durable.lock().unwrap().clone(), seed);
        file.set_len(image.len() as u64).unwrap();
        file.write_all_at(&image, 0).unwrap();
    }
}

/// A journal of two segments that is reused again and again. Calls `look` before each commit of a few bytes is
/// durable, with the journal as it was, until `look` has seen the state that it looks for.
fn used_again(look: impl Fn(&mut TestHooks, Vec<u8>) -> bool) {
    let mut test_hooks = TestHooks::with(MIDDLE, 0, false);
    let commit = |test_hooks: &mut TestHooks| {
        // A checkpoint when it is full: a note then says what can be reused.
        test_hooks.commit().or_else(|_| {
            test_hooks.checkpoint(test_hooks.log.committed());
            test_hooks.commit()
        })
    };
    for round in 0..60 {
        test_hooks.write(0, &vec![1 + round; 2000 + 1100 * (usize::from(round) % 7)]);
        commit(&mut test_hooks).unwrap();
        let before = test_hooks.medium.durable.lock().unwrap().clone();
        test_hooks.write(100, &[101 + round; 10]);
        commit(&mut test_hooks).unwrap();
        if look(&mut test_hooks, before) {
            return;
        }
    }
    panic!("it never came to that");
}

/// The note at the end of a segment was erased by a recovery, or overwritten by the segment's next use, when the
/// power failed. The next segment begins with an epoch: it was begun when the note was durable, so only the note is
/// missing.
#[test]
fn a_note_that_is_gone_does_not_end_the_chain() {
    let mut test_hooks = TestHooks::with(MIDDLE, 0, false);
    // Epochs of a page each, until the second segment has one page left, which only a note takes.
    let records = |test_hooks: &TestHooks| {
        let bytes = fs::read(test_hooks.journal_path()).unwrap();
        bytes.chunks_exact(4096).filter_map(|page| Some(parse(page).ok()??.head)).collect::<Vec<_>>()
    };
    while records(&test_hooks).iter().filter(|head| head.generation == 2).count() < 22 {
        test_hooks.append_unreserved().unwrap();
    }
    test_hooks.checkpoint(test_hooks.log.committed());
    test_hooks.write(0, &[7; 6000]);
    test_hooks.commit().unwrap();
    let records = records(&test_hooks);
    let note = records.iter().find(|head| head.kind == Kind::Note).expect("a note");
    assert!(note.generation == 2 && records.iter().any(|head| head.generation == 3));
    let now = fs::read(test_hooks.journal_path()).unwrap();
    for overwritten in [0, 0xAB] {
        let (mut image, at) = (now.clone(), note.position as usize);
        image[at..at + 4096].fill(overwritten);
        let path = test_hooks.dir.path("cut");
        rewrite(&path, image, false);
        let replayed = recover(&path, &test_hooks.data, &KERNEL).unwrap();
        assert_eq!(replayed.epoch, test_hooks.log.committed());
        assert!(test_hooks.file() == test_hooks.now);
    }
}

/// Only the first sector of the last record arrived, the others are from an earlier use: it did not happen. The
/// recovery that finds this writes zeros over it, which may be just what the record lacks.
#[test]
fn what_is_erased_does_not_come_back() {
    used_again(|test_hooks, mut image| {
        let now = fs::read(test_hooks.journal_path()).unwrap();
        let committed = test_hooks.log.committed();
        let is_last = |page: &[u8]| parse(page).is_ok_and(|parsed| parsed.is_some_and(|p| p.head.epoch == committed));
        let Some(at) = now.chunks_exact(4096).position(is_last).map(|page| page * 4096) else { return false };
        if image.len() < now.len() || now[at + 512..at + 4096] == image[at + 512..at + 4096] {
            return false;
        }
        let path = test_hooks.dir.path("cut");
        let mut with_zeros = image.clone();
        with_zeros[at..at + 4096].fill(0);
        with_zeros[at..at + 512].copy_from_slice(&now[at..at + 512]);
        rewrite(&path, with_zeros, false);
        if recover(&path, &test_hooks.data, &KERNEL).unwrap().epoch != committed {
            return false; // more than its first sector arrived, or its segment was only just begun
        }
        image[at..at + 512].copy_from_slice(&now[at..at + 512]);
        rewrite(&path, image.clone(), false);
        let recorder = Recorder::new(Domain::PageCache);
        let journal = File::options().read(true).write(true).open(&path).unwrap();
        let object = recorder.object_of(journal.as_fd()).unwrap();
        let shown = recover(&path, &test_hooks.data, recorder).unwrap().epoch;
        assert_eq!(shown, committed - 1);
        let mut replay = recorder.trace().replay();
        let mut seen = 0;
        while replay.advance() {
            replay.crashes::<()>(&Plan::default(), |image| {
                rewrite(&path, image.get(object).unwrap(), false);
                assert_eq!(
                    recover(&path, &test_hooks.data, &KERNEL).unwrap().epoch,
                    shown,
                    "what was not shown came back"
                );
                seen += 1;
                ControlFlow::Continue(())
            });
        }
        assert!(seen > 50, "{seen}");
        true
    });
}

/// The process was killed, and so was the one that recovered its journal, between two writes over one page: the next
/// recovery in that boot took the page, half zeros and half of an earlier use, for damage.
#[test]
fn a_recovery_may_be_killed_as_well() {
    used_again(|test_hooks, image| {
        let path = test_hooks.dir.path("killed");
        rewrite(&path, image, true);
        let before = fs::read(&path).unwrap();
        let recorder = Recorder::new(Domain::PageCache);
        let journal = File::options().read(true).write(true).open(&path).unwrap();
        let object = recorder.object_of(journal.as_fd()).unwrap();
        let shown = recover(&path, &test_hooks.data, recorder).unwrap().epoch;
        let after = fs::read(&path).unwrap();
        let mut replay = recorder.trace().replay();
        while replay.step() {
            fs::write(&path, replay.killed().0.get(object).unwrap()).unwrap();
            assert_eq!(recover(&path, &test_hooks.data, &KERNEL).unwrap().epoch, shown);
        }
        // Until something of an earlier use had to be erased that is longer than a sector.
        let mut pages = before.chunks_exact(4096).zip(after.chunks_exact(4096)).skip(1);
        pages.any(|(before, after)| before[512..] != after[512..])
    });
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("FAMIO_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// The process dies within a write of the journal, at any page.
    #[test]
    fn a_dead_process(steps in prop::collection::vec(step(), 1..60), live in 0..900_000i64, small: bool) {
        let mut test_hooks = TestHooks::with(if small { SMALL } else { MIDDLE }, 1 << 30, true);
        test_hooks.medium.bytes_to_live.store(live, Ordering::Relaxed);
        run(&mut test_hooks, &steps);
        let copy = test_hooks.copy();
        recovers_to_last_or_next(&test_hooks, &copy, "killed");
    }

    /// The power fails at once, after the process has died, or during the recovery after a kill.
    #[test]
    fn a_power_cut(
        steps in prop::collection::vec(step(), 1..60),
        live in 0..900_000i64,
        seeds in prop::collection::vec(any::<u64>(), 4),
        recovery in 0..40_000i64,
        small: bool,
    ) {
        let mut test_hooks = TestHooks::with(if small { SMALL } else { MIDDLE }, 1 << 30, false);
        test_hooks.medium.bytes_to_live.store(live, Ordering::Relaxed);
        run(&mut test_hooks, &steps);
        let found = test_hooks.file();
        for seed in seeds {
            let path = test_hooks.dir.path("cut");
            rewrite(&path, power_cut(&test_hooks, seed), false);
            test_hooks.data.set_len(0).unwrap();
            test_hooks.data.write_all_at(&found, 0).unwrap();
            if seed.is_multiple_of(3) {
                cut_recovery(&test_hooks, &path, seed / 3, recovery);
            }
            recovers_to_last_or_next(&test_hooks, &path, "power cut");
        }
    }

    /// The file is partly ahead of the journal's tail, as a checkpoint leaves it.
    #[test]
    fn a_file_that_is_ahead(steps in prop::collection::vec(step(), 1..50), ahead in any::<u64>()) {
        let mut test_hooks = TestHooks::new();
        run(&mut test_hooks, &steps);
        let committed = test_hooks.log.committed();
        for epoch in test_hooks.checkpointed..=committed {
            // Granules of any later epoch may be in the file, below every cut since.
            let state = &test_hooks.states[epoch as usize];
            let low = test_hooks.states[test_hooks.checkpointed as usize..].iter().map(Vec::len).min().unwrap_or(0).min(test_hooks.low);
            for granule in (0..low / 64).filter(|g| (ahead >> (g % 61)) & 1 == epoch & 1) {
                test_hooks.data.write_all_at(&state[granule * 64..granule * 64 + 64], granule as u64 * 64).unwrap();
            }
        }
        if ahead.is_multiple_of(2) && committed > 0 {
            let end = contents(test_hooks.data.as_fd()).len();
            test_hooks.data.write_all_at(&vec![b'?'; (ahead % 50_000) as usize], end as u64).unwrap();
        }
        let copy = test_hooks.copy();
        recovers_to_last_or_next(&test_hooks, &copy, "ahead");
        let file = File::open(&copy).unwrap();
        let (header, _) = Header::load(file.as_fd()).unwrap();
        prop_assert_eq!(scan_as(file.as_fd(), &header, true).unwrap().committed, committed);
    }
}
