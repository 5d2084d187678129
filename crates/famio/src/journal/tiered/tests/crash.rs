//! Power cuts at any store of random histories, on a model of persistent memory.

use super::lab::Lab;
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
    Settle {
        behind: usize,
    },
    Shrink,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_000usize, 1..9000usize, 1..=255u8).prop_map(|(at, len, byte)| Step::Write { at, len, byte }),
        1 => (0..25_000usize).prop_map(|to| Step::Truncate { to }),
        5 => Just(Step::Commit),
        2 => (0..4usize).prop_map(|behind| Step::Settle { behind }),
        1 => Just(Step::Shrink),
    ]
}

/// In a mark: the file has everything up to the epoch. Without this flag: the epoch was committed.
const SETTLED: u64 = 1 << 32;

fn run(lab: &mut Lab, recorder: &Recorder, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Write { at, len, byte } => lab.write(*at, &vec![*byte; *len]),
            Step::Truncate { to } => lab.truncate(*to),
            Step::Commit => {
                lab.commit().unwrap();
                recorder.mark(lab.log.committed());
            }
            Step::Settle { behind } => {
                let epoch = (lab.log.committed() as usize).saturating_sub(*behind);
                if epoch > lab.settled {
                    lab.settled = epoch;
                    recorder.mark(SETTLED | epoch as u64);
                    lab.log.release(epoch as u64);
                }
            }
            Step::Shrink => lab.log.shrink().unwrap(),
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
        let mut lab = Lab::new(1 << 20, recorder);
        let journal = recorder.object_of(lab.journal.as_fd()).unwrap();
        recorder.mark(1);
        run(&mut lab, recorder, &steps);
        let mut replay = recorder.trace().replay();
        while replay.advance() {
            let (mut committed, mut settled) = (0, 1);
            for &mark in replay.marks() {
                if mark & SETTLED != 0 { settled = mark & !SETTLED } else { committed = mark }
            }
            if committed == 0 {
                continue; // it is being created
            }
            let plan = Plan { exhaustive: 16, deviations: 12, random: 8, seed };
            let (_, wrong) = replay.crashes(&plan, |image| {
                let bytes = image.get(journal).unwrap();
                match lab.recovered(&bytes, settled as usize) {
                    Err(e) => ControlFlow::Break(format!("epoch {committed}: {e}")),
                    Ok((epoch, _)) if epoch != committed && epoch != committed + 1 => {
                        ControlFlow::Break(format!("epoch {epoch} after {committed}"))
                    }
                    Ok((epoch, file)) if file != lab.states[epoch as usize] => {
                        ControlFlow::Break(format!("epoch {epoch} is torn, {settled} was settled"))
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
    let mut lab = Lab::new(1 << 20, recorder);
    let journal = recorder.object_of(lab.journal.as_fd()).unwrap();
    // The first fence of every commit.
    recorder.leave_out(Some(Box::leak(Box::new(|barrier| {
        barrier == crate::pmem::record::Barrier::Fence
            && OUT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2)
    }))));
    lab.write(0, &[9; 5000]);
    lab.commit().unwrap();
    let mut replay = recorder.trace().replay();
    let mut is_found = false;
    while replay.advance() {
        let plan = Plan::default();
        replay.crashes(&plan, |image| {
            let torn = match lab.recovered(&image.get(journal).unwrap(), 1) {
                Ok((2, file)) => file != lab.states[2],
                Ok(_) => false,
                Err(e) => e.to_string().contains("missing") || e.to_string().contains("nothing of"),
            };
            is_found |= torn;
            if torn { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    assert!(is_found);
}
