//! When a process uses the lock table: from its first lock on if there is one; and once several processes lock the file
//! often. It stops when it is alone, or detaches from the others.

use super::AtomicFile;
use super::cover::LOOKS_IN_VAIN;
use super::shared::{LOOK, LOOKS};
use crate::error::{Error, Result};
use crate::file::base::background_wakeup::{self, Watched};
use crate::file::descriptors::shared_memory;
use crate::file::state::lease_state;
use crate::file::state::lock_state::{OwnLocks, Shared, Table};
use crate::index::LOCK_TABLE_SIZE;
use crate::journal::control;
use crate::settings::LocksChoice;
use crate::sys::monotonic_now;
use core::sync::atomic::Ordering;
use rustix::fs::FallocateFlags;

/// Milliseconds between two looks, of a process that locks and is no member, whether the file has members.
const LOOK_AT_CONTROL: u64 = 1000;
/// Calls are frequent if [`CALLS`](super::CALLS_BEFORE_LEASE) of them come within this many nanoseconds.
const FREQUENT: u64 = 50_000_000;

impl AtomicFile {
    /// Whether this process uses the lock table. It does from its first lock on if there is one: others may have locks
    /// that only the table tells of.
    #[inline]
    pub(super) fn is_sharing_locks(&self) -> bool {
        self.settings.locks == LocksChoice::Shared && self.is_sharing_or_begins()
    }

    pub(in crate::file) fn is_sharing_locks_now(&self) -> bool {
        self.locks.is_sharing.load(Ordering::Acquire)
    }

    #[cold]
    fn is_sharing_or_begins(&self) -> bool {
        if self.locks.is_sharing.load(Ordering::Acquire) {
            return true;
        }
        let membership = &self.ownership.membership;
        let is_due =
            || lease_state::now().saturating_sub(self.locks.looked_at.load(Ordering::Relaxed)) >= LOOK_AT_CONTROL;
        let may_be_table = if membership.has_attached() { membership.lock_table() != 0 } else { is_due() };
        may_be_table && self.may_share_locks() && self.begins_to_share()
    }

    #[cold]
    fn begins_to_share(&self) -> bool {
        for look in 0..LOOKS {
            match self.try_to_share() {
                Some(shares) => return shares,
                None if look == 0 && Self::may_wait().is_err() => return false,
                None => {
                    let _ = rustix::thread::nanosleep(&LOOK);
                }
            }
        }
        self.locks.is_kept_out.store(true, Ordering::Relaxed);
        self.ownership.membership.bar_lock_table();
        false
    }

    /// `None`: it cannot at this moment.
    fn try_to_share(&self) -> Option<bool> {
        let membership = &self.ownership.membership;
        if !self.may_share_locks() || Self::may_wait().is_err() {
            return Some(false);
        }
        if !membership.is_attached() {
            let now = lease_state::now();
            let looked = self.locks.looked_at.load(Ordering::Relaxed);
            if now.saturating_sub(looked) < LOOK_AT_CONTROL {
                return Some(false);
            }
            if !self.joins_others()? {
                self.locks.looked_at.store(now, Ordering::Relaxed);
                return Some(false);
            }
        }
        if membership.lock_table() == 0 { Some(false) } else { self.share_locks() }
    }

    /// Whether this process may use a lock table, as far as it knows.
    #[inline]
    pub fn may_share_locks(&self) -> bool {
        self.settings.locks == LocksChoice::Shared
            && !self.is_disowned()
            && !self.locks.is_kept_out.load(Ordering::Relaxed)
            && !self.ownership.membership.is_lock_table_barred()
    }

    /// Becomes a member, if the file has a control file. `None`: it cannot at this moment.
    fn joins_others(&self) -> Option<bool> {
        let find = |fd: std::os::fd::BorrowedFd<'_>| control::find(fd, self.settings.pool.as_deref());
        match self.fds.with(false, find) {
            Ok(Some(_)) => self.joins(),
            Ok(None) => Some(false),
            Err(_) => {
                self.locks.is_kept_out.store(true, Ordering::Relaxed);
                Some(false)
            }
        }
    }

