//! Power cuts at any store of random histories, on a model of persistent memory.

use super::test_hooks::TestHooks;
use crate::pmem::Domain;
use crate::pmem::record::{Plan, Recorder};
use core::ops::ControlFlow;
use proptest::prelude::*;
use std::os::fd::AsFd;

/// What a program does.
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
    Commit,
    /// Everything up to this many epochs before the last goes to the file.
    Checkpoint {
        behind: usize,
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
        4 => (0..20_000usize, 1..9000usize, 1..=255u8).prop_map(|(at, len, byte)| Step::Write { at, len, byte }),
        1 => (0..25_000usize).prop_map(|to| Step::Truncate { to }),
        5 => Just(Step::Commit),
        2 => (0..4usize).prop_map(|behind| Step::Checkpoint { behind }),
        1 => Just(Step::Shrink),
        2 => (0..100u64, 0..40_000u64).prop_map(|(to, reserved)| Step::GiveBack { to, reserved }),
    ]
}

/// In a mark: the file has everything up to the epoch. Without this flag: the epoch was committed.
const CHECKPOINTED: u64 = 1 << 32;

fn run(test_hooks: &mut TestHooks, recorder: &Recorder, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Write { at, len, byte } => test_hooks.write(*at, &vec![*byte; *len]),
            Step::Truncate { to } => test_hooks.truncate(*to),
            Step::Commit => {
                test_hooks.commit().unwrap();
                recorder.mark(test_hooks.log.committed());
            }
            Step::Checkpoint { behind } => {
                let epoch = (test_hooks.log.committed() as usize).saturating_sub(*behind);
                if epoch > test_hooks.checkpointed {
                    test_hooks.checkpointed = epoch;
                    recorder.mark(CHECKPOINTED | epoch as u64);
                    test_hooks.log.release(epoch as u64);
                }
            }
            Step::Shrink => test_hooks.log.shrink().unwrap(),
            Step::GiveBack { to, reserved } => {
                let length = test_hooks.log.len() / 100 * to;
                test_hooks.log.give_back(length, *reserved).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_leaves_the_last_epoch_or_the_one_on_its_way(
        steps in proptest::collection::vec(step(), 5..40),
        seed in 1..u64::MAX,
    ) {
        let recorder = Recorder::new(Domain::Pmem);
        let mut test_hooks = TestHooks::new(1 << 20, recorder);
        let journal = recorder.object_of(test_hooks.journal.as_fd()).unwrap();
        recorder.mark(1);
        run(&mut test_hooks, recorder, &steps);
        let mut replay = recorder.trace().replay();
        while replay.advance() {
            let (mut committed, mut checkpointed) = (0, 1);
            for &mark in replay.marks() {
                if mark & CHECKPOINTED != 0 { checkpointed = mark & !CHECKPOINTED } else { committed = mark }
            }
            if committed == 0 {
                continue; // it is being created
            }
            let plan = Plan { exhaustive: 16, deviations: 12, random: 8, seed };
            let (_, wrong) = replay.crashes(&plan, |image| {
                let bytes = image.get(journal).unwrap();
                match test_hooks.recovered(&bytes, checkpointed as usize) {
                    Err(e) => ControlFlow::Break(format!("epoch {committed}: {e}")),
                    Ok((epoch, _)) if epoch != committed && epoch != committed + 1 => {
                        ControlFlow::Break(format!("epoch {epoch} after {committed}"))
                    }
                    Ok((epoch, file)) if file != test_hooks.states[epoch as usize] => {
                        ControlFlow::Break(format!("epoch {epoch} is torn, {checkpointed} was checkpointed"))
                    }
                    Ok(_) => ControlFlow::Continue(()),
                }
            });
            prop_assert_eq!(wrong, None, "after {:?}", replay.describe(6));
        }
    }
}

/// The same with the fence between records and slot left out on purpose: the test must notice.
#[test]
fn a_slot_before_its_records_is_found() {
    static OUT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let recorder = Recorder::new(Domain::Pmem);
    let mut test_hooks = TestHooks::new(1 << 20, recorder);
    let journal = recorder.object_of(test_hooks.journal.as_fd()).unwrap();
    // The first fence of every commit.
    recorder.leave_out(Some(Box::leak(Box::new(|barrier| {
        barrier == crate::pmem::record::Barrier::Fence
            && OUT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2)
    }))));
    test_hooks.write(0, &[9; 5000]);
    test_hooks.commit().unwrap();
    let mut replay = recorder.trace().replay();
    let mut is_found = false;
    while replay.advance() {
        let plan = Plan::default();
        replay.crashes(&plan, |image| {
            let torn = match test_hooks.recovered(&image.get(journal).unwrap(), 1) {
                Ok((2, file)) => file != test_hooks.states[2],
                Ok(_) => false,
                Err(e) => e.to_string().contains("missing") || e.to_string().contains("nothing of"),
            };
            is_found |= torn;
            if torn { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    assert!(is_found);
}
