//! Histories that have found defects, kept as they were found.

use famio_simulate::case::Case;
use famio_simulate::explorer::{Effort, Explorer};

/// The history has no illegal state, nor has any recovery in it that is crashed.
fn is_right_in_every_recovery(history: &str) {
    let mut explorer = Explorer::new(Effort { again: 1, kills: 1, ..Effort::GLANCE });
    if let Err(failure) = explorer.explore(&history.parse().unwrap(), None) {
        panic!("{failure}");
    }
    println!("{history}: {}", explorer.counts);
    assert!(explorer.counts.in_recovery > 5, "{}", explorer.counts);
}

/// A process died between two stores of an entry's granules, with the record of a transaction of several files
/// durable. The next process applied the record to the file, and was killed before the journal was marked *clean*:
/// the file then no longer had what the log had of those granules, so that the next recovery took the journal to be
/// damaged.
#[test]
fn a_recovery_that_has_applied_a_joint_commit_may_be_crashed() {
    for place in ["emulated/u", "emulated/r", "process/a", "pmem/r"] {
        is_right_in_every_recovery(&format!("{place}+pool: w0+6000 s j100+60"));
    }
    is_right_in_every_recovery("page-cache/u+pool: w0+6000 s j100+60");
}

/// The history has no illegal state, with this call failing in it if given (`Fdatasync:15`).
fn is_right(history: &str, fail: Option<&str>) {
    let case: Case = history.parse().unwrap();
    let fail = fail.map(|fail| famio_simulate::failure::parse(fail).unwrap());
    let mut explorer = Explorer::new(Effort::QUICK);
    if let Err(failure) = explorer.explore(&case, fail) {
        panic!("{failure}");
    }
    assert!(explorer.counts.states > 5, "{}", explorer.counts);
}

/// A process died while its journal was being created or closed: what the next process read of the header, and the
/// removal of the mark, were in a cache only. A power cut then left a header without a valid copy, or a mark whose
/// journal the next process had removed.
#[test]
fn a_successor_makes_durable_what_it_read_before_it_acts() {
    for history in ["pmem/u: w100+60 s w4000+200 s c", "pmem/r: w0+8 c", "page-cache/u: w100+60 s w4000+200 s c"] {
        is_right(history, None);
    }
}

/// The last write of the header failed while a journal was created: mark and journal were removed, and a power cut
/// brought back the journal, which said *active*, without the mark.
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

/// The flush at the end of a close failed after the file had been cut; then the process was killed. The next process
/// found the right size, and so flushed nothing; but the kernel had dropped the cut, and a power cut undid it.
#[test]
fn a_recovery_sets_the_size_that_it_finds() {
    is_right("pmem/a: w8320+5 w306+24 c", Some("Fdatasync:7"));
}

/// The flush after a cut failed, and the process was killed. The next process found the file cut, and extended it:
/// after a power cut, some old bytes beyond the cut, which the kernel had cleared only in memory, reappeared.
#[test]
fn a_recovery_clears_what_a_cut_had_left() {
    is_right("page-cache/u+pool: t4677 s t11761 s w128+6 g", Some("Fdatasync:16"));
}

/// Stores in a map of the file, by copies and through pointers, beside writes and changes of its size, on every
/// machine.
#[test]
fn stores_in_maps_are_of_their_epoch() {
    for history in [
        "pmem/u: m100+60 m4000+200 s",
        "pmem/r: m100+60 t3000 m2990+500 t5000 m2990+500 s",
        "pmem/a: w100+60 s m90+300 m90+3 s m0+8 w4+8",
        "eadr/u: m1000+4900 s c m50+9 m70+9 s",
        "page-cache/u: w100+60 s m90+300 m90+3 s m0+8 w4+8",
        "page-cache/u: 2:m100+60 w100+20 2:m4096+64 s m100+60 g s",
        "process/a: m1000+300 s c m50+9 m70+9 s o m0+64",
        "emulated/r: m100+60 t3000 m2990+500 t5000 m2990+500 s",
    ] {
        is_right(history, None);
    }
}

/// The journal was closed, as before a rename, while written data was in a hand-over image: nothing was committed.
#[test]
fn a_close_commits_what_travels() {
    for history in ["pmem/u: w100+60 h c", "page-cache/u: w100+60 s t3000 h c s", "process/r: a300 h c w100+60 h c"] {
        is_right(history, None);
    }
}

