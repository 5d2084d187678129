//! Mutants that no history detects, each with the reason.

/// Machine (or any), part of the mutant's name, reason.
const LISTED: [(Option<&str>, &str, &str); 8] = [
    (
        None,
        " changing <",
        "for readers, not for crashes: a store around the cache must not be seen before the cell says that it changes",
    ),
    (Some("page-cache"), " activate <", "for the journal's owner and mode, which the recorder does not keep"),
    (
        Some("page-cache"),
        "ZerosWhenGrown",
        "for journals in place: a file of records is cut before any checkpoint above, and its old bytes are not seen",
    ),
    (
        None,
        "OnlyCommittedIsSettled",
        "for who reads the file meanwhile: after a crash the journal has what is overwritten (OverwrittenWaits), and puts it back",
    ),
    (None, "RecordIsOfGeneration", "the hash of the record before tells a record of an earlier use, too"),
    (None, "RecordFollowsHash", "no crash leaves a record of the right generation and place behind another one"),
    (None, "MissingNoteIsNoEnd", "a_note_that_is_gone_does_not_end_the_chain finds it; no history that was tried does"),
    (None, "MarkHasCheck", "each field of a mark is compared with the file or the header; mark.rs tests its check"),
];

/// Why a mutant may survive.
pub fn reason(machine: &str, name: &str) -> Option<&'static str> {
    let listed = LISTED.iter().find(|(only, part, _)| only.is_none_or(|only| only == machine) && name.contains(part));
    listed.map(|(_, _, reason)| *reason)
}
