//! After a crash: what the journal holds goes into the file, what was not committed is rolled back, and the journal ends.
//!
//! Recovery is idempotent and may crash anywhere: until the journal says *clean* it holds everything that recovery needs,
//! and running it again gives the same bytes. It touches nothing but the file that the journal names, and a journal that it
//! cannot read stays as it is, with its file.
// Cycle: forget, in_use, survey: reports of one folder each show some of what the others find

mod backup;
mod check;
mod copying;
mod destination;
mod examine;
mod find;
mod forget;
mod given;
mod growing;
mod in_place;
mod in_use;
mod joint;
mod leases;
mod open;
mod openers;
mod outsider;
mod paths;
mod records;
mod restore;
mod survey;
mod tiered;
mod unfinished;
mod view;
mod walk;
#[cfg(test)]
mod walk_tests;

use crate::error::Error;
pub use crate::index::Owner;
use std::path::PathBuf;

pub use backup::{Backup, backup};
pub use check::{Checked, Condition, Problem, check, check_journal};
pub use forget::{Orphan, forget};
pub(crate) use growing::{end as end_growing, hash_of};
pub use in_use::{Growing, InUse, Session, Times, Totals, growing as growing_at, in_use};
#[doc(hidden)]
pub use in_use::{bounds_of_times, is_control_name};
pub(crate) use open::{
    Known, at_open, claim, commits_since_attach, has_ended, in_session, is_in_session, is_ordinary, left_journal, look,
    writable,
};
#[doc(hidden)]
pub use paths::hand_overs;
pub(crate) use paths::recover_path as recover_all;
pub use restore::{Restored, restore};
pub use survey::{Found, survey};
pub(crate) use view::{Step, is_immutable, steps};

// Recovery of what a user names may commit by a session, so it lies in the layer of sessions.
pub use crate::file::recover_path;

/// What to do where file and journal contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Use {
    /// Stop with a message; keep both. The default.
    #[default]
    Refuse,
    /// The journal is right: bring the file to its last commit, whatever was done to the file since.
    Journal,
    /// The file is right as it is: drop the journal and the mark. What only the journal holds is lost.
    File,
}

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Look, and say what would be done; change nothing.
    pub dry_run: bool,
    /// What to do with contradictions.
    pub on_conflict: Use,
    /// Threads for one journal; 0: by its size.
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

/// Told how far a recovery is; from any of its threads.
pub trait Progress: Sync {
    /// A journal with so many bytes to move begins.
    fn begin(&self, bytes: u64);
    /// So many more bytes are done.
    fn advance(&self, bytes: u64);
    /// The journal is done.
    fn end(&self);
}

/// Tells nobody.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn end(&self) {}
}

/// How it went with one file.
#[derive(Debug)]
pub enum Outcome {
    /// No journal, no mark: an ordinary file.
    NothingToDo,
    /// A journal or a mark that held nothing was removed.
    Clean,
    /// The file is as its last commit left it. Or, in a dry run, would be.
    Recovered,
    /// What a killed process had written since its last SYNC stays (`on-kill = keep`), and is durable now.
    Kept,
    /// The journal was dropped, as [`Use::File`] says.
    Discarded,
    /// File and journal contradict each other; both are as they were. The text names both and says what to do.
    Conflict(String),
    /// Another process has the file open as an atomic file.
    InUse(Option<Owner>),
    /// It could not be done; both are as they were, or recovery is to be run again.
    Failed(Error),
    /// A file or folder below the one that was asked for could not be looked at: what there is to recover is not known.
    Unexamined(Error),
}

/// What was done with one journal.
#[derive(Debug)]
pub struct Report {
    /// Where the journal is, or was; empty where none is known, and of a file that grew without one.
    pub journal: PathBuf,
    /// Its file, where that was found; or what could not be examined.
    pub file: Option<PathBuf>,
    /// How it went.
    pub outcome: Outcome,
    /// The epoch that the file is at; 0 where there was none.
    pub epoch: u64,
    /// Bytes copied between journal and file.
    pub bytes: u64,
    /// Of a file that grew without a journal: bytes beyond its last SYNC, which were cut off.
    pub cut: Option<u64>,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replayed {
    pub epoch: u64,
    pub bytes: u64,
}
