//! The program's locks on one file, as its process knows them.

use super::lock_ranges::{Kind, Ranges};
use crate::index::LockTable;
use crate::sys::InternalFd;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// In `Locks::place`: the locks are in memory. The rest of the word counts calls in the kernel.
pub(in crate::file) const IN_MEMORY: u32 = 1 << 31;

#[derive(Debug, Default)]
pub(in crate::file) struct Locks {
    pub(in crate::file) place: AtomicU32,
    /// Lock calls that went to the kernel. Not exact: a hint.
    pub(in crate::file) calls: AtomicU32,
    /// `flock` calls that may have locked in the kernel, and their number when the last unlock began.
    pub(in crate::file) flocks: AtomicU32,
    pub(in crate::file) flocks_ended: AtomicU32,
    /// The lease is held: a copy of `Table::leased`, readable without the lock.
    pub(in crate::file) leased: AtomicBool,
    /// The process's own locks prevented the lease: this many unlocks try again. Not exact.
    pub(in crate::file) at_unlocks: AtomicU32,
    /// This process uses the lock table: a copy of `Table::shared.is_some()`, readable without the lock.
    pub(in crate::file) is_sharing: AtomicBool,
    /// When lock calls in the kernel were last counted, in nanoseconds.
    pub(in crate::file) counted_since: AtomicU64,
    /// When this process last looked for members, in milliseconds.
    pub(in crate::file) looked_at: AtomicU64,
    /// It cannot be a member of the file: not tried again.
    pub(in crate::file) is_kept_out: AtomicBool,
    /// Lock calls are frequent: the next unlock in the kernel tries to take the cover.
    pub(in crate::file) wants_cover: AtomicBool,
    pub(in crate::file) table: Mutex<Table>,
    /// Locks in memory could not be made in the kernel, and others may have them: no more changes.
    pub(in crate::file) are_lost: AtomicBool,
    /// Locks that the kernel has to refuse.
    #[cfg(test)]
    pub(in crate::file) refusals: AtomicU32,
}

#[derive(Debug, Default)]
pub(in crate::file) struct Table {
    pub(in crate::file) leased: bool,
    pub(in crate::file) ranges: Ranges,
    /// The `flock` lock, with the number of its description.
    pub(in crate::file) flock: Option<(usize, Kind)>,
    /// Unlocks to wait before the next attempt to move to memory, and before the one after it.
    pub(in crate::file) pause: u32,
    pub(in crate::file) next_pause: u32,
    /// The lock table of all processes, if this one uses it.
    pub(in crate::file) shared: Option<Shared>,
}

/// What this process has in the lock table.
#[derive(Debug)]
pub(in crate::file) struct Shared {
    pub(in crate::file) table: LockTable,
    pub(in crate::file) own: OwnLocks,
}

#[derive(Debug, Default)]
pub(in crate::file) struct OwnLocks {
    /// The process's record locks there.
    pub(in crate::file) mine: Ranges,
    /// A description of its own with the cover, since that time (nanoseconds).
    pub(in crate::file) cover: Option<(InternalFd, u64)>,
    /// The number of lock calls of all processes when the background last looked.
    pub(in crate::file) calls_seen: u32,
    /// The count of changes before the background's last look.
    pub(in crate::file) changes_seen: u32,
    /// When it first failed to take the cover after its holder; 0: it has not.
    pub(in crate::file) failing_since: u64,
    /// When the kernel first refused to take over its locks; 0: it has not.
    pub(in crate::file) refused_since: u64,
    /// Looks of the background, at once, for a moment without locks.
    pub(in crate::file) looks_in_vain: u32,
    /// Unlocks to wait before the next attempt to take the cover, and before the one after it.
    pub(in crate::file) pause: u32,
    pub(in crate::file) next_pause: u32,
}
