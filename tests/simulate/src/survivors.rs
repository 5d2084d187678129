//! Mutants that no history detects, each with the reason.

/// Machine (or any), parts of the mutant's name in their order with `*` between them, reason.
const LISTED: [(Option<&str>, &str, &str); 20] = [
    (
        None,
        " changing <",
        "for readers, not for crashes: a store around the cache must not be seen before the cell says that it changes",
    ),
    (Some("tiered"), "Fsync: journal/live/begin.rs* persist", OWNER_AND_MODE),
    (None, "Fsync: file/state/joint_records.rs* create", OWNER_AND_MODE),
    (Some("page-cache"), "ZerosWhenGrown", OLD_BYTES),
    (Some("tiered"), "ZerosWhenGrown", OLD_BYTES),
    (
        Some("page-cache"),
        "OnlyCommittedIsCheckpointed",
        "for who reads the file meanwhile: after a crash the journal has what is overwritten (OverwrittenWaits), and puts it back",
    ),
    (
        Some("page-cache"),
        "PassFlushesBeforeTail",
        "for a commit by another thread during the flush: in one thread no record is durable between the two",
    ),
    (Some("page-cache"), "NeededSinceTheOldest", "for a write cache, which alone asks since when a block is needed"),
    (
        Some("tiered"),
        "TieredRecordIsOfGeneration",
        "a segment is used again when the tail is behind its epochs, and records of such epochs do not count",
    ),
    (None, "RecordIsOfGeneration", "the hash of the record before tells a record of an earlier use, too"),
    (None, "RecordFollowsHash", "no crash leaves a record of the right generation and place behind another one"),
    (
        Some("page-cache"),
        "Fdatasync: journal/records/replay.rs* checkpoint_journal",
        "what_is_erased_does_not_come_back finds it; here an epoch may come back whose SYNC was under way, until a recovery has ended",
    ),
    (Some("ordered"), "Fsync: journal/mark.rs* persist < recovery/open.rs* end", IN_ORDER),
    (
        Some("ordered"),
        "Fsync: journal/mark.rs* persist < journal/live/* mark_as_closing",
        "for what other programs write after a close",
    ),
    (Some("ordered"), "Fsync: journal/mark.rs* persist < journal/live/* unmark_abandoned", IN_ORDER),
    (Some("ordered"), "Fsync: file/session/attach.rs* attach", IN_ORDER),
    (Some("ordered"), "Fsync: journal/pools/pool.rs* sync_dir < journal/joint/folder.rs", IN_ORDER),
    (Some("ordered"), "MarkGoesBeforeJournal", IN_ORDER),
    (None, "MissingNoteIsNoEnd", "a_note_that_is_gone_does_not_end_the_chain finds it; no history that was tried does"),
    (None, "MarkHasCheck", "each field of a mark is compared with the file or the header; mark.rs tests its check"),
];

const IN_ORDER: &str = "names and marks arrive in order: one that is not durable is followed by no later one";
const OWNER_AND_MODE: &str = "for the owner and mode of the journal or record, which the recorder does not keep";
const OLD_BYTES: &str =
    "for journals in place: a file of epochs is cut before any checkpoint above, and its old bytes are not seen";

/// Why a mutant may survive.
pub fn reason(machine: &str, name: &str) -> Option<&'static str> {
    let listed = LISTED
        .iter()
        .find(|(only, parts, _)| only.is_none_or(|only| covers(only, machine)) && has_in_order(name, parts));
    listed.map(|(_, _, reason)| *reason)
}

/// The protocol of a disk is the same with and without order, but for its beginning and end.
fn covers(listed: &str, machine: &str) -> bool {
    listed == machine || (listed, machine) == ("page-cache", "ordered")
}

fn has_in_order(name: &str, parts: &str) -> bool {
    let rest = parts.split('*').try_fold(name, |rest, part| rest.split_once(part).map(|(_, rest)| rest));
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_parts_of_a_name_in_their_order() {
        let create = "Fsync: file/state/joint_records.rs:154  < file/state/joint_records.rs:151 create";
        let persist = "Fsync: journal/live/begin.rs:171  < sys/internal/mod.rs:103 persist";
        assert_eq!(reason("pmem", create), Some(OWNER_AND_MODE));
        assert_eq!([reason("tiered", persist), reason("pmem", persist)], [Some(OWNER_AND_MODE), None]);
        assert!(has_in_order("abc", "a*c") && has_in_order("abc", "bc") && !has_in_order("abc", "c*a"));
    }
}
