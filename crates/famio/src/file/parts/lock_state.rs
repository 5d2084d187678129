//! The program's locks on one file, as its process knows them.

use super::lock_ranges::{Kind, Ranges};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// In `Locks::place`: the locks are in memory. The rest of the word counts calls that are in the kernel.
pub(in crate::file) const IN_MEMORY: u32 = 1 << 31;

/// The locks of one file.
#[derive(Debug, Default)]
pub(in crate::file) struct Locks {
    pub(in crate::file) place: AtomicU32,
    /// Lock calls that went to the kernel. Counted without care: it is a hint.
    pub(in crate::file) calls: AtomicU32,
    /// `flock` calls that may have locked in the kernel, and how many of them there were when the last unlock began.
    pub(in crate::file) flocks: AtomicU32,
    pub(in crate::file) flocks_ended: AtomicU32,
    /// The lease is held: a copy of `Table::leased`, for a look without the lock.
    pub(in crate::file) leased: AtomicBool,
    /// It could not be had because of the process's own locks: so many unlocks are to try. Counted without care.
    pub(in crate::file) at_unlocks: AtomicU32,
    pub(in crate::file) table: Mutex<Table>,
    /// Locks that the kernel is to refuse.
    #[cfg(test)]
    pub(in crate::file) refusals: AtomicU32,
}

#[derive(Debug, Default)]
pub(in crate::file) struct Table {
    pub(in crate::file) leased: bool,
    pub(in crate::file) ranges: Ranges,
    /// What `flock` holds, by the number of its description.
    pub(in crate::file) flock: Option<(usize, Kind)>,
    /// Unlocks to be let pass before the next attempt to move to memory, and before the one after it.
    pub(in crate::file) pause: u32,
    pub(in crate::file) next_pause: u32,
}
