//! What a user chooses: where journals live, what a SYNC must survive, which policy.

use std::path::PathBuf;

/// What a SYNC must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Power loss, where the file system can give that (not on tmpfs). The default.
    #[default]
    Power,
    /// The end of the process, however it ends; not the end of the boot. Nothing is flushed.
    Process,
}

/// What becomes of what a process wrote since the last SYNC, if it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnKill {
    /// It is rolled back: the file is as at the last SYNC. The default.
    #[default]
    Rollback,
    /// It stays: the file is as at the last complete call, as a plain file would be. A crash of the machine still rolls it back.
    Keep,
}

/// Which home a write goes to; `Auto` chooses per file at SYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PolicyChoice {
    /// Chosen at each SYNC from what the epoch did (Libnvmmio, section 3.3).
    #[default]
    Auto,
    /// Pre-images to the log, data in place.
    Undo,
    /// Data to the log, copied to the file later.
    Redo,
    /// Data to whichever of log and file does not hold the committed copy (LAWN).
    Alternate,
}

/// Where a program's locks on a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LocksChoice {
    /// In memory while nobody else can have the file open (under the write lease), else in the kernel. The default.
    #[default]
    Auto,
    /// Always in the kernel.
    Kernel,
}

/// Which files have a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JournalChoice {
    /// Those that need one. A file that is new, or only grows, does without: its committed size is in its mark. The default.
    #[default]
    Auto,
    /// All, from their first change on.
    Always,
}

/// What the last close of a file does with what no SYNC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnClose {
    /// It commits it. The default.
    #[default]
    Commit,
    /// A new file that was never synced is left to the kernel, as a plain one is: until its first SYNC a crash or a kill may leave
    /// any part of it. All other files are committed.
    Leave,
}

/// Whether a file on a disk has a tiered journal, where its pool lies in memory that persists by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// It has. The default.
    #[default]
    Auto,
    /// It never has: a pool on persistent memory is used as one on a disk.
    Off,
}

/// How much of a tiered journal is used as a write cache, in parts of a hundred of its limit, or of an eighth of the machine's memory
/// where that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackRange {
    /// With more than this, blocks are written back to the file.
    pub from: u8,
    /// Down to this.
    pub to: u8,
}

impl Default for WriteBackRange {
    fn default() -> Self {
        Self { from: 30, to: 10 }
    }
}

impl core::str::FromStr for WriteBackRange {
    type Err = &'static str;

    /// `30:10`.
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
    /// All that is written between two SYNCs. The default.
    #[default]
    Epoch,
    /// Each call that changes the file: it is durable, as a whole, when it returns.
    Write,
}

/// Settings of one atomic file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder that holds journals; `None`: `.famio/` beside the file.
    pub pool: Option<PathBuf>,
    /// The folder on tmpfs in which processes share memory; `None`: `/dev/shm`. All processes that have a file open need the same one, and
    /// a process has one for all of its files.
    pub shm: Option<PathBuf>,
    /// What a SYNC must survive.
    pub durability: Durability,
    /// Treat a plain mapping as persistent memory: write-backs and fences are executed, though they make nothing
    /// survive more than the process does. To measure and to test; said on stderr.
    pub emulated: bool,
    /// The policy, for journals in place.
    pub policy: PolicyChoice,
    /// How far a file's journal may grow, in bytes.
    pub journal_limit: u64,
    /// Bytes that a file may have to be copied to memory when it is mapped and may be stored to. The maps of a larger one are private
    /// copy-on-write pages over it. `None`: a quarter of the machine's memory.
    pub map_memory: Option<u64>,
    /// A file that can't be protected is an error. Otherwise it becomes the kernel's, with a notice on stderr.
    pub require: bool,
    /// What becomes of writes that no SYNC covers, if their process is killed.
    pub on_kill: OnKill,
    /// Where the program's locks are kept.
    pub locks: LocksChoice,
    /// Whether a file that only grows has a journal, too.
    pub journal: JournalChoice,
    /// What a close does with a new file that was never synced.
    pub on_close: OnClose,
    /// Whether a pool on persistent memory is a tier of its own before files on a disk.
    pub tier: TierChoice,
    /// How much of that is a write cache.
    pub write_back: WriteBackRange,
    /// Whether each call that changes the file is committed by itself.
    pub atomicity: Atomicity,
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
            tier: TierChoice::Auto,
            write_back: WriteBackRange::default(),
            atomicity: Atomicity::Epoch,
        }
    }
}
