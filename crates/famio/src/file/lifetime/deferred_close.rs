//! A close that is deferred: a program that closes a file and opens it again and again, as one that connects to its
//! database for each request, would begin and end a session each time. So the process stays a member, by a descriptor
//! of the library that stands in for the program's, until the file is opened again or the background closes it.
//!
//! What a close promises holds at once: unless others have the file open to write, everything is committed, and other
//! programs see all of it in the file; the program's locks are gone. The process owns nothing that others could wait for
//! (but for a session under the lease).
//!
//! From then until the next owner comes, the file is *exact*, and a program without this library may change it. So the
//! next owner compares its size and time of change with those of the exact file, and if they differ ends the session
//! without touching the file.

use crate::file::atomic::{ATTACHED, AtomicFile};
use crate::file::base::background_wakeup;
use crate::file::registry::files;
use crate::file::session::Session;
use crate::file::session::flush::FlushStep;
use crate::file::session::flush_tries::FlushTries;
use crate::file::shadow::is_mapped;
use crate::file::state::deferred::{Slot, StandIn, is_closed_often, is_exact};
use crate::index::{Exact, FlushWanted, FlushWords, Shared};
use crate::settings::{DeferClose, OnKill};
use crate::sys::{high_duplicate, monotonic_now};
use core::sync::atomic::Ordering;
use rustix::fs::{FlockOperation, Stat, flock, fstat};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Nanoseconds from the program's close to the file's.
const FOR: u64 = 200_000_000;
/// The age in nanoseconds from which a session is to end with the next close: some processes wait for that, as those
/// that cannot share memory with this one.
const AGE_MAX: u64 = 1_000_000_000;
/// More processes than these have the file open: places for them are few.
const MEMBERS_MAX: usize = 16;
/// Nanoseconds for which the background goes on looking at a file that the program has opened again.
const OPEN_FOR: u64 = 1_000_000_000;

/// Whether to wait for threads that hold a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