    /// Becomes a member. `None`: it cannot at this moment.
    fn joins(&self) -> Option<bool> {
        let joined = self.become_member();
        let is_busy = |e: &Error| [libc::EBUSY, libc::EAGAIN, libc::EINTR].contains(&e.errno());
        match &joined {
            Err(e)
                if is_busy(e) && !self.ownership.membership.is_kept_out() && !self.ownership.membership.is_full() =>
            {
                return None;
            }
            Err(_) => self.locks.is_kept_out.store(true, Ordering::Relaxed),
            Ok(()) => {}
        }
        Some(joined.is_ok())
    }

    /// For [`InKernel::may_have_moved`](super::InKernel::may_have_moved).
    pub(super) fn may_locks_have_moved(&self, seen: Option<u32>) -> bool {
        self.uses_table()
            && self
                .with_locked_table(|_, locked| locked.cover().is_some() || seen != Some(locked.table().change_count()))
                .flatten()
                .unwrap_or(false)
    }

    /// The kernel reports a lock of no process, which may be the cover: this process uses the table from now on, if it
    /// can.
    pub fn uses_table(&self) -> bool {
        if self.settings.locks != LocksChoice::Shared || self.is_disowned() || Self::may_wait().is_err() {
            return false;
        }
        if !self.locks.is_sharing.load(Ordering::Acquire) {
            let membership = &self.ownership.membership;
            let is_member = membership.is_attached() || self.joins_others() == Some(true);
            if !is_member || membership.lock_table() == 0 || self.share_locks() != Some(true) {
                return false;
            }
        }
        true
    }

    /// Whether other members have the file open. This process becomes one, if it can.
    fn is_one_of_several(&self) -> bool {
        let membership = &self.ownership.membership;
        (membership.is_attached() || self.may_share_locks() && self.joins() == Some(true)) && membership.has_others()
    }

    /// Begins to use the lock table, which is made if there is none. `None`: it cannot at this moment.
    fn share_locks(&self) -> Option<bool> {
        let membership = &self.ownership.membership;
        if self.locks.is_sharing.load(Ordering::Acquire) {
            return Some(true);
        }
        if membership.is_lock_table_barred() {
            return Some(false);
        }
        self.register_for_death_notice();
        let mut table = self.locks.table.lock();
        if table.shared.is_some() {
            return Some(true);
        }
        match self.map_lock_table() {
            Ok(Some(shared)) => {
                table.shared = Some(shared);
                self.locks.is_sharing.store(true, Ordering::Release);
                drop(table);
                background_wakeup::watch_members();
                Some(true)
            }
            Ok(None) => None,
            // Removed by its last process, or not whole yet.
            Err(e) if [libc::ENOENT, libc::EINVAL].contains(&e.errno()) => None,
            Err(_) => {
                membership.bar_lock_table();
                Some(false)
            }
        }
    }

    fn map_lock_table(&self) -> Result<Option<Shared>> {
        let membership = &self.ownership.membership;
        let file = match membership.lock_table() {
            0 => {
                let number = membership.number();
                let path = membership.lock_table_path(number);
                if crate::sys::file_size_limit() < LOCK_TABLE_SIZE as u64 {
                    return Err(Error::new(libc::EFBIG));
                }
                let made = shared_memory::make(&self.fds, membership, &path)?;
                // Its memory exists from now on: a store finds a page.
                let filled = rustix::fs::fallocate(&made, FallocateFlags::empty(), 0, LOCK_TABLE_SIZE as u64);
                if filled.is_ok() && membership.set_lock_table(number) {
                    made
                } else {
                    let _ = rustix::fs::unlinkat(rustix::fs::CWD, &*path, rustix::fs::AtFlags::empty());
                    filled?;
                    shared_memory::open(&self.fds, &membership.lock_table_path(membership.lock_table()))?
                }
            }
            number => shared_memory::open(&self.fds, &membership.lock_table_path(number))?,
        };
        if rustix::fs::fstat(&file)?.st_size < LOCK_TABLE_SIZE as i64 {
            return Err(Error::new(libc::EINVAL));
        }
        let shared = |table| Shared { table, own: OwnLocks::default() };
        Ok(membership.map_lock_table(&file)?.map(shared))
    }

