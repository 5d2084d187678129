//! The program's locks on one file, as its process knows them.

use super::kept_locks::{Keeping, Kept};
use super::lock_ranges::{Kind, Ranges};
use crate::sys::InternalFd;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU32};

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
    pub(in crate::file) keeping: Keeping,
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
    /// Locks are kept: `ranges` are in the kernel, too.
    pub(in crate::file) kept: Option<Kept>,
    /// A description of the library's own, which has them there, or had some.
    pub(in crate::file) keeper: Option<InternalFd>,
}
