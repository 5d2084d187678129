//! Recovery after a crash: what the journal holds goes into the file, uncommitted changes are rolled back, and the
//! journal is removed.
//!
//! Recovery is idempotent and may crash anywhere: until the journal is marked *clean* it holds everything that
//! recovery needs, and a repetition gives the same bytes. Recovery changes no file but the one that the journal
//! names. A journal that it cannot read stays as it is, with its file.

mod check;
mod copies;
mod examine;
mod formats;
mod found_file;
mod open;
mod outsider;
mod owning;
mod same_identity;
mod search;
mod unfinished;

use crate::error::Error;
pub use crate::index::Owner;
use std::path::PathBuf;

pub use self::copies::backup::Backup;
pub(crate) use self::copies::backup::backup as backup_by;
pub use self::copies::restore::Restored;
pub(crate) use self::copies::restore::restore as restore_by;
pub(crate) use self::copies::view::{Step, is_immutable, steps};
pub(crate) use self::formats::growing::{end as end_growing, hash_of};
pub use self::search::forget::{Orphan, forget};
pub use self::search::in_use::{Growing, InUse, Session, Times, Totals, growing as growing_at, in_use};
#[doc(hidden)]
pub use self::search::in_use::{bounds_of_times, is_control_name};
#[doc(hidden)]
pub use self::search::leases::kernel_locks;
#[doc(hidden)]
pub use self::search::paths::hand_overs;
pub(crate) use self::search::paths::recover_path as recover_all;
pub use self::search::survey::{Found, survey};
pub use check::{Checked, Condition, Problem, check, check_journal};
pub(crate) use open::{
    Known, at_open, await_end_of_session, await_journal, await_others, commits_since_attach, has_ended,
    has_nothing_to_recover, in_session, is_in_session, is_ordinary, left_journal, look, writable,
};
pub(crate) use owning::owner_lock;

// A copy has what a session left to be kept, and recovery of what a user names may commit it by a session, so both lie
// in the layer of sessions.
pub use crate::file::recover_path;
pub use crate::file::{backup, restore};
// As this does what recovery does for files in use.
pub use crate::file::{Flush, Flushed, Waiting, flush_path};

/// What to do if file and journal contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Use {
    /// Stop with a message; keep both. The default.
    #[default]
    Refuse,
    /// Believe the journal: bring the file to its last commit, whatever was done to the file since.
    Journal,
    /// Believe the file: drop the journal and the mark. Data that only the journal has is lost. Where nothing contradicts,
    /// and the journal can be read, it is used as ever.
    File,
    /// As `File`, whatever the journal has: the file goes.
    Dropped,
}

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Report what would be done; change nothing.
    pub dry_run: bool,
    /// What to do with contradictions.
    pub on_conflict: Use,
    /// Number of threads for one journal; 0: by its size.
    pub threads: usize,
}

impl Options {
    /// Threads for a journal of epochs, which are applied in stripes of the file.
    fn threads_for_epochs(self) -> usize {
        crate::thread::sharing(if self.threads > 0 { self.threads } else { processors() })
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Receives the progress of a recovery, from any of its threads.
pub trait Progress: Sync {
    /// A journal with `bytes` bytes to move begins.
    fn begin(&self, bytes: u64);
    /// Another `bytes` bytes are done.
    fn advance(&self, bytes: u64);
    /// The journal is done.
    fn end(&self);
}

/// Ignores progress.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn end(&self) {}
}

/// The outcome for one file.
#[derive(Debug)]
pub enum Outcome {
    /// No journal, no mark: an ordinary file.
    NothingToDo,
    /// A journal or a mark without effect was removed.
    Clean,
    /// The file is as its last commit left it (in a dry run: would be).
    Recovered,
    /// The writes of a killed process since its last SYNC were kept (`on-kill = keep`), and are durable now.
    Kept,
    /// The journal was dropped ([`Use::File`]).
    Discarded,
    /// File and journal contradict each other; both are unchanged. The text names both and says what to do.
    Conflict(String),
    /// Another process has the file open as an atomic file.
    InUse(Option<Owner>),
    /// Recovery failed: both are unchanged, or it must be repeated.
    Failed(Error),
    /// A file or folder below the given path could not be examined, so it is unknown whether it needs recovery.
    Unexamined(Error),
}

/// What was done with one journal.
#[derive(Debug)]
pub struct Report {
    /// Where the journal is, or was; empty if none is known, and for a file that grew without a journal.
    pub journal: PathBuf,
    /// Its file, if found; or what could not be examined.
    pub file: Option<PathBuf>,
    /// How it went.
    pub outcome: Outcome,
    /// The epoch of the file; 0 if there was none.
    pub epoch: u64,
    /// Bytes copied between journal and file.
    pub bytes: u64,
    /// For a file that grew without a journal: the number of bytes beyond its last SYNC, which were cut off.
    pub cut: Option<u64>,
}

/// What a replay has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replayed {
    pub epoch: u64,
    pub bytes: u64,
}
