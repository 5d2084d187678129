//! The program's locks on a file (`fcntl`, `flock`). While this process has the write lease, no other open file
//! description exists, so no other process can see them: they are kept in memory, and a lock call makes no system
//! call. Before the lease is released they are made in the kernel, where a process that waits in `open` finds them.
//!
//! Locks move to memory when the kernel has none of this process on the file, so that none has to be queried. There
//! is no waiting in memory: if a call has to wait, the locks move to the kernel, and the call waits there.
//!
//! While descriptions are joined (`Descriptors::join`), the locks are in memory and all belong to the process: a
//! description's lock is the kernel's, which tells descriptions apart.
//!
//! With several processes, locks for reading stay in the kernel after the program has unlocked them (`kept`).
//!
//! Lock order: `Locks::table` comes after `Lease::state`, and before the list of descriptors, the list of files whose locks
//! are kept, and the control file.

mod kept;
mod kernel;
mod outcome;
mod recall;
mod twins;
mod waiting;

use self::outcome::Whose;
pub use self::outcome::{InKernel, Outcome};
pub(super) use self::recall::begin_child;
pub use self::recall::{any as are_any_kept, keep_no_locks_of};
pub use self::waiting::{Waiting, all_calls_are_seen};
use super::AtomicFile;
use crate::error::{Error, Result};
pub use crate::file::state::lock_ranges::{Kind, Lock, Owner, Range};
use crate::file::state::lock_state::Table;
pub(super) use crate::file::state::lock_state::{IN_MEMORY, Locks};
use crate::settings::LocksChoice;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Calls in the kernel after which the lease is wanted for the locks.
const CALLS_BEFORE_LEASE: u32 = 64;
/// The most unlocks between attempts to move to memory.
const PAUSE_MAX: u32 = 64;
/// Attempts, a millisecond apart, to make locks in a kernel without memory for them.
const ATTEMPTS: u32 = 100;

