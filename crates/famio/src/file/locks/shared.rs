//! Record locks of several processes in the lock table (`index/members/lock_table/`), while one of them has the
//! cover: a lock call makes no system call then.
//!
//! Only the process's record locks (`F_SETLK`) are kept there. A description's (`F_OFD_SETLK`) would be excluded by
//! the cover: before one is set, the cover is given up.
//!
//! When the cover is given up with locks in the table, each process makes its own in the kernel, with its next lock
//! call or by its background; until then the others find them in the table.

use super::outcome::{InKernel, Outcome, Whose};
use super::{AtomicFile, Kind, Lock, Owner, Range, kernel};
use crate::file::state::lock_state::{OwnLocks, Shared};
use crate::index::{Holder, LOCKS_IN_TABLE, LockedTable, Region, WaitForLock};
use crate::sys::{Ended, monotonic_now, wait_for_any};
use core::ops::Deref;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

/// How often, a millisecond apart, a process tries again that needs its locks in the kernel, or cannot share them now.
pub(super) const LOOKS: u32 = 1000;
pub(super) const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// How a call went on a process that uses the table.
pub(super) enum InTable<'a> {
    Done(Outcome<'a, ()>),
    /// The locks were the kernel's when the table's count of changes was this.
    Kernel(u32),
    /// It does not use the table.
    None,
}

/// Nanoseconds for which the kernel may refuse to take over locks from the table.
const REFUSED: u64 = 300_000_000;

/// What a call finds.
enum There<T> {
    Done(core::result::Result<T, i32>),
    /// The locks are the kernel's.
    Kernel,
    /// The call has to wait for a lock of that process.
    Waits(Holder),
    /// The locks have to become the kernel's first.
    Uncover,
    /// A process has a lock that it has not made in the kernel yet.
    Soon,
}

impl From<Lock> for Region {
    fn from(lock: Lock) -> Self {
        Self { start: lock.range.start, last: lock.range.last, is_write: lock.kind == Kind::Write }
    }
}

impl OwnLocks {
    pub(super) fn are_any(&self) -> bool {
        self.mine.iter().next().is_some()
    }

    /// For the table. `None`: it has no room for so many.
    fn regions(&self) -> Option<Regions> {
        let mut regions = Regions { all: [Region { start: 0, last: 0, is_write: false }; LOCKS_IN_TABLE], count: 0 };
        for lock in self.mine.iter() {
            *regions.all.get_mut(regions.count)? = (*lock).into();
            regions.count += 1;
        }
        Some(regions)
    }

    /// Makes `mine`, for which there is room, known to others.
    fn publish(&self, locked: &LockedTable<'_>, released: bool) {
        if let Some(regions) = self.regions() {
            locked.set_own(&regions, released);
        }
    }

    /// Takes `mine` back to what it was.
    fn restore(&mut self, regions: &Regions) {
        self.mine.clear();
        let kind = |region: &Region| if region.is_write { Kind::Write } else { Kind::Read };
        let range = |region: &Region| Range { start: region.start, last: region.last };
        let lock = |region| Lock { owner: Owner::Process, kind: kind(region), range: range(region) };
        regions.iter().map(lock).for_each(|lock| self.mine.set(lock));
    }
}

/// The locks of a process, as the table has them.
struct Regions {
    all: [Region; LOCKS_IN_TABLE],
    count: usize,
}

impl Deref for Regions {
    type Target = [Region];

    fn deref(&self) -> &[Region] {
        &self.all[..self.count]
    }
}

impl Regions {
    fn are_reads(&self) -> bool {
        self.iter().all(|region| !region.is_write)
    }
}

