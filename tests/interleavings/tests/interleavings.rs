//! Bounded runs, with fresh seeds each time; a failure prints the schedule that reproduces it.
//! `FAMIO_INTERLEAVINGS=20` runs longer.

use famio_interleavings::scenario::{self, run};
use famio_interleavings::sync::set_membarrier;

#[test]
fn threads_agree_on_cells() {
    run(400, scenario::same_cells);
}

#[test]
fn a_reader_sees_no_mix() {
    run(3000, scenario::optimistic_reads);
}

#[test]
fn locks_exclude_and_wake() {
    run(3000, scenario::mutual_exclusion);
}

#[test]
fn entries_are_in_one_hand() {
    run(2000, scenario::free_entries);
}

#[test]
fn nobody_is_inside_a_closed_gate() {
    run(4000, scenario::together);
}

#[test]
fn a_pair_loses_nothing_and_is_committed_as_a_whole() {
    run(4000, scenario::two_change_at_once);
}

#[test]
fn who_has_the_file_alone_is_alone() {
    run(6000, scenario::one_alone);
}

#[test]
fn who_has_it_alone_needs_no_mutex() {
    run(6000, scenario::biased_mutex);
}

#[test]
fn who_reads_what_another_wrote_alone_sees_no_mix() {
    run(4000, scenario::read_alone);
}

#[test]
fn who_reads_in_a_long_call_sees_no_mix() {
    run(20_000, scenario::read_in_a_long_call);
}

#[test]
fn who_reads_along_from_another_process_sees_no_mix() {
    run(20_000, scenario::read_along);
    let without = || std::panic::catch_unwind(|| run(20_000, scenario::read_along_without_a_look)).is_err();
    assert!((0..10).any(|_| without()), "the look between sequence and bytes is not needed");
}

#[test]
fn deferred_writes_are_seen_and_in_order() {
    run(20_000, scenario::deferred_writes);
}

#[test]
fn checkpoints_move_under_writers_and_readers() {
    run(3000, scenario::checkpointing);
}

#[test]
fn what_is_dirty_is_named_by_a_word() {
    run(3000, scenario::pending_words);
}

/// The model detects what it must: without the barrier, the owner's plain store is not seen in time.
#[cfg(target_arch = "x86_64")]
#[test]
fn without_membarrier_two_are_alone() {
    set_membarrier(false);
    // Schedules are random.
    let is_found = |scenario: fn()| (0..10).any(|_| std::panic::catch_unwind(|| run(6000, scenario)).is_err());
    let found = [scenario::one_alone, scenario::read_alone, scenario::biased_mutex].map(is_found);
    set_membarrier(true);
    assert_eq!(found, [true; 3], "writers, readers, a biased mutex");
}
