//! Read locks that stay in the kernel when the program unlocks them (*kept locks*), while several processes read one
//! file often: the program's next read lock of the same bytes then makes no system call. As NFS clients keep
//! delegations, they are recalled (`recall`): a process of Famio to which the kernel refuses a lock for writing has the
//! others drop what they keep, and asks again.
//!
//! The kernel has each lock that the program has, at every moment. What processes share (`index/members`) only says who
//! keeps locks, so nothing that happens there, or to another process, can give a lock to two. Kept locks are those of a
//! description of the library: as locks of the process, any close of a descriptor of the file would drop them.
//!
//! Locks are kept from an unlock of the whole file on, when this process certainly has no record lock, up to a lock for
//! writing, a recall, or a pause. Meanwhile `Locks::place` says that they are in memory, so that each call comes here.

use super::{AtomicFile, IN_MEMORY, Kind, Lock, Owner, Range, kernel, recall};
use crate::file::state::kept_locks::Kept;
use crate::file::state::lock_ranges::Ranges;
use crate::file::state::lock_state::Table;
use crate::sys::{monotonic_now, open_again};
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use rustix::time::Timespec;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Lock calls are frequent if [`CALLS_BEFORE_LEASE`](super::CALLS_BEFORE_LEASE) of them in the kernel come within so
/// many nanoseconds.
const FREQUENT: u64 = 50_000_000;
/// So many times in a row, and a process becomes a member for its locks.
const OFTEN: u32 = 8;
/// The fewest and most unlocks before locks are kept again after a recall, or a lock for writing.
const PAUSE: u32 = 4;
const PAUSE_MAX: u32 = 1024;
/// Locks without a system call from which on that was worth it.
const WORTH: u32 = 16;
/// The most locks that are kept: with more of them, each lock call takes longer for all.
const KEPT_MAX: usize = 8;
/// How often, and how long apart, a process that leaves the others tries to end what it keeps.
const TRIES: u32 = 100;
const TRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
/// Nanoseconds in which none are kept after a recall.
const TURN_OF_RECALLER: u64 = 500_000;
/// All processes at once keep no locks in the first `TURN` nanoseconds of each `PERIOD`: a turn for programs without
/// Famio that wait for a lock for writing. Longer than the longest pause of SQLite between two tries.
const PERIOD: u64 = 3_000_000_000;
const TURN: u64 = 200_000_000;

fn is_turn_of_others() -> bool {
    monotonic_now() % PERIOD < TURN
}

/// The same lock, of the library's description.
fn by_description(lock: Lock) -> Lock {
    Lock { owner: Owner::Description(0), ..lock }
}

impl AtomicFile {
    /// A lock call went to the kernel. Often enough, locks are kept.
    pub(super) fn count_lock_calls(&self) {
        let (keeping, now) = (&self.locks.keeping, monotonic_now());
        if keeping.has_keeper.load(Ordering::Relaxed) && Self::may_wait().is_ok() && self.is_alone() {
            return keeping.is_wanted.store(true, Ordering::Relaxed); // to close it
        }
        let since = keeping.counted_at.swap(now, Ordering::Relaxed);
        if now.saturating_sub(since) >= FREQUENT {
            return keeping.frequent.store(0, Ordering::Relaxed);
        }
        let times = keeping.frequent.fetch_add(1, Ordering::Relaxed);
        let wants = Self::may_wait().is_ok() && self.has_other_processes(times);
        keeping.is_wanted.store(wants, Ordering::Relaxed);
    }

    /// Whether other members have the file open. This process becomes one, if it locks often for long enough: `times`.
    fn has_other_processes(&self, times: u32) -> bool {
        let (keeping, membership) = (&self.locks.keeping, &self.ownership.membership);
        if !membership.is_attached() && times >= OFTEN && !keeping.is_kept_out.load(Ordering::Relaxed) {
            keeping.is_kept_out.store(self.is_disowned() || self.become_member().is_err(), Ordering::Relaxed);
        }
        membership.is_attached() && membership.has_others()
    }