/// Open data is handed over and continues, through the recovery that is part of the hand-over; if its writer died, it
/// is rolled back, and committed data is not.
#[test]
fn what_is_open_goes_from_hand_to_hand() {
    for history in [
        "pmem/u: w100+60 h w200+10 s w120+9 h h w4000+200 k w100+8 s c",
        "pmem/a: w32+4200 s w100+60 h w64+64 s g w70+4 h t3000 h w2990+50 s",
        "pmem/r+unsynced+pool: w100+60 k w200+60 h s",
        "eadr/r: w100+60 s t20 h t7000 k a300 h s c",
        "page-cache/u: w32+4200 s w100+60 h w4000+200 s t3000 h g t5000 s o",
        "page-cache/u+unsynced: a300 k w100+60 s w90+10 k s",
        "process/u: w100+60 h s k w100+60 k o w4000+200 h",
        "emulated/a: w32+4200 s w100+60 k 2:w90+10 h 2:s",
    ] {
        is_right(history, None);
    }
}

/// A map with stores was dropped, and ownership handed over before a SYNC: the stores were lost.
#[test]
fn what_was_stored_in_a_map_that_has_gone_goes_along() {
    for history in [
        "pmem/u: mp100+60 u h s",
        "pmem/r: w32+4200 s mc3900+300 w100+60 u h w200+10 s",
        "pmem/a: mp5970+100 u h t7000 s",
        "page-cache/u: mp100+60 u h s",
        "page-cache/u: mc100+60 s mc64+300 u k w100+8 s",
        "process/r: mp4080+90 u h h s",
    ] {
        is_right(history, None);
    }
}

/// One of two maps was dropped, with a store that no SYNC had taken yet: the hand-over was reported, but did not
/// happen.
#[test]
fn a_hand_over_that_did_not_happen_is_not_reported() {
    for history in ["pmem/u: m0+63 s 2:m8+2896 k 2:s", "pmem/u: m0+63 w4096+64 s 2:m8+2896 h w500+60 k s"] {
        is_right(history, None);
    }
}

/// Each call in it fails once: data that cannot be handed over stays, and the session goes on.
#[test]
fn a_change_of_hands_may_fail() {
    for history in ["pmem/a: w32+4200 s w100+60 h w200+10 s", "page-cache/u: w32+4200 s t3000 w100+60 h w200+10 s"] {
        let mut explorer = Explorer::new(Effort::QUICK);
        let case = history.parse().unwrap();
        famio_simulate::failure::each_call(&mut explorer, &case, 40).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(explorer.counts.failed_calls > 100, "{}", explorer.counts);
    }
}

/// Data that the open epoch had overwritten was only in the journal. The pass of a write cache that saw it kept the
/// tail back until that epoch's commit; the next pass did not see it any more, and did not wait: the committed bytes
/// were lost.
#[test]
fn what_is_overwritten_keeps_the_tail_back_for_later_passes_too() {
    for history in [
        "tiered/u+pool: w0+4096 s w4096+30000 s w40000+64 s w0+64 g g",
        "tiered/u+unsynced+pool: w0+4096 s w4096+30000 s w40000+64 s w64+64 g s g s w40000+64 s",
    ] {
        is_right(history, None);
    }
}

/// The open epoch has overwritten, or cut off, what lies in the journal alone, and needs all of that: it goes to the
/// file from the journal, with the cuts of committed epochs that the file lacks. An epoch that would have fitted had no
/// room.
#[test]
fn an_epoch_that_needs_the_whole_journal_keeps_what_is_committed() {
    for history in [
        "tiered/u+tiny: w0+24000 s w0+48000 s w100+60 s",
        "tiered/u+tiny: w0+24000 s t5000 w8000+40000 s g",
        "tiered/u+tiny: w0+24000 s t5000 s w4000+9000 s t3000 w8000+40000 s g s",
        "tiered/u+tiny: w0+24000 s t9000 s t20000 s w0+48000 g s",
    ] {
        is_right(history, None);
    }
}

/// The first flush of a record of several files failed, and the process was killed. The kernel showed the record whole,
/// so that the next process wrote the same bytes once more and applied them to the file. They did not set the record's
/// size, which a power cut took back: the file had a part of a record that was gone. It was found once in a million
/// states, since a kill before that flush shows the same as one after it, and only one of the two was examined.
#[test]
fn a_record_of_which_a_flush_has_failed_is_secured_with_its_size() {
    let case: Case = "eadr/r+pool+group: s w1105+138 z w12288+4632 s r gf".parse().unwrap();
    let fail = famio_simulate::failure::parse("Fdatasync:4").unwrap();
    let mut explorer = Explorer::new(Effort::THOROUGH);
    if let Err(failure) = explorer.explore(&case, Some(fail)) {
        panic!("{failure}");
    }
    assert!(explorer.counts.killed > 10, "{}", explorer.counts);
}
