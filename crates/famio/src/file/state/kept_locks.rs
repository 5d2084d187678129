//! What this process knows of read locks that it keeps on one file (`file::locks::kept`).

use super::lock_ranges::Ranges;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// While locks are kept.
#[derive(Debug)]
pub(in crate::file) struct Kept {
    /// What the kernel has, by a description of the library: all that the program has (`Table::ranges`), and what it has
    /// unlocked since.
    pub(in crate::file) in_kernel: Ranges,
    /// The count of recalls when it began.
    pub(in crate::file) recalls: u32,
    /// Locks that made no system call, and their number at the last look.
    pub(in crate::file) uses: u32,
    pub(in crate::file) uses_seen: u32,
}

/// When locks are kept, and again not.
#[derive(Debug, Default)]
pub(in crate::file) struct Keeping {
    /// Counts record locks that the kernel has given to this process.
    pub(in crate::file) granted: AtomicU32,
    /// Calls that wait for a lock for writing.
    pub(in crate::file) waiting: Mutex<u32>,
    /// Lock calls are frequent: the next unlock of everything may begin to keep locks.
    pub(in crate::file) is_wanted: AtomicBool,
    /// There is a description that keeps locks (`Table::keeper`).
    pub(in crate::file) has_keeper: AtomicBool,
    /// It cannot become a member: not tried again.
    pub(in crate::file) is_kept_out: AtomicBool,
    /// When lock calls in the kernel were last counted (nanoseconds), and how often they were frequent in a row.
    pub(in crate::file) counted_at: AtomicU64,
    pub(in crate::file) frequent: AtomicU32,
    /// When this process, as none of the members, last looked for some (nanoseconds).
    pub(in crate::file) looked_at: AtomicU64,
    /// Unlocks to wait before the next attempt, and how many after it.
    pub(in crate::file) pause: AtomicU32,
    pub(in crate::file) next_pause: AtomicU32,
    /// When this process last recalled locks of others (nanoseconds).
    pub(in crate::file) recalled_at: AtomicU64,
    /// Before that time (nanoseconds), none are kept: whoever has recalled them has its turn.
    pub(in crate::file) not_before: AtomicU64,
}
