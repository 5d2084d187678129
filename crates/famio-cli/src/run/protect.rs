//! What is protected and how: options.

use crate::settings::{
    AsyncIoName, ByGlob, DeferCloseName, JournalName, LocksName, LogLevelName, OnCloseName, Options, PolicyName, Size,
    Weight, WriteBack,
};
use famio::{Atomicity, OnKill};
use std::ffi::OsString;

/// What is protected and how: the options of every command that runs a program.
#[derive(clap::Args)]
pub struct Protect {
    /// Files to protect; may be repeated: a name, which counts in every folder, or a path from the current folder on
    /// (./app.db: only here); with * ? [..] {a,b} and, for any number of folders, **. A folder means everything below
    /// it, ~ the home folder; a backslash quotes the next character
    #[arg(long, value_name = "GLOB")]
    pub atomic: Vec<OsString>,
    #[command(flatten)]
    pub options: Options,
    /// Where a write goes, for files with a journal in place [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    pub policy: Option<PolicyName>,
    /// Where the program's locks on a file (fcntl, flock) are kept: auto: in memory while no other process can have
    /// the file open, else in the kernel; kernel: always in the kernel [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|kernel")]
    pub locks: Option<LocksName>,
    /// Which files have a journal: auto: files that need one, not those that are new, only grow, or have a few bytes
    /// overwritten; always: all that are changed [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|always")]
    pub journal: Option<JournalName>,
    /// What the last close of a file does with writes that no SYNC covers: commit: make them durable; leave: leave a
    /// new file that was never synced to the kernel, as a plain close does; it is atomic from its first SYNC on
    /// [default: commit]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "commit|leave")]
    pub on_close: Option<OnCloseName>,
    /// When a file that the program closes and opens again and again is closed: never: at once; auto: up to half a second
    /// later, so that it is still there at the next open [default: never]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "never|auto")]
    pub defer_close: Option<DeferCloseName>,
    /// Largest size of the journal of one file, at least 1MiB, for example 512MiB [default: 4GiB]
    #[arg(long, value_name = "SIZE")]
    pub journal_limit: Option<Size>,
    /// Part of the journal of a tiered file (on a disk, with a pool on persistent memory) that is a write cache: the
    /// percentage from which it is written back, and down to which [default: 30:10]
    #[arg(long, value_name = "FROM:TO")]
    pub write_back: Option<WriteBack>,
    /// The application that the run belongs to, in a pool with a size (famio pool): all runs and containers with this
    /// name share one share of it [default: each run is one by itself]
    #[arg(long, value_name = "NAME")]
    pub application: Option<String>,
    /// The weight of the application's share of such a pool, from 1 to 10000 [default: 100]
    #[arg(long, value_name = "N")]
    pub pool_weight: Option<Weight>,
    /// Largest size of a file that is copied to memory when it is mapped, for example 1GiB. Maps of a larger file take
    /// memory only for pages with stores; while it is mapped, other processes cannot read, write or map it [default: a
    /// quarter of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    pub map_memory: Option<Size>,
    /// What happens to writes that no SYNC covers if the program is killed: rollback: they are gone; keep: they stay,
    /// as in a plain file; a glob, may be repeated: they stay in these files [default: rollback]
    #[arg(long, value_name = "rollback|keep|GLOB")]
    pub on_kill: Vec<ByGlob<OnKill>>,
    /// What is atomic by itself: epoch: all writes between two SYNCs; write: each call that changes a file, which is
    /// durable when it returns; a glob, may be repeated: each call on these files [default: epoch]
    #[arg(long, value_name = "epoch|write|GLOB")]
    pub atomicity: Vec<ByGlob<Atomicity>>,
    /// Whether the program may set up io_uring or kernel AIO (libaio), whose requests bypass Famio [default: refuse,
    /// so that it falls back to ordinary calls]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "refuse|allow")]
    pub async_io: Option<AsyncIoName>,
    /// Protect or fail: exit status 125 if a glob selects no file that is written, if no synced file is selected, if
    /// a program of the run starts without Famio, or if a selected file can't be protected
    #[arg(long)]
    pub require: bool,
    /// Where Famio's own messages go, instead of the program's stderr: syslog, journald, or a file to append to
    #[arg(long, value_name = "stderr|syslog|journald|FILE")]
    pub log: Option<OsString>,
    /// Which messages Famio writes [default: warning]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "off|error|warning|info")]
    pub log_level: Option<LogLevelName>,
    /// Only errors: as --log-level error
    #[arg(long, short, conflicts_with = "log_level")]
    pub quiet: bool,
}