impl AtomicFile {
    /// As [`set_lock`](Self::set_lock), of a process that uses the table.
    pub(super) fn set_lock_in_table(&self, owner: Owner, kind: Option<Kind>, range: Range, waits: bool) -> InTable<'_> {
        if owner == Owner::Process && kind != Some(Kind::Write) && self.change_quickly(kind.is_some(), range) {
            return InTable::Done(Outcome::Done(Ok(())));
        }
        let mut looks = 0;
        loop {
            let mut seen = 0;
            let there = self.with_table(|file, own, locked| {
                seen = locked.table().change_count();
                let wanted = kind.map(|kind| Lock { owner, kind, range });
                file.set_there(own, locked, wanted, range, Whose::of(owner))
            });
            let Some(there) = there else { return InTable::None };
            match there {
                There::Done(done) => return InTable::Done(Outcome::Done(done)),
                There::Kernel if kind.is_some() && waits => return self.wait_in_kernel(seen),
                There::Kernel => return InTable::Kernel(seen),
                There::Waits(_) | There::Soon if !waits => {
                    return InTable::Done(Outcome::Done(Err(libc::EAGAIN)));
                }
                There::Waits(holder) => {
                    let Some(kind) = kind else { continue };
                    match self.wait_for_release(holder, Lock { owner, kind, range }) {
                        Ok(()) => looks = 0,
                        Err(errno) => return InTable::Done(Outcome::Done(Err(errno))),
                    }
                }
                There::Uncover | There::Soon if looks < LOOKS => {
                    looks += 1;
                    let _ = rustix::thread::nanosleep(&LOOK);
                }
                // The process with the cover does not run.
                There::Uncover | There::Soon => {
                    return InTable::Done(Outcome::Done(Err(if waits { libc::EDEADLK } else { libc::EAGAIN })));
                }
            }
        }
    }

    /// Locks `range` for reading (`sets`), or unlocks it, if that needs no lock of the table. False: nothing is done.
    #[inline]
    fn change_quickly(&self, sets: bool, range: Range) -> bool {
        if Self::may_wait().is_err() {
            return false;
        }
        let mut table = self.locks.table.lock();
        let Some(Shared { table, own }) = &mut table.shared else { return false };
        let Some(before) = own.regions().filter(Regions::are_reads) else { return false };
        if sets {
            own.mine.set(Lock { owner: Owner::Process, kind: Kind::Read, range });
        } else {
            own.mine.unset(Owner::Process, range);
        }
        let is_gone = |holder| self.ownership.membership.is_gone(holder);
        let done = own.regions().is_some_and(|regions| match sets {
            true => table.set_quickly(&regions, &is_gone),
            false => table.release_quickly(&regions),
        });
        if !done {
            own.restore(&before);
            table.take_back(&before);
        }
        done
    }

    /// One step of it.
    fn set_there(
        &self,
        own: &mut OwnLocks,
        locked: &LockedTable<'_>,
        wanted: Option<Lock>,
        range: Range,
        whose: Whose,
    ) -> There<()> {
        if !self.is_covered(own, locked) {
            self.move_own_to_kernel(own, locked);
            return match wanted {
                Some(lock) if own.are_any() || locked.conflict(lock.into()).is_some() => There::Soon,
                Some(_) => There::Kernel,
                None => {
                    if own.are_any() {
                        own.mine.unset(Owner::Process, range);
                        own.publish(locked, true);
                    }
                    There::Kernel
                }
            };
        }
        if whose == Whose::Description {
            if wanted.is_none() {
                return There::Done(Ok(())); // under the cover no description has a lock
            }
            locked.want_uncover();
            return There::Uncover;
        }
        let before = own.regions();
        let Some(lock) = wanted else {
            own.mine.unset(Owner::Process, range);
            if own.regions().is_none() {
                before.iter().for_each(|before| own.restore(before)); // it splits a lock
                locked.want_uncover();
                return There::Uncover;
            }
            own.publish(locked, true);
            return There::Done(Ok(()));
        };
        if let Some((holder, _)) = locked.conflict(lock.into()) {
            return There::Waits(holder);
        }
        own.mine.set(lock);
        if own.regions().is_none() {
            before.iter().for_each(|before| own.restore(before));
            locked.want_uncover();
            return There::Uncover;
        }
        own.publish(locked, lock.kind == Kind::Read);
        There::Done(Ok(()))
    }

    /// As [`find_conflict`](Self::find_conflict), of a process that uses the table. `None`: the locks are the kernel's.
    pub(super) fn find_conflict_in_table(&self, lock: Lock) -> Option<Outcome<'_, Option<Lock>>> {
        let found = self.with_table(|file, own, locked| {
            let is_covered = file.is_covered(own, locked);
            let own = (lock.owner != Owner::Process).then(|| own.mine.conflict(lock)).flatten();
            let others =
                || locked.conflict(lock.into()).map(|(holder, there)| other_lock(locked.process(holder), there));
            let found = own.or_else(others);
            if is_covered || found.is_some() { There::Done(Ok(found)) } else { There::Kernel }
        })?;
        match found {
            There::Done(done) => Some(Outcome::Done(done)),
            _ => None,
        }
    }

    /// Runs `act` with the table, if this process uses it.
    fn with_table<T>(&self, act: impl FnOnce(&Self, &mut OwnLocks, &LockedTable<'_>) -> There<T>) -> Option<There<T>> {
        if let Err(error) = Self::may_wait() {
            return self.locks.is_sharing.load(Ordering::Acquire).then(|| There::Done(Err(error.errno())));
        }
        self.with_locked_table(|own, locked| act(self, own, locked))
            .map(|done| done.unwrap_or(There::Done(Err(libc::EDEADLK))))
    }

    /// The same. `Some(None)`: a process has stopped in the table.
    pub(super) fn with_locked_table<T>(
        &self,
        act: impl FnOnce(&mut OwnLocks, &LockedTable<'_>) -> T,
    ) -> Option<Option<T>> {
        let mut table = self.locks.table.lock();
        let shared = table.shared.as_mut()?;
        let is_gone = |holder| self.ownership.membership.is_gone(holder);
        let Shared { table, own } = shared;
        let locked = table.lock(&is_gone);
        Some(locked.map(|locked| act(own, &locked)))
    }

    /// A blocking call waits in the kernel, and the others know.
    fn wait_in_kernel(&self, seen: u32) -> InTable<'_> {
        let counted = self.with_locked_table(|_, locked| {
            let may = locked.cover().is_none() && !self.has_locks_in_memory();
            if may {
                locked.table().set_waits_in_kernel(true);
                self.locks.place.fetch_add(1, Ordering::AcqRel); // under the lock of the table, as in `in_memory`
            }
            may
        });
        if counted != Some(Some(true)) {
            return InTable::Kernel(seen); // the kernel refuses it at first, or they are in memory
        }
        InTable::Done(Outcome::Kernel(InKernel { file: Some(self), waits: true, seen: Some(seen) }))
    }

    /// Whether a lock that the kernel has given excludes those in the table, too. It was asked for when the table's count
    /// of changes was `seen`, and the locks were the kernel's.
    pub(super) fn is_lock_good(&self, seen: u32, lock: Lock) -> bool {
        let good = self.with_locked_table(|_, locked| {
            let table = locked.table();
            table.change_count() == seen || locked.cover().is_none() && locked.conflict(lock.into()).is_none()
        });
        good.flatten().unwrap_or(true)
    }

    /// Waits until `holder` has released a lock, or is dead.
    fn wait_for_release(&self, holder: Holder, wanted: Lock) -> core::result::Result<(), i32> {
        let begun = self.with_locked_table(|_, locked| locked.wait_for(holder, wanted.into()));
        let word = match begun.flatten() {
            Some(WaitForLock::For(word)) => word,
            Some(WaitForLock::InCircle) => return Err(libc::EDEADLK),
            Some(WaitForLock::Over) | None => return Ok(()),
        };
        let mut words = vec![word];
        match self.ownership.membership.watch_life(holder.place) {
            Some(life) => words.push(life),
            // It is being killed, and its last thread has not ended yet.
            None => {
                let _ = self.with_locked_table(|_, locked| locked.table().end_wait(holder));
                let _ = rustix::thread::nanosleep(&LOOK);
                return Ok(());
            }
        }
        // Without a limit, a signal handler ends or repeats the call as it does for the kernel's.
        let ended = wait_for_any(&words, None);
        let _ = self.with_locked_table(|_, locked| locked.table().end_wait(holder));
        match ended {
            Ended::Interrupted => return Err(libc::EINTR),
            Ended::Woken(1) => words[1].wake(), // the kernel woke one of those that watch it
            Ended::Unknown => drop(rustix::thread::nanosleep(&LOOK)),
            _ => {}
        }
        Ok(())
    }

    /// The program closes a descriptor: the process's record locks go.
    pub(super) fn drop_locks_in_table(&self) {
        let _ = self.with_locked_table(|own, locked| {
            if own.are_any() {
                own.mine.clear();
                own.publish(locked, true);
            }
        });
    }

    /// Makes this process's locks in the kernel, as there is no cover. What the kernel refuses stays in the table, where
    /// the other processes see it, for a while: a call that was under way may have a lock for a moment.
    pub(super) fn move_own_to_kernel(&self, own: &mut OwnLocks, locked: &LockedTable<'_>) {
        if !own.are_any() {
            return own.refused_since = 0;
        }
        let writes = own.mine.iter().any(|lock| lock.kind == Kind::Write);
        let set = |fd: std::os::fd::BorrowedFd<'_>| own.mine.iter().try_for_each(|lock| kernel::set(fd, *lock));
        if let Err(error) = self.fds.with(writes, set) {
            let now = monotonic_now();
            if own.refused_since == 0 {
                own.refused_since = now;
            }
            if now - own.refused_since < REFUSED {
                return;
            }
            self.lose_locks(&error); // a program without Famio has a conflicting lock: it came between
        }
        own.refused_since = 0;
        own.mine.clear();
        own.publish(locked, true);
    }
}

/// A lock of another process, for `F_GETLK`.
fn other_lock(process: u64, there: Region) -> Lock {
    let pid = crate::index::Owner::of_word(process).and_then(crate::index::Owner::pid_here).unwrap_or(0);
    let kind = if there.is_write { Kind::Write } else { Kind::Read };
    Lock { owner: Owner::OtherProcess(pid), kind, range: Range { start: there.start, last: there.last } }
}
