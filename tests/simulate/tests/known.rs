//! Histories that found something, each kept as it was found.

use famio_simulate::case::Case;
use famio_simulate::explore::{Effort, Explorer};

/// The history has no illegal state, with this call failing in it if one is named (`Fdatasync:15`).
fn is_right(history: &str, fail: Option<&str>) {
    let case: Case = history.parse().unwrap();
    let fail = fail.map(|fail| famio_simulate::failure::parse(fail).unwrap());
    let mut explorer = Explorer::new(Effort::QUICK);
    if let Err(failure) = explorer.explore(&case, fail) {
        panic!("{failure}");
    }
    assert!(explorer.counts.states > 5, "{}", explorer.counts);
}

/// A process died while its journal was being created, or closed: what its successor read of the header, and that the mark
/// was gone, was in a cache only. The power cut after that found a header without a valid copy, or a mark whose journal the
/// successor had removed.
#[test]
fn a_successor_makes_durable_what_it_read_before_it_acts() {
    for history in ["pmem/u: w100+60 s w4000+200 s c", "pmem/r: w0+8 c", "page-cache/u: w100+60 s w4000+200 s c"] {
        is_right(history, None);
    }
}

/// The last write of the header failed, when a journal was created: mark and journal were removed, and a power cut brought
/// back the journal, which said *active*, without the mark.
#[test]
fn a_creation_that_failed_leaves_no_active_journal_without_a_mark() {
    for nth in 1..=5 {
        is_right("pmem/u: w8838+7 s", Some(&format!("Pwritev:{nth}")));
        is_right("page-cache/u: w8838+7 s", Some(&format!("Pwritev:{nth}")));
    }
}

/// A store of the header failed at its second copy, and the next one began with the first: both could be torn.
#[test]
fn a_header_is_stored_again_from_the_copy_that_failed() {
    for nth in 10..=18 {
        is_right("pmem/a: w5583+7 c w6684+8", Some(&format!("Fdatasync:{nth}")));
    }
}

/// The flush at the end of a close failed, after the file had been cut; the process was killed. Its successor found the size
/// right, so that nothing of its own was flushed; the kernel had forgotten the cut, and a power cut took it back.
#[test]
fn a_recovery_sets_the_size_that_it_finds() {
    is_right("pmem/a: w8320+5 w306+24 c", Some("Fdatasync:7"));
}

/// The flush after a cut failed, and the process was killed. Its successor found the file cut, and made it longer: of the old
/// bytes behind the cut, which the kernel had cleared in memory only, a power cut showed some again.
#[test]
fn a_recovery_clears_what_a_cut_had_left() {
    is_right("page-cache/u+pool: t4677 s t11761 s w128+6 g", Some("Fdatasync:16"));
}
