//! Locks while several descriptions of the program share one of the kernel's (`Descriptors::join`).

use super::{AtomicFile, IN_MEMORY, Locks, Owner, Table};
use crate::error::{Error, Result};
use crate::file::descriptors::Split;
use crate::settings::LocksChoice;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;
use std::os::fd::BorrowedFd;

/// Unlocks that try to take the lease, after the process's own locks prevented an attempt.
const ATTEMPTS: u32 = 16;

/// Waits for a thread that is about to split them, and has released the lease, or first ends a session.
const WAITS: u32 = 1000;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

impl Table {
    /// Whether all locks here are the process's.
    fn are_processes(&self) -> bool {
        self.flock.is_none() && self.ranges.iter().all(|lock| lock.owner == Owner::Process)
    }

    /// Records that the locks are in memory and the lease is held.
    fn set_leased(&mut self, file: &AtomicFile) {
        (self.leased, self.next_pause) = (true, 0);
        file.locks.leased.store(true, Ordering::Release);
    }
}

impl Locks {
    /// The number of unlocks left that try to take the lease.
    pub(in crate::file) fn tries_left(&self) -> u32 {
        self.at_unlocks.load(Ordering::Relaxed)
    }

    pub(in crate::file) fn try_no_more_than(&self, left: u32) {
        self.at_unlocks.fetch_min(left, Ordering::Relaxed);
    }
}

impl AtomicFile {
    /// Joins the program's descriptions, so that `take` can take the lease. Returns whether it did; otherwise
    /// everything is as before.
    pub(in crate::file) fn join_for_lease(&self, take: impl FnOnce() -> bool) -> bool {
        let locks = &self.locks;
        if self.settings.locks != LocksChoice::Auto {
            return false;
        }
        let mut table = locks.table.lock();
        self.end_kept_locks(&mut table);
        // A call that comes meanwhile waits for the table.
        let begun = locks.place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !begun || !self.has_none_in_kernel() {
            if begun {
                locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
            }
            locks.at_unlocks.store(ATTEMPTS, Ordering::Relaxed);
            return false;
        }
        locks.at_unlocks.store(0, Ordering::Relaxed);
        let taken = self.fds.join() && take();
        if taken {
            table.set_leased(self);
        } else {
            if let Some(split) = self.fds.split() {
                split.end(false);
            }
            locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        }
        taken
    }

    /// Whether an unlock that was just made should try to take the lease.
    pub(super) fn tries_at_unlock(&self) -> bool {
        let left = self.locks.at_unlocks.load(Ordering::Relaxed);
        if left > 0 {
            self.locks.at_unlocks.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Runs `act` under the lease while all locks are in memory and the process's. `None`: that is impossible.
    pub(in crate::file) fn with_locks_in_memory<T>(&self, act: impl FnOnce() -> Option<T>) -> Option<T> {
        let locks = &self.locks;
        if self.settings.locks != LocksChoice::Auto {
            return None;
        }
        let mut table = locks.table.lock();
        self.end_kept_locks(&mut table);
        let comes = !self.has_locks_in_memory();
        if comes && locks.place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return None;
        }
        let may_be = if comes { self.has_none_in_kernel() } else { table.are_processes() };
        let done = if may_be { act() } else { None };
        if comes && done.is_some() {
            table.set_leased(self);
        } else if comes {
            locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        }
        done
    }

    /// Releases the lease by `give_up`, and gives each description one of the kernel's. The locks in memory are made
    /// in the kernel first, and no thread makes others meanwhile.
    pub(super) fn move_to_kernel_and_split(
        &self,
        table: &mut Table,
        mut split: Split<'_>,
        give_up: impl FnOnce(Option<BorrowedFd<'_>>),
    ) {
        if !self.has_locks_in_memory() {
            give_up(Some(split.base()));
            drop(split);
            return self.split_where_free(table);
        }
        if !table.ranges.is_empty() {
            split.hide();
        }
        self.make_in_kernel(table, |file, table| file.set_in_kernel(table, split.base()));
        let has_locks = !table.ranges.is_empty() || table.flock.is_some();
        self.are_moved(table);
        give_up(Some(split.base()));
        split.end(has_locks);
        self.locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
    }

    /// The lease is gone, but the descriptions are still joined, since they could not be opened: tries again, unless
    /// the process has locks.
    fn split_where_free(&self, _table: &mut Table) {
        let place = &self.locks.place;
        if place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        if self.has_none_in_kernel()
            && let Some(split) = self.fds.split()
        {
            split.end(false);
        }
        place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
    }

    /// Makes the kernel's descriptions the program's, which ends the lease: before a lock of a description, and when
    /// another process may get a description.
    ///
    /// # Errors
    /// `EBUSY`: they could not be opened, for example because the process has lost its rights on the file. `EDEADLK`:
    /// a signal handler interrupted a call on an atomic file.
    pub(crate) fn split(&self) -> Result<()> {
        if !self.fds.are_joined() {
            return Ok(());
        }
        self.give_up_lease_held()?;
        for _ in 0..WAITS {
            if !self.fds.are_joined() {
                break;
            }
            let mut table = self.locks.table.lock();
            if !self.has_locks_in_memory() {
                self.split_where_free(&mut table);
                break;
            }
            drop(table); // another thread is about to
            let _ = rustix::thread::nanosleep(&WAIT);
        }
        if self.fds.are_joined() { Err(Error::new(libc::EBUSY)) } else { Ok(()) }
    }

    /// Descriptions that are still joined without the lease get one of the kernel's each.
    ///
    /// # Errors
    /// `EBUSY`, as from [`split`](Self::split).
    pub(crate) fn split_if_left(&self) -> Result<()> {
        if !self.fds.are_joined() {
            return Ok(());
        }
        let mut table = self.locks.table.lock();
        if self.has_locks_in_memory() {
            return Ok(()); // they are split when the lease is released
        }
        self.split_where_free(&mut table);
        if self.fds.are_joined() { Err(Error::new(libc::EBUSY)) } else { Ok(()) }
    }

    pub(super) fn split_for_locks(&self) -> Result<()> {
        self.split().map_err(|error| if error.errno() == libc::EBUSY { Error::new(libc::ENOLCK) } else { error })
    }
}