    /// A lock call went to the kernel. Often enough, the table would serve better.
    pub(super) fn count_lock_calls(&self) {
        if self.settings.locks != LocksChoice::Shared || Self::may_wait().is_err() {
            return;
        }
        let now = monotonic_now();
        let since = self.locks.counted_since.swap(now, Ordering::Relaxed);
        let is_frequent = now.saturating_sub(since) < FREQUENT && self.is_one_of_several();
        self.locks.wants_cover.store(is_frequent && self.share_locks() == Some(true), Ordering::Relaxed);
    }

    /// This process stops to use the table: it detaches from the file's other processes, or ends. Its locks become the
    /// kernel's.
    pub(crate) fn leave_lock_table(&self) {
        if !self.locks.is_sharing.load(Ordering::Acquire) || Self::may_lock().is_err() {
            return;
        }
        for look in 0..LOOKS {
            let left = self.with_locked_table(|own, locked| {
                if own.cover.is_some() && look < LOOKS_IN_VAIN && locked.has_others() {
                    return false; // only in a moment without locks are programs without Famio kept out all the time
                }
                if own.cover.is_some() {
                    self.uncover(own, locked, 0);
                }
                if own.are_any() && self.is_covered(own, locked) {
                    locked.want_uncover();
                    return false;
                }
                self.move_own_to_kernel(own, locked);
                !own.are_any()
            });
            if left != Some(Some(false)) {
                break;
            }
            let _ = rustix::thread::nanosleep(&LOOK);
        }
        let has_left = self.with_locked_table(|own, _| own.are_any()).flatten().unwrap_or(false);
        if has_left {
            self.lose_locks(&Error::new(libc::EAGAIN));
            self.drop_locks_in_table();
        }
        let mut table = self.locks.table.lock();
        self.locks.is_sharing.store(false, Ordering::Release);
        self.locks.wants_cover.store(false, Ordering::Relaxed);
        let left = table.shared.take();
        drop(table);
        drop(left);
    }

    /// The same, if there is no other process: the lease serves better.
    pub(super) fn leave_lock_table_if_alone(&self) {
        let is_sharing = self.locks.is_sharing.load(Ordering::Acquire);
        if is_sharing && self.ownership.membership.forget_lock_table_if_alone() {
            self.leave_lock_table();
        }
    }

    /// In a forked child: what the table has is the parent's, and the child does not have it mapped.
    pub(in crate::file) fn forget_lock_table(&self) {
        self.locks.is_sharing.store(false, Ordering::Release);
        self.locks.wants_cover.store(false, Ordering::Relaxed);
        if let Some(mut table) = self.locks.table.try_lock() {
            let Table { shared, .. } = &mut *table;
            core::mem::forget(shared.take());
        }
    }

    /// Adds what the background waits for. False: a thread changes it.
    pub(in crate::file) fn watch_lock_table(&self, on: &mut Watched) -> bool {
        if !self.locks.is_sharing.load(Ordering::Acquire) {
            return true;
        }
        let Some(table) = self.locks.table.try_lock() else { return false };
        if let Some(shared) = &table.shared {
            on.words.push(shared.table.changes(shared.own.changes_seen));
            let cover = if shared.own.cover.is_none() { shared.table.cover() } else { None };
            on.holders.extend(cover.and_then(|cover| self.ownership.membership.watch_life(cover.place)));
        }
        true
    }
}
