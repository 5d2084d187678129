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
use crate::file::state::deferred::{Slot, StandIn, is_closed_often};
use crate::index::{FlushWanted, FlushWords, Shared};
use crate::settings::DeferClose;
use crate::sys::{high_duplicate, monotonic_now};
use core::sync::atomic::Ordering;
use rustix::fs::{FlockOperation, Stat, flock, fstat};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Nanoseconds from the program's close to the file's.
const FOR: u64 = 200_000_000;
/// Nanoseconds for which the background goes on looking at a file that the program has opened again.
const OPEN_FOR: u64 = 1_000_000_000;

impl AtomicFile {
    /// The program is about to close `fd`. If that is its last descriptor, and the file one that is closed again and
    /// again, the file stays open.
    pub(super) fn defer_close(&self, fd: RawFd) {
        if !self.fds.begin_close_is_last(fd) || !self.may_defer_close(fd) {
            return;
        }
        let Some(slot) = Slot::reserve() else { return };
        if !self.is_ready_for_deferred_close() {
            return;
        }
        // SAFETY: the program's descriptor, which it closes after this.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let Ok(ours) = high_duplicate(fd) else { return };
        // The description stays, and the program's locks must not.
        let _ = flock(fd, FlockOperation::Unlock);
        crate::sys::locks::unlock(fd, 0..0);
        ours.keep_in_children();
        let access = self.fds.access_of(fd.as_raw_fd());
        let is_watched = self.deferred.due.swap(monotonic_now() + FOR, Ordering::AcqRel) != 0;
        let mut stand_in = self.deferred.stand_in.lock();
        let number = ours.as_raw_fd();
        self.deferred.number.store(number, Ordering::Release);
        self.fds.add(number, access);
        *stand_in = Some(StandIn::new(ours, slot));
        drop(stand_in);
        if !is_watched {
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
            && self.settings.defer_close == DeferClose::Auto
            && self.settings.group.is_none()
            && self.settings.pool.is_none()
            && !self.is_demoted()
            && !self.lease.is_barred() // as long as it is open
            && background_wakeup::is_there()
            && is_closed_often(self.key())
            && !is_mapped(self.key())
            && self.fds.is_known(fd) // no other process has its description
            && stat().is_ok_and(fits)
            && self.has_fine_times()
    }

    /// Does what a close promises, but for the end of the session. Whether the rest can wait.
    fn is_ready_for_deferred_close(&self) -> bool {
        let membership = &self.ownership.membership;
        // First: a process that closes the file now, too, must not leave to this one what is not committed.
        membership.set_writes(false);
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
    fn exact_file(&self) -> Option<[u64; 3]> {
        let membership = &self.ownership.membership;
        if !membership.has_unowned() {
            return None;
        }
        let number = membership.arena();
        if let Some(left) = self.inner().left.as_ref().filter(|left| left.arena_number == number) {
            return exact(left.arena.shared());
        }
        let joined = self.ownership.joined.lock();
        joined.as_ref().filter(|joined| joined.is_current(membership)).and_then(|joined| exact(joined.shared()))
    }

    /// Commits, brings the file to that, and leaves the session.
    fn leave_exact(&self) -> bool {
        if !self.fds.has_writable()
            || self.sync_all(|| false).is_err()
            || self.state.load(Ordering::Acquire) != ATTACHED
            || self.with_session(|session| self.is_all_in_file(session)) != Some(true)
        {
            return false;
        }
        if !self.leave_to_any().unwrap_or(false) {
            // The session stays here, and the background answers those that want it.
            self.with_session(|session| session.arena.shared().exact.store(0, Ordering::Release));
        }
        true
    }

    /// Brings the kernel's file, durably, to what is committed. Whether it is exactly that then; the next generation of
    /// the session finds it noted.
    fn is_all_in_file(&self, session: &Session) -> bool {
        let words = FlushWords::default();
        let flushed = session.flush(&self.fds, &FlushWanted::new(&words), &FlushTries::default(), &|| true);
        let shared = session.arena.shared();
        let size = shared.size();
        let Some(stat) = self.fds.stat().ok().filter(|stat| stat.st_size as u64 == size) else { return false };
        if !flushed.is_ok_and(|step| step == FlushStep::Done) {
            return false;
        }
        shared.exact_file.iter().zip(seen(&stat)).for_each(|(to, word)| to.store(word, Ordering::Release));
        shared.exact.store(shared.generation.load(Ordering::Acquire) + 1, Ordering::Release);
        true
    }

    /// Of a session that has no owner: whether another program has changed the file since it was exact.
    pub(in crate::file) fn has_changed_since_exact(&self, shared: &Shared) -> bool {
        exact(shared).is_some_and(|exact| self.fds.stat().is_ok_and(|stat| seen(&stat) != exact))
    }

    /// The program opens the file: ends a session without owner if another program has changed the file meanwhile. To
    /// look into the session again is to find that it has ended.
    pub(in crate::file) fn look_at_exact_file(&self) {
        let is_changed = |exact: [u64; 3]| self.fds.stat().is_ok_and(|stat| seen(&stat) != exact);
        if self.exact_file().is_some_and(is_changed) {
            let mut inner = self.inner();
            if let Ok(false) = self.acquire_ownership_or_session(&mut inner) {
                self.release_owner_lock(&mut inner);
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
        self.fds.forget_number(number);
        self.lease_leaves(number);
        self.lease.state().failures = 0;
        drop(stand_in);
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
            self.fds.forget_number(number);
            self.fds.keep_until_close(stand_in.into_fd());
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
        self.deferred.stand_in.lock().is_some()
            && membership.has_unowned()
            && !membership.has_other_writers()
            && self.exact_file().is_none()
    }
}

/// As [`AtomicFile::exact_file`], of one session.
fn exact(shared: &Shared) -> Option<[u64; 3]> {
    let is_exact = shared.exact.load(Ordering::Acquire) == shared.generation.load(Ordering::Acquire);
    is_exact.then(|| shared.exact_file.each_ref().map(|word| word.load(Ordering::Acquire)))
}

fn seen(stat: &Stat) -> [u64; 3] {
    [stat.st_size as u64, stat.st_ctime as u64, stat.st_ctime_nsec]
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