    fn is_alone(&self) -> bool {
        !self.ownership.membership.has_others()
    }

    /// Begins to keep locks, after the kernel has unlocked all that the process had. `granted`: the count of locks that it
    /// had granted before that.
    #[cold]
    pub(super) fn try_to_keep(self: &Arc<Self>, granted: u32) {
        let locks = &self.locks;
        let pause = locks.keeping.pause.load(Ordering::Relaxed);
        if pause > 0 {
            return locks.keeping.pause.store(pause - 1, Ordering::Relaxed);
        }
        let may_begin = !self.is_disowned()
            && !is_turn_of_others()
            && monotonic_now() >= locks.keeping.not_before.load(Ordering::Relaxed)
            && Self::may_wait().is_ok();
        if !may_begin {
            return;
        }
        if !recall::is_answered() {
            return self.pause_keeping(0);
        }
        let mut table = locks.table.lock();
        if table.leased
            || table.kept.is_some()
            || self.fds.are_joined()
            || locks.place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return;
        }
        // No call is in the kernel now. If none was there in between, this process has no lock.
        let has_none = locks.keeping.granted.load(Ordering::Acquire) == granted;
        if has_none && self.is_alone() {
            self.close_keeper_in(&mut table);
            locks.keeping.is_wanted.store(false, Ordering::Relaxed);
            locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
            return;
        }
        let begun = (has_none && self.has_keeper(&mut table)).then(|| self.ownership.membership.begin_to_keep_locks());
        match begun.flatten() {
            Some(recalls) => {
                table.forget();
                table.kept = Some(Kept { in_kernel: Ranges::default(), recalls, uses: 0, uses_seen: 0 });
                recall::add(self);
            }
            None => {
                locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
                self.pause_keeping(0);
            }
        }
    }

    /// Opens the description that keeps locks, if there is none.
    fn has_keeper(&self, table: &mut Table) -> bool {
        // A program that closes all descriptors by itself may have closed it.
        if table.keeper.as_ref().is_none_or(|keeper| keeper.get().is_err()) {
            // Without waiting for another program's lease.
            let open = |fd: std::os::fd::BorrowedFd<'_>| Ok(open_again(fd, OFlags::RDONLY | OFlags::NONBLOCK)?);
            self.close_keeper_in(table);
            table.keeper = self.fds.with(false, open).ok();
            self.locks.keeping.has_keeper.store(table.keeper.is_some(), Ordering::Relaxed);
        }
        table.keeper.is_some()
    }

    /// Closes it, while this process has no record lock, which that would drop. As long as it is open, the process gets no
    /// lease.
    fn close_keeper_in(&self, table: &mut Table) {
        self.locks.keeping.has_keeper.store(false, Ordering::Relaxed);
        table.keeper = None;
    }

    /// After locks were kept for so many.
    fn pause_keeping(&self, uses: u32) {
        let keeping = &self.locks.keeping;
        let next = match uses {
            WORTH.. => PAUSE,
            _ => (keeping.next_pause.load(Ordering::Relaxed) * 2).clamp(PAUSE, PAUSE_MAX),
        };
        keeping.next_pause.store(next, Ordering::Relaxed);
        keeping.pause.store(next, Ordering::Relaxed);
    }

    /// A call while locks are kept; `kind` `None`: unlocks. `None`: the kernel is to do it, with no lock kept.
    #[inline]
    pub(super) fn set_kept(
        &self,
        table: &mut Table,
        owner: Owner,
        kind: Option<Kind>,
        range: Range,
    ) -> Option<core::result::Result<(), i32>> {
        let Table { kept, ranges, keeper, .. } = table;
        let kept = kept.as_mut()?;
        let is_kept = owner == Owner::Process && kind != Some(Kind::Write);
        if !is_kept || self.ownership.membership.are_locks_recalled(kept.recalls) {
            return None;
        }
        let Some(kind) = kind else {
            ranges.unset(owner, range);
            return Some(Ok(()));
        };
        let lock = Lock { owner, kind, range };
        if kept.in_kernel.have(lock) {
            kept.uses = kept.uses.wrapping_add(1);
        } else {
            if kept.in_kernel.iter().count() >= KEPT_MAX {
                return None;
            }
            kernel::set(keeper.as_ref()?.as_fd(), by_description(lock)).ok()?; // or else the kernel refuses it again
            kept.in_kernel.set(lock);
        }
        ranges.set(lock);
        Some(Ok(()))
    }

    /// Nothing is kept any more: what the program has becomes the process's.
    pub(super) fn end_kept_locks(&self, table: &mut Table) {
        let Some(kept) = table.kept.take() else { return };
        if self.ownership.membership.are_locks_recalled(kept.recalls) {
            self.locks.keeping.not_before.store(monotonic_now() + TURN_OF_RECALLER, Ordering::Relaxed);
        }
        recall::remove(self);
        let make = |file: &Self, table: &mut Table| match file.fds.with(false, |fd| file.set_in_kernel(table, fd)) {
            Err(error) if error.errno() != libc::EBADF => Err(error),
            _ => Ok(()), // without a descriptor the program has no lock
        };
        let has_locks = !table.ranges.is_empty();
        if has_locks {
            self.make_in_kernel(table, make);
        }
        if let Some(keeper) = &table.keeper {
            kernel::unset_all(keeper.as_fd(), Owner::Description(0));
        }
        self.ownership.membership.end_to_keep_locks();
        if !has_locks && self.is_alone() {
            self.close_keeper_in(table);
        }
        self.are_moved(table);
        self.locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        self.pause_keeping(kept.uses);
    }

    /// The same, if this process keeps any: before it leaves the others, or runs another program.
    pub(crate) fn keep_no_locks(&self) {
        if recall::any() && Self::may_lock().is_ok() {
            self.end_kept_locks(&mut self.locks.table.lock());
        }
    }

    /// The program closes a descriptor, or this process leaves the others, perhaps with locks of its program. The keeper is
    /// closed with a descriptor of the program, which drops the process's locks anyway.
    pub(in crate::file) fn leave_keeper(&self) {
        if !self.locks.keeping.has_keeper.load(Ordering::Relaxed) {
            return;
        }
        // The caller may hold locks that come after the table. What is left is dropped by a look.
        for _ in 0..TRIES {
            if let Some(mut table) = self.locks.table.try_lock() {
                self.end_kept_locks(&mut table);
                self.locks.keeping.has_keeper.store(false, Ordering::Relaxed);
                let keeper = table.keeper.take();
                drop(table);
                return keeper.into_iter().for_each(|keeper| self.fds.leave(keeper));
            }
            let _ = rustix::thread::nanosleep(&TRY);
        }
    }

    /// In a forked child: what is kept is its parent's, and the kernel has none of its parent's other locks for it.
    pub(in crate::file) fn forget_kept_locks(&self) {
        if let Some(mut table) = self.locks.table.try_lock() {
            table.kept = None;
            table.keeper = None; // the description stays with the parent
        }
    }

    /// A look from time to time, and after a recall: drops what is kept if it was recalled, is not used, or others have
    /// their turn.
    pub(super) fn look_after_kept_locks(&self, is_timed: bool) {
        let membership = &self.ownership.membership;
        let mut table = self.locks.table.lock();
        let Some(kept) = &mut table.kept else { return };
        let is_idle = is_timed && core::mem::replace(&mut kept.uses_seen, kept.uses) == kept.uses;
        let is_recalled = membership.are_locks_recalled(kept.recalls);
        // A program that closes all descriptors by itself closes this one, too.
        let is_lost = table.keeper.as_ref().is_none_or(|keeper| keeper.get().is_err());
        if is_lost || is_recalled || is_idle || is_turn_of_others() || self.is_alone() {
            if is_idle {
                self.locks.keeping.is_wanted.store(false, Ordering::Relaxed);
            }
            self.end_kept_locks(&mut table);
        }
    }
}
