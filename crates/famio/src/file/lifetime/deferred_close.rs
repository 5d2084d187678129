//! A close that is deferred: a program that closes a file and opens it again and again, as one that connects to its
//! database for each request, would begin and end a session each time. So the process stays a member, by a descriptor
//! of the library that stands in for the program's, until the file is opened again or the background closes it.
//!
//! What a close promises holds at once: everything is committed, other programs see all of it in the file, and the
//! program's locks are gone. The process owns nothing that others could wait for. If it is killed, nothing is lost.

use crate::file::atomic::{ATTACHED, AtomicFile};
use crate::file::base::background_wakeup;
use crate::file::registry::files;
use crate::file::session::flush::FlushStep;
use crate::file::session::flush_tries::FlushTries;
use crate::file::shadow::is_mapped;
use crate::file::state::deferred::{StandIn, is_closed_often};
use crate::index::{FlushWanted, FlushWords};
use crate::settings::DeferClose;
use crate::sys::{high_duplicate, monotonic_now};
use core::sync::atomic::Ordering;
use rustix::fs::{FlockOperation, flock, fstat};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Nanoseconds from the program's close to the file's.
const FOR: u64 = 200_000_000;
/// Nanoseconds from the next open until the file is not one any more that is closed soon.
const OPEN_FOR: u64 = 1_000_000_000;

impl AtomicFile {
    /// The program is about to close `fd`. If that is its last descriptor, and the file one that is closed again and
    /// again, the file stays open.
    pub(super) fn defer_close(&self, fd: RawFd) {
        let stand_in = self.stand_in();
        if !self.fds.begin_close_is_last_but(fd, stand_in) {
            return;
        }
        if !self.may_defer_close() || !self.is_ready_for_deferred_close() {
            return self.do_not_defer();
        }
        // SAFETY: the program's descriptor, which it closes after this.
        if stand_in.is_none() && !self.stand_in_for(unsafe { BorrowedFd::borrow_raw(fd) }) {
            return;
        }
        self.deferred.due.store(monotonic_now() + FOR, Ordering::Release);
        if stand_in.is_none() {
            background_wakeup::wake(); // to look at it from time to time from now on
        }
    }

    /// The number of the descriptor that stands in.
    fn stand_in(&self) -> Option<RawFd> {
        self.deferred.stand_in.lock().as_ref().map(|stand_in| stand_in.0.as_raw_fd())
    }

    fn may_defer_close(&self) -> bool {
        self.ownership.membership.is_attached()
            && self.settings.defer_close == DeferClose::Auto
            && self.settings.group.is_none()
            && self.settings.pool.is_none()
            && !self.is_demoted()
            && !is_mapped(self.key())
            && background_wakeup::is_there()
            && is_closed_often(self.key())
    }

    /// Does what a close promises, but for the end of the session. Whether the rest can wait.
    fn is_ready_for_deferred_close(&self) -> bool {
        let membership = &self.ownership.membership;
        if self.ownership.is_owner.load(Ordering::Acquire) {
            if self.sync().is_err() || self.state.load(Ordering::Acquire) != ATTACHED || !self.is_all_in_file() {
                return false;
            }
            let _ = self.hand_over_ownership(); // or it stays here, and the background answers those that want it
        } else if !membership.has_others() {
            return false;
        }
        membership.end_tenure();
        true
    }

    /// Brings the kernel's file, durably, to what is committed; whether it is exactly that then.
    fn is_all_in_file(&self) -> bool {
        let Some(session) = self.session() else { return false };
        let words = FlushWords::default();
        let flushed = session.flush(&self.fds, &FlushWanted::new(&words), &FlushTries::default(), &|| true);
        let size = session.arena.shared().size();
        flushed.is_ok_and(|step| step == FlushStep::Done)
            && self.fds.with_size(|_, kernels| Ok(kernels == size)).unwrap_or(false)
    }

    /// Stands in for `fd` from now on, without its locks.
    fn stand_in_for(&self, fd: BorrowedFd<'_>) -> bool {
        if !self.fds.is_known(fd.as_raw_fd()) {
            return false; // another process may have its description, with its locks
        }
        // A file without a name is not to stay, and one that is open for writing cannot be executed.
        if !fstat(fd).is_ok_and(|stat| stat.st_nlink > 0 && stat.st_mode & 0o111 == 0) {
            return false;
        }
        let Some(stand_in) = high_duplicate(fd).ok().and_then(StandIn::new) else { return false };
        let _ = flock(fd, FlockOperation::Unlock);
        crate::sys::locks::unlock(fd, 0..0); // all of it
        stand_in.0.keep_in_children();
        let access = self.fds.access_of(fd.as_raw_fd());
        let mut place = self.deferred.stand_in.lock();
        self.fds.add(stand_in.0.as_raw_fd(), access);
        *place = Some(stand_in);
        true
    }

    /// The program's close is the file's.
    fn do_not_defer(&self) {
        self.deferred.due.store(0, Ordering::Release);
        if let Some(stand_in) = self.deferred.stand_in.lock().take() {
            self.fds.leave(stand_in.into_fd());
        }
    }

    /// The program has opened the file again.
    pub(super) fn keep_after_deferred_close(&self) {
        if self.deferred.due.load(Ordering::Acquire) != 0 {
            self.deferred.due.store(monotonic_now() + OPEN_FOR, Ordering::Release);
        }
    }

    /// Closes the file if its deferred close is due, or at once (`now`). If the program has it open, it only forgets
    /// that it was closed often. Returns whether there is more to do later.
    pub(in crate::file) fn end_deferred_close(&self, now: bool) -> bool {
        let is_later = |due: u64| !now && due > monotonic_now();
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
        let ours = stand_in.into_fd();
        let fd = ours.as_raw_fd();
        if !self.fds.begin_close_is_last(fd) {
            self.fds.leave(ours);
            return false;
        }
        if let Err(error) = self.close_last(&mut files) {
            crate::sys::notice(&format!("{}: closed, but its journal is left: {error}", self.path.to_string_lossy()));
        }
        self.fds.remove(fd, false);
        self.lease_leaves(fd);
        self.ownership.membership.set_writes(false);
        drop(ours);
        drop(files);
        false
    }
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
    let all: Vec<Arc<AtomicFile>> =
        files().values().filter(|file| key.is_none_or(|key| key == file.key())).cloned().collect();
    for file in all {
        file.end_deferred_close(true);
    }
}
