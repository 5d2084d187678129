//! The rules and checks of the protocol that `make mutants` removes one at a time; the crash simulator must detect
//! each removal. In any other build they always hold, and this module compiles to nothing.

macro_rules! rules {
    ($($name:ident),* $(,)?) => {
        /// A rule, or a check.
        #[doc(hidden)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum Rule { $($name),* }

        impl Rule {
            /// All of them.
            pub const ALL: &[Rule] = &[$(Rule::$name),*];
        }
    };
}

rules! {
    // Checks of data that is read.
    SlotHasCheck,
    EntryHasCheck,
    EpochWordHasCheck,
    GranulesHaveMirror,
    CountOfSegmentsHasCheck,
    HeaderHasCheck,
    MarkHasCheck,
    RecordHasHash,
    PagesHaveChecks,
    SegmentOfRecordsHasHash,
    RecordFollowsHash,
    TieredRecordHasCheck,
    TieredListHasHash,
    TieredRecordIsOfGeneration,
    RecordIsOfGeneration,
    MirrorCountsBelowSize,
    // Order of stores in a journal in place.
    GranulesBeforeEpochWord,
    OldVersionFirstInvalid,
    OwnerBeforeCheck,
    PreImageBeforeBit,
    BitBeforeData,
    CopyBeforeBitGoes,
    CopyBeforeEntryIsFree,
    DataBeforeSlot,
    SegmentBeforeCount,
    CountBeforeCut,
    ZerosWhenGrown,
    EntriesAreKept,
    // Creation and end.
    SlotBeforeActive,
    JournalBeforeMark,
    RecordsBeforeMark,
    MarkChangesWithRecords,
    MarkBeforeActive,
    FileBeforeClean,
    CleanBeforeMarkGoes,
    MarkGoesBeforeJournal,
    ClosingIsPendingInItsBoot,
    RecoveryTakesClosingBack,
    HeaderGoesOnWithWeaker,
    HeaderFlushesWhatItRead,
    // Journals of records.
    ZerosBeforeCount,
    CountOfRecordsBeforeCut,
    OnlyCommittedIsCheckpointed,
    CheckpointWaitsForCut,
    OverwrittenWaits,
    OverwrittenStays,
    ReuseAfterDurableTail,
    TailLiesElsewhere,
    MissingNoteIsNoEnd,
    JournalBeforeFile,
    LastEpochIsWrittenAgain,
    WhatDidNotHappenIsErased,
    // Tiered journals.
    TieredSegmentBeforeCount,
    TieredCountBeforeCut,
    TieredDataBeforeSlot,
    TieredTailBeforeReuse,
    TieredReuseAfterTail,
    TieredSlotIsWrittenAgain,
    TieredJournalBeforeFile,
    EarlyIsOverwritten,
    // Of a write cache's passes.
    PassCutsFirst,
    CutTakesAFlush,
    PassFlushesBeforeTail,
    OverwrittenWholeWaits,
    NeededSinceTheOldest,
    LoggedAgainWhole,
    LoggedAgainBeforeTail,
    LoggedAgainToTheLast,
    LoggedAgainMoves,
    ForcedCutsFirst,
    ForcedHeedsCuts,
    ForcedKeepsTheEnd,
    ForcedMoves,
    ForcedFlushesBeforeTail,
    // Commits of several files.
    RecordBeforeFiles,
    GroupHasRecord,
    // Maps.
    StoresBeforeCommit,
    CopiesAreNoted,
    LastStoresGoAlong,
    MapsAreFilledAnew,
    // Failures.
    FailedFlushIsForGood,
    RecordSizeIsSetAgain,
}

impl Rule {
    /// Whether it is a check of data that is read.
    pub fn is_check(self) -> bool {
        self <= Rule::RecordIsOfGeneration
    }

    /// Whether it matters only after a failed call.
    pub fn is_of_failures(self) -> bool {
        matches!(self, Rule::LastEpochIsWrittenAgain | Rule::FailedFlushIsForGood | Rule::RecordSizeIsSetAgain)
    }
}

/// Whether a rule holds: always, except in the build of `make mutants`.
#[cfg(not(famio_mutants))]
#[inline(always)]
pub(crate) const fn holds(_rule: Rule) -> bool {
    true
}

/// Runs two steps: in this order if the rule holds.
#[inline(always)]
pub(crate) fn in_order<E>(
    rule: Rule,
    first: impl FnOnce() -> Result<(), E>,
    second: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    if holds(rule) {
        first()?;
        second()
    } else {
        second()?;
        first()
    }
}

#[cfg(famio_mutants)]
pub use asked::ask;
#[cfg(famio_mutants)]
pub(crate) use asked::holds;

#[cfg(famio_mutants)]
mod asked {
    use super::Rule;
    use std::sync::OnceLock;

    static ASKED: OnceLock<fn(Rule) -> bool> = OnceLock::new();

    /// Sets the function that decides whether a rule holds.
    pub fn ask(who: fn(Rule) -> bool) {
        let _ = ASKED.set(who);
    }

    pub(crate) fn holds(rule: Rule) -> bool {
        ASKED.get().is_none_or(|who| who(rule))
    }
}