impl AtomicFile {
    /// Sets `lock`, or with `kind` `None` removes it. `waits`: it may wait for others.
    pub fn set_lock(self: &Arc<Self>, owner: Owner, kind: Option<Kind>, range: Range, waits: bool) -> Outcome<'_, ()> {
        self.in_memory(Whose::of(owner), |table| {
            if table.kept.is_some() {
                return self.set_kept(table, owner, kind, range);
            }
            let Some(kind) = kind else {
                table.ranges.unset(owner, range);
                return Some(Ok(()));
            };
            let lock = Lock { owner, kind, range };
            match table.ranges.conflict(lock) {
                None => table.ranges.set(lock),
                Some(_) if waits => return None,
                Some(_) => return Some(Err(libc::EAGAIN)),
            }
            Some(Ok(()))
        })
    }

    /// The first lock that conflicts with `lock`.
    pub fn find_conflict(self: &Arc<Self>, lock: Lock) -> Outcome<'_, Option<Lock>> {
        self.in_memory(Whose::of(lock.owner), |table| {
            table.kept.is_none().then(|| Ok(table.ranges.conflict(lock))) // other processes' are in the kernel
        })
    }

    /// `flock` for the description with that number. `kind` `None`: unlocks.
    pub fn set_flock(self: &Arc<Self>, description: usize, kind: Option<Kind>) -> Outcome<'_, ()> {
        let outcome = self.in_memory(Whose::Description, |table| {
            match kind {
                _ if table.kept.is_some() => return None,
                Some(kind) if table.flock.is_none_or(|(other, _)| other == description) => {
                    table.flock = Some((description, kind));
                }
                Some(_) => return None, // of a description that is being closed
                None if table.flock.is_some_and(|(other, _)| other == description) => table.flock = None,
                None => {}
            }
            Some(Ok(()))
        });
        if let (Outcome::Kernel(_), Some(_)) = (&outcome, kind) {
            self.locks.flocks.fetch_add(1, Ordering::AcqRel);
        }
        outcome
    }

    /// The number of `flock` calls that had locked before an unlock began, for [`flock_ended`](Self::flock_ended).
    pub fn flocks(&self) -> u32 {
        self.locks.flocks.load(Ordering::Acquire)
    }

    /// The kernel has unlocked what those calls had locked by one description. If there are several, others may have
    /// locked, too.
    pub fn flock_ended(&self, flocks: u32) {
        if !self.fds.are_several() {
            self.locks.flocks_ended.store(flocks, Ordering::Release);
        }
    }

    /// The locks have to be the kernel's for this call.
    pub fn locks_in_kernel(self: &Arc<Self>) -> Outcome<'_, ()> {
        self.in_memory(Whose::Description, |_| None)
    }

    /// Carries out a call on the locks in memory, if they are there. `None`: the kernel has to do it.
    fn in_memory<T>(
        self: &Arc<Self>,
        whose: Whose,
        call: impl FnOnce(&mut Table) -> Option<core::result::Result<T, i32>>,
    ) -> Outcome<'_, T> {
        if whose == Whose::Description
            && self.fds.are_joined()
            && let Err(error) = self.split_for_locks()
        {
            return Outcome::Done(Err(error.errno()));
        }
        if let Some(in_kernel) = self.enter_kernel() {
            return Outcome::Kernel(in_kernel);
        }
        if let Err(error) = Self::may_wait() {
            return Outcome::Done(Err(error.errno()));
        }
        let mut table = self.locks.table.lock();
        while whose == Whose::Description && self.has_locks_in_memory() && self.fds.are_joined() {
            drop(table); // joined meanwhile
            if let Err(error) = self.split_for_locks() {
                return Outcome::Done(Err(error.errno()));
            }
            table = self.locks.table.lock();
        }
        if self.has_locks_in_memory() {
            if let Some(done) = call(&mut table) {
                return Outcome::Done(done);
            }
            if table.kept.is_some() {
                self.end_kept_locks(&mut table);
            } else {
                if let Err(error) = self.move_to_kernel(&mut table) {
                    return Outcome::Done(Err(error.errno()));
                }
                table.rest();
            }
        }
        self.locks.place.fetch_add(1, Ordering::AcqRel); // under the lock of the table: no thread moves to memory
        Outcome::Kernel(InKernel::of(self))
    }

    /// For a call that goes to the kernel, if the locks are there.
    fn enter_kernel(self: &Arc<Self>) -> Option<InKernel<'_>> {
        if self.has_locks_in_memory() {
            return None;
        }
        let in_kernel = InKernel::of(self);
        if self.locks.place.fetch_add(1, Ordering::AcqRel) & IN_MEMORY != 0 {
            return None; // its drop takes the count back
        }
        let calls = self.locks.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.locks.calls.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(CALLS_BEFORE_LEASE) && self.settings.locks == LocksChoice::Auto {
            self.with_session(|session| self.lease.want_for_locks(session));
            self.count_lock_calls();
        }
        Some(in_kernel)
    }

    #[doc(hidden)]
    pub fn has_locks_in_memory(&self) -> bool {
        self.locks.place.load(Ordering::Acquire) & IN_MEMORY != 0
    }

    /// The lease was taken: from here on locks may be in memory.
    pub(super) fn lease_covers_locks(&self) {
        if self.settings.locks == LocksChoice::Auto {
            let mut table = self.locks.table.lock();
            self.end_kept_locks(&mut table);
            table.leased = true;
            drop(table);
            self.locks.leased.store(true, Ordering::Release);
            self.try_memory();
        }
    }

    /// Moves to memory, if the kernel has no lock of ours and no call that may set one.
    #[cold]
    fn try_memory(&self) {
        let locks = &self.locks;
        let mut table = locks.table.lock();
        if table.pause > 0 {
            table.pause -= 1;
            return;
        }
        // First the word, then the look: a call that comes meanwhile waits for the table.
        if !table.leased || locks.place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        if self.has_none_in_kernel() {
            table.next_pause = 0;
        } else {
            locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
            table.rest();
        }
    }

    /// Whether there is no lock on the file, as far as the kernel knows. No thread of this process sets one
    /// meanwhile.
    fn has_none_in_kernel(&self) -> bool {
        let locks = &self.locks;
        let has_flock = locks.flocks.load(Ordering::Acquire) != locks.flocks_ended.load(Ordering::Acquire);
        !has_flock && self.fds.with(false, |fd| Ok(kernel::has_none(fd))).unwrap_or(false)
    }

    /// The lease is about to be released, or is lost: makes the locks in the kernel; then `give_up` releases it. It
    /// gets the descriptor if descriptions are joined.
    pub(super) fn move_locks_to_kernel(&self, give_up: impl FnOnce(Option<BorrowedFd<'_>>)) {
        let mut table = self.locks.table.lock();
        self.end_kept_locks(&mut table);
        table.leased = false;
        self.locks.leased.store(false, Ordering::Release);
        if let Some(split) = self.fds.split() {
            return self.move_to_kernel_and_split(&mut table, split, give_up);
        }
        if self.has_locks_in_memory() {
            self.make_in_kernel(&mut table, |file, table| file.move_to_kernel(table));
        }
        drop(table);
        give_up(None);
    }

    /// Makes all locks in the kernel by `make`, or reports that they are lost.
    fn make_in_kernel(&self, table: &mut Table, make: impl Fn(&Self, &mut Table) -> Result<()>) {
        let mut attempts = 0;
        while let Err(error) = make(self, table) {
            attempts += 1;
            if error.errno() == libc::ENOLCK && attempts < ATTEMPTS {
                let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
                continue;
            }
            self.say_lost(&error);
            // Other processes may write now to what this process believes it has locked: it must not go on writing.
            self.with_session(|session| session.arena.shared().poisoned.store(1, Ordering::Release));
            self.locks.are_lost.store(true, Ordering::Release);
            table.forget();
            self.locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        }
    }

    /// Before a session begins, or a growing file is changed.
    ///
    /// # Errors
    /// `EIO`: locks of the program on the file were lost.
    #[inline]
    pub(in crate::file) fn check_locks_are_kept(&self) -> Result<()> {
        if !self.locks.are_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = "its locks could not be kept while another program opened it, which may have them now; close it, and open it again";
        Err(self.named(Error::with(libc::EIO, what)))
    }

    #[cold]
    fn say_lost(&self, error: &Error) {
        let errno: &[u8] = match error.errno() {
            libc::ENOLCK => b"ENOLCK",
            libc::EAGAIN => {
                b"another program has locked it: this process did not answer in time, /proc/sys/fs/lease-break-time"
            }
            _ => b"an error of fcntl(2)",
        };
        crate::sys::notice_parts(&[
            self.path.to_bytes(),
            b": its locks could not be kept while another program opens it (",
            errno,
            b"); writes to it fail with EIO until it is closed",
        ]);
    }

    /// Makes all locks in the kernel. After an error they are in memory as before, and the kernel has none.
    fn move_to_kernel(&self, table: &mut Table) -> Result<()> {
        match self.fds.with(false, |fd| self.set_in_kernel(table, fd)) {
            Err(error) if error.errno() != libc::EBADF => return Err(error),
            _ => {} // without a descriptor the program has no lock
        }
        self.are_moved(table);
        self.locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        Ok(())
    }

    fn set_in_kernel(&self, table: &Table, fd: BorrowedFd<'_>) -> Result<()> {
        let made = (|| {
            for lock in table.ranges.iter() {
                #[cfg(test)]
                self.locks.refuse()?;
                kernel::set(fd, *lock)?;
            }
            table.flock.map_or(Ok(()), |(_, kind)| kernel::flock(fd, Some(kind)))
        })();
        if made.is_err() {
            table.ranges.iter().for_each(|lock| kernel::unset_all(fd, lock.owner));
        }
        made
    }

    fn are_moved(&self, table: &mut Table) {
        if table.flock.is_some() {
            self.locks.flocks.fetch_add(1, Ordering::AcqRel);
        }
        if !table.ranges.is_empty() {
            self.locks.keeping.granted.fetch_add(1, Ordering::AcqRel);
        }
        table.forget();
    }

    /// The program closes a descriptor of the file: the process's record locks go, whichever descriptor they were set
    /// by.
    pub(super) fn drop_process_locks(&self) {
        self.drop_locks(|table| table.ranges.unset_all(Owner::Process));
    }

    /// The description is not in use any more.
    pub fn drop_description_locks(&self, description: usize) {
        self.drop_locks(|table| {
            table.ranges.unset_all(Owner::Description(description));
            table.flock = table.flock.filter(|&(owner, _)| owner != description);
        });
    }

    /// The last descriptor `fd` of that description is about to be closed: ends its locks in memory and in the
    /// kernel, which would keep them as long as the library's map of the file, made by that description.
    pub fn end_description_locks(&self, description: usize, fd: BorrowedFd<'_>) {
        self.drop_description_locks(description);
        kernel::unset_all(fd, Owner::Description(description));
        let _ = kernel::flock(fd, None); // needs no memory, and does not wait
    }

    fn drop_locks(&self, drop: impl FnOnce(&mut Table)) {
        // In a signal handler that is not behind ours and has interrupted a call, the locks stay until the session
        // ends.
        if self.has_locks_in_memory() && Self::may_lock().is_ok() {
            drop(&mut self.locks.table.lock());
        }
    }
}

#[cfg(test)]
impl Locks {
    fn refuse(&self) -> Result<()> {
        let has_some =
            self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if has_some { Err(Error::new(libc::ENOLCK)) } else { Ok(()) }
    }
}

impl Table {
    fn forget(&mut self) {
        self.ranges.clear();
        self.flock = None;
    }

    /// Delays the next attempt to move to memory.
    fn rest(&mut self) {
        self.next_pause = (self.next_pause * 2 + 1).min(PAUSE_MAX);
        self.pause = self.next_pause;
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::listed;
