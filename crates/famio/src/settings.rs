//! The user's settings: where journals lie, what a SYNC must survive, the policy, and so on.

mod size;

use std::path::PathBuf;

#[doc(hidden)]
pub use size::{check_journal_limit, parse_size};

/// What a SYNC must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Power loss, if the file system can survive it (tmpfs cannot). The default.
    #[default]
    Power,
    /// The end of the process, however it ends, but not the end of the boot. Nothing is flushed.
    Process,
}

/// What happens to the writes since the last SYNC of a process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnKill {
    /// They are rolled back: the file is as at the last SYNC. The default.
    #[default]
    Rollback,
    /// They are kept: the file is as after the last complete call, as a plain file would be. A crash of the machine
    /// still rolls them back.
    Keep,
}

/// Where the bytes of a write go, in a journal in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PolicyChoice {
    /// Chosen per file at each SYNC, from what the epoch did (Libnvmmio, section 3.3). The default.
    #[default]
    Auto,
    /// Pre-images go to the log, data to the file in place.
    Undo,
    /// Data goes to the log, and is copied to the file later.
    Redo,
    /// Data goes to log or file, whichever does not hold the committed copy (LAWN).
    Alternate,
}

/// Where a program's locks on a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LocksChoice {
    /// In memory while no other process can have the file open (under the write lease), otherwise in the kernel. The
    /// default.
    #[default]
    Auto,
    /// Always in the kernel.
    Kernel,
}

/// Which files have a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JournalChoice {
    /// Those that need one. A file that is new, only grows, or has a few bytes overwritten, has none: its committed
    /// size, and those bytes, are in its mark. The default.
    #[default]
    Auto,
    /// All, from their first change on.
    Always,
}

/// What the last close of a file does with changes that no SYNC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnClose {
    /// Commits them. The default.
    #[default]
    Commit,
    /// Leaves a new file that was never synced to the kernel, like a plain file: until its first SYNC, a crash or a
    /// kill may leave any part of it. All other files are committed.
    Leave,
}

/// Whether the library may close a file a moment later than the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeferClose {
    /// A file that the program closes and opens again and again.
    Auto,
    /// No file. The default.
    #[default]
    Never,
}

/// Whether a file on a disk has a tiered journal if its pool lies in memory that persists by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// Yes. The default.
    #[default]
    Auto,
    /// No: a pool on persistent memory is used like one on a disk.
    Off,
}

/// How much of a tiered journal serves as a write cache: percentages of its limit, or of an eighth of the memory that
/// the process may use (the machine's, or its cgroup's) if that is less. By default 30 and 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackRange {
    /// Above this, blocks are written back to the file,
    pub from: u8,
    /// down to this.
    pub to: u8,
}

impl Default for WriteBackRange {
    fn default() -> Self {
        Self { from: 30, to: 10 }
    }
}

impl core::str::FromStr for WriteBackRange {
    type Err = &'static str;

    /// Reads `from:to`, such as `30:10`.
    ///
    /// # Errors
    /// What is wrong, in words: `to` has to be less than `from`, and `from` at most 90.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match parts {
            Some((from, to)) if to < from && from <= 90 => Ok(Self { from, to }),
            _ => Err("two numbers as 30:10, the second the smaller one, and at most 90"),
        }
    }
}

/// What is atomic by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Atomicity {
    /// Everything written between two SYNCs. The default.
    #[default]
    Epoch,
    /// Each call that changes the file: on return it is durable, as a whole.
    Write,
}

/// Settings of one atomic file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder that holds journals, which must exist; `None`: `.famio/` beside the file.
    pub pool: Option<PathBuf>,
    /// The folder on tmpfs for memory shared between processes; `None`: `/dev/shm`. All processes that have a file
    /// open need the same folder, and a process has one for all of its files. An open fails with `EINVAL` if this is no
    /// absolute path in UTF-8, or if the process already uses another folder.
    pub shm: Option<PathBuf>,
    /// What a SYNC must survive.
    pub durability: Durability,
    /// Treat a plain mapping as persistent memory: write-backs and fences are executed, though they survive no more
    /// than the process does. For measurements and tests; reported on stderr. On a disk or persistent memory the first
    /// write fails with `EINVAL`, unless `durability` is [`Durability::Process`].
    pub emulated: bool,
    /// The policy, for journals in place.
    pub policy: PolicyChoice,
    /// The size to which a file's journal may grow, in bytes; by default 4 GiB. An epoch that needs more fails with
    /// `ENOSPC`.
    pub journal_limit: u64,
    /// The largest file, in bytes, that is copied to memory when it is mapped for writing. A larger file is mapped by
    /// private copy-on-write pages. `None`: a quarter of the memory that the process may use (the machine's, or its
    /// cgroup's).
    pub map_memory: Option<u64>,
    /// If a file cannot be protected, that is an error. Otherwise it is left to the kernel, with a notice on stderr.
    /// [`AtomicFile`](crate::AtomicFile) always takes this as true.
    pub require: bool,
    /// What happens to writes that no SYNC covers if their process is killed.
    pub on_kill: OnKill,
    /// Where the program's locks are kept.
    pub locks: LocksChoice,
    /// Whether a growing file has a journal, too.
    pub journal: JournalChoice,
    /// What a close does with a new file that was never synced.
    pub on_close: OnClose,
    /// Whether a close may be deferred.
    pub defer_close: DeferClose,
    /// Whether a pool on persistent memory forms a tier above files on a disk.
    pub tier: TierChoice,
    /// How much of the tier is a write cache.
    pub write_back: WriteBackRange,
    /// Whether each call that changes the file is committed by itself.
    pub atomicity: Atomicity,
    /// The application to which this process belongs, in a pool with a size: all processes with this name share its
    /// share. `None`: this process and those that it forks.
    pub application: Option<String>,
    /// The weight of the application's share, from 1 to 10000; by default 100.
    pub pool_weight: u32,
    /// The number of the file's group. A SYNC of a file commits all files of its group that the process has open,
    /// together. `None`: it belongs to none. An open fails with `EINVAL` if `on_kill` is [`OnKill::Keep`], and with
    /// `EBUSY` if the process has the file open with another group or none.
    pub group: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: None,
            shm: None,
            durability: Durability::Power,
            emulated: false,
            policy: PolicyChoice::Auto,
            journal_limit: 4 << 30,
            map_memory: None,
            require: false,
            on_kill: OnKill::Rollback,
            locks: LocksChoice::Auto,
            journal: JournalChoice::Auto,
            on_close: OnClose::Commit,
            defer_close: DeferClose::Never,
            tier: TierChoice::Auto,
            write_back: WriteBackRange::default(),
            atomicity: Atomicity::Epoch,
            application: None,
            pool_weight: 100,
            group: None,
        }
    }
}
