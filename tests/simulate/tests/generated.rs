//! Histories from the property-test generator, which shortens those that fail.

use famio::PolicyChoice::{self, Alternate, Redo, Undo};
use famio_simulate::case::{Case, Found};
use famio_simulate::explorer::{Effort, Explorer};
use famio_simulate::failure;
use famio_simulate::machine::Machine;
use famio_simulate::workload::{By, Op, Step};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

fn policy() -> impl Strategy<Value = PolicyChoice> {
    select(vec![Undo, Redo, Alternate])
}

/// Boundaries of granules, lines and blocks, and other places.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..12_000, (0u64..4).prop_map(|block| block * 4096), (0u64..128).prop_map(|line| line * 64)]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1u64..300, 2 => Just(64u64), 1 => Just(4096u64), 1 => 1000u64..9000]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        9 => (place(), length()).prop_map(|(at, len)| Op::Write { at, len }),
        1 => (1u64..2000).prop_map(|len| Op::Append { len }),
        3 => (place(), length(), select(vec![By::Turns, By::Copy, By::Pointer]))
            .prop_map(|(at, len, by)| Op::Map { at, len, by }),
        1 => Just(Op::Unmap),
        3 => (place(), length(), any::<bool>())
            .prop_map(|(at, len, syncs)| Op::Transaction { at, len: len.min(3000), syncs }),
        1 => Just(Op::Rollback),
        2 => (0u64..16_000).prop_map(Op::Size),
        5 => Just(Op::Sync),
        1 => Just(Op::Checkpoint),
        1 => policy().prop_map(Op::Policy),
        1 => Just(Op::Close),
        1 => Just(Op::Reopen),
        2 => Just(Op::HandOver),
        1 => Just(Op::Die),
        1 => (0u64..4000, 1u64..900, 4900u64..8000, 1u64..900)
            .prop_map(|(at, len, other, its)| Op::Both { first: (at, len), second: (other, its) }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (any::<bool>(), op())
        .prop_map(|(other, op)| Step { other: other && !matches!(op, Op::Reopen | Op::Both { .. }), op })
}

fn case() -> impl Strategy<Value = Case> {
    let found = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let found = found.prop_map(|(unsynced, pool)| Found { unsynced, pool, ..Found::default() });
    (select(Machine::ALL.to_vec()), policy(), found, prop::collection::vec(step(), 1..20))
        .prop_map(|(machine, policy, found, steps)| Case { machine, policy, found, steps })
}

/// This many new histories (`FAMIO_HISTORIES`); by default always the same ones, so that a failure is due to a
/// change.
fn config() -> ProptestConfig {
    let asked = std::env::var("FAMIO_HISTORIES").ok().and_then(|count| count.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(20_261_125) };
    ProptestConfig { cases: asked.unwrap_or(40), max_shrink_iters: 200, rng_seed, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_crash_is_legal(case in case()) {
        let mut explorer = Explorer::new(Effort::QUICK);
        let explored = explorer.explore(&case, None);
        prop_assert!(explored.is_ok(), "{}", explored.unwrap_err());
    }

    #[test]
    fn every_crash_is_legal_when_a_call_fails(case in case()) {
        let mut explorer = Explorer::new(Effort::QUICK);
        let explored = failure::each_call(&mut explorer, &case, 1);
        prop_assert!(explored.is_ok(), "{}", explored.unwrap_err());
    }
}