impl AtomicFile {
    /// The program is about to close `fd`. If that is its last descriptor, and the file one that is closed again and
    /// again, the file stays open.
    pub(super) fn defer_close(&self, fd: RawFd) {
        if self.settings.defer_close == DeferClose::Never
            || !self.fds.begin_close_is_last(fd)
            || !self.may_defer_close(fd)
        {
            return;
        }
        let Some(slot) = Slot::reserve() else { return };
        // To the end: no thread opens the file meanwhile, and it is deferred for all or for none.
        let _files = files();
        if !self.fds.begin_close_is_last(fd) {
            return;
        }
        // SAFETY: the program's descriptor, which it closes after this.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let Some(ours) = self.is_ready_for_deferred_close().then(|| high_duplicate(fd).ok()).flatten() else {
            self.ownership.membership.set_writes(self.fds.has_writable());
            return;
        };
        // The description stays, and the program's locks must not.
        let _ = flock(fd, FlockOperation::Unlock);
        crate::sys::locks::unlock(fd, 0..0);
        ours.keep_in_children();
        let number = ours.as_raw_fd();
        self.fds.add(number, self.fds.access_of(fd.as_raw_fd()));
        self.deferred.number.store(number, Ordering::Release);
        *self.deferred.stand_in.lock() = Some(StandIn::new(ours, slot));
        if self.deferred.due.swap(monotonic_now() + FOR, Ordering::AcqRel) == 0 {
            background_wakeup::wake(); // to look at it from time to time from now on
        }
    }

    /// All that can be known without doing anything.
    fn may_defer_close(&self, fd: RawFd) -> bool {
        // SAFETY: not -1, and only queried.
        let stat = || fstat(unsafe { BorrowedFd::borrow_raw(fd) });
        // Another program could not be told from this one if times were coarse. A file without a name is not to stay,
        // and one that is open for writing could not be executed.
        let fits =
            |stat: Stat| (stat.st_dev, stat.st_ino) == self.key() && stat.st_nlink > 0 && stat.st_mode & 0o111 == 0;
        self.ownership.membership.is_attached()
            && self.settings.group.is_none()
            && self.settings.pool.is_none()
            && self.settings.on_kill == OnKill::Rollback
            && !self.is_demoted()
            && !self.lease.is_barred() // as long as it is open
            && background_wakeup::is_there()
            && is_closed_often(self.key())
            && !is_mapped(self.key())
            && self.fds.is_known(fd) // no other process has its description
            && self.ownership.membership.count() <= MEMBERS_MAX
            && self.by_shared(Wait::Yes, is_young).unwrap_or(false)
            && stat().is_ok_and(fits)
            && self.has_fine_times()
    }

    /// Does what a close promises, but for the end of the session. Whether the rest can wait.
    fn is_ready_for_deferred_close(&self) -> bool {
        let membership = &self.ownership.membership;
        membership.stop_writing();
        if membership.has_other_writers() {
            // It is left to them, as by any close.
            if self.ownership.is_owner.load(Ordering::Acquire) && self.hand_over_ownership().is_err() {
                return false;
            }
        } else if self.exact_file().is_none() && !self.leave_exact() {
            return false;
        }
        membership.end_tenure();
        true
    }

    /// The size and the time of change that the file had when the last owner left the session, with everything committed
    /// and in the file. `None`: it is not so.
    fn exact_file(&self) -> Option<Exact> {
        if !self.ownership.membership.has_unowned() {
            return None;
        }
        self.by_shared(Wait::Yes, Shared::exact_file).flatten()
    }

    /// The kernel's metadata of the file, if the program has closed it, and no process has written to it since: then the
    /// kernel's are right. This waits for no lock of the session.
    pub(crate) fn stat_closed_exactly(&self) -> Option<Stat> {
        if self.deferred.due.load(Ordering::Acquire) == 0 || !self.ownership.membership.has_unowned() {
            return None;
        }
        let exact = || {
            let is_closed = self.deferred.stand_in.try_lock().is_some_and(|stand_in| stand_in.is_some());
            self.by_shared(Wait::No, Shared::exact_file).flatten().filter(|_| is_closed)
        };
        let before = exact()?;
        self.fds.stat().ok().filter(|_| exact() == Some(before))
    }

    /// What the processes of the session agree on. `None`: this process has no part of it; or another thread is changing
    /// that.
    fn by_shared<T>(&self, wait: Wait, look: impl Fn(&Shared) -> T) -> Option<T> {
        if let Some(seen) = self.with_session(|session| look(session.arena.shared())) {
            return Some(seen);
        }
        let membership = &self.ownership.membership;
        let number = membership.arena();
        let inner = if wait == Wait::Yes { self.inner() } else { self.inner.try_lock()? };
        if let Some(left) = inner.left.as_ref().filter(|left| left.arena_number == number) {
            return Some(look(left.arena.shared()));
        }
        drop(inner);
        let joined = &self.ownership.joined;
        let joined = if wait == Wait::Yes { joined.lock() } else { joined.try_lock()? };
        joined.as_ref().filter(|joined| joined.is_current(membership)).map(|joined| look(joined.shared()))
    }

    /// Commits, brings the file to that, and leaves the session.
    fn leave_exact(&self) -> bool {
        if !self.fds.has_writable()
            || self.sync_all(|| false).is_err()
            || self.state.load(Ordering::Acquire) != ATTACHED
        {
            return false;
        }
        self.lease.give_up(self, &mut self.lease.state()); // with it, the session could not be left
        let committed = self.with_session(|session| self.bring_to_file(session)).flatten();
        committed.is_some_and(|committed| self.leave_to_any(committed).unwrap_or(false))
    }

    /// Brings the kernel's file, durably, to what is committed. Returns the epoch that was the last then.
    fn bring_to_file(&self, session: &Session) -> Option<u64> {
        let committed = session.arena.shared().committed();
        let words = FlushWords::default();
        let flushed = session.flush(&self.fds, &FlushWanted::new(&words), &FlushTries::default(), &|| true);
        flushed.is_ok_and(|step| step == FlushStep::Done).then_some(committed)
    }

    /// The program opens the file: ends a session without owner if another program has changed the file meanwhile. To
    /// look into the session again is to find that it has ended.
    fn look_at_exact_file(&self) {
        let is_changed = || self.exact_file().is_some_and(|exact| !is_exact(&self.fds, exact));
        if is_changed() {
            self.end_unowned_at_once();
            if is_changed() {
                *self.ownership.joined.lock() = None; // who may not end it does not read it along any more
            }
        }
    }

    /// The program has opened the file again, and cannot have locks yet, which the close of the stand-in would drop. The
    /// caller holds the list of files.
    pub(super) fn is_open_again(&self) {
        if self.deferred.due.load(Ordering::Acquire) == 0 {
            return;
        }
        self.deferred.due.store(monotonic_now() + OPEN_FOR, Ordering::Release);
        let Some(stand_in) = self.deferred.stand_in.lock().take() else { return };
        let number = self.deferred.number.load(Ordering::Acquire);
        self.fds.replace_stand_in(number, stand_in.into_fd());
        self.lease_leaves(number);
        self.lease.state().failures = 0;
        self.look_at_exact_file();
    }

    /// Closes the file if its deferred close is due, or at once (`now`). Returns whether there is more to do later.
    pub(in crate::file) fn end_deferred_close(&self, now: bool) -> bool {
        let is_later = |due: u64| !now && due > monotonic_now() && !self.is_left_to_this_one();
        match self.deferred.due.load(Ordering::Acquire) {
            0 => return false,
            due if is_later(due) => return true,
            _ => {}
        }
        // To the end: an open that comes meanwhile returns after the descriptor is closed, which would drop the locks
        // that the program takes then.
        let mut files = files();
        if is_later(self.deferred.due.load(Ordering::Acquire)) {
            return true; // it has just been opened
        }
        self.deferred.due.store(0, Ordering::Release);
        let Some(stand_in) = self.deferred.stand_in.lock().take() else { return false };
        let number = self.deferred.number.load(Ordering::Acquire);
        if !self.fds.begin_close_is_last(number) {
            self.fds.leave_stand_in(number, stand_in.into_fd());
            return false;
        }
        if let Err(error) = self.close_last(&mut files) {
            crate::sys::notice(&format!("{}: closed, but its journal is left: {error}", self.path.to_string_lossy()));
        }
        self.fds.remove(number, false);
        self.lease_leaves(number);
        self.ownership.membership.set_writes(false);
        drop(stand_in);
        drop(files);
        false
    }

    /// Whether those that had the file open to write have closed it, and have left to this process what is not committed.
    fn is_left_to_this_one(&self) -> bool {
        let membership = &self.ownership.membership;
        self.inner.try_lock().is_some() // otherwise a thread is about to change that
            && self.deferred.stand_in.lock().is_some()
            && membership.has_unowned()
            && !membership.has_other_writers()
            && self.exact_file().is_none()
    }
}

fn is_young(shared: &Shared) -> bool {
    monotonic_now() < shared.begun.load(Ordering::Acquire) + AGE_MAX
}

/// Whether the close of any file is deferred.
pub(crate) fn any_deferred_close() -> bool {
    StandIn::any()
}

/// Makes the closes that are deferred: of the file `key`, or of all. Before a fork, whose child could not open such a
/// file, and before a name goes.
pub(crate) fn end_deferred_closes(key: Option<(u64, u64)>) {
    if !any_deferred_close() {
        return;
    }
    let is_wanted = |file: &&Arc<AtomicFile>| key.is_none_or(|key| key == file.key());
    let all: Vec<Arc<AtomicFile>> = files().values().filter(is_wanted).cloned().collect();
    for file in all {
        file.end_deferred_close(true);
    }
}
