//! The lease of a growing file: taken by the thread that changes it first, answered by the lease thread while the
//! file grows.

use super::kernel::{self, Taken};
use crate::file::base::lease_wakeup;
use crate::file::state::lease_state::Lease;
use crate::sys::users::may_come_back;
use std::os::fd::BorrowedFd;

/// Has the lease thread watch growing files.
pub(in crate::file) struct Watched {
    by: lease_wakeup::Watcher,
}

impl Watched {
    /// Starts the thread if needed; it stays until this is dropped. `None`: it cannot be started.
    pub fn begin() -> Option<Self> {
        Some(Self { by: lease_wakeup::watch()? })
    }

    /// The thread's id.
    pub fn thread(&self) -> i32 {
        self.by.tid
    }

    /// Tells the thread to look. Returns whether it is still the same one.
    pub fn tells(&self) -> bool {
        lease_wakeup::wake() && self.by.is_there()
    }

    /// Takes the write lease. `is_seen`: nobody can have used the description but through the library. Returns whether
    /// it did.
    pub fn take(&self, fd: BorrowedFd<'_>, is_seen: bool) -> bool {
        let taken = if is_seen { kernel::take_unused(fd, self.by.tid) } else { kernel::take(fd, self.by.tid) };
        if taken != Taken::Yes {
            return false;
        }
        let is_there = self.by.is_there();
        if !is_there {
            kernel::give_up(fd);
        }
        is_there
    }

    /// The file grows from now on: the lease is watched until [`end`](Self::end).
    pub fn keep_watching(self) {
        core::mem::forget(self);
    }

    /// The file does not grow any more.
    pub fn end() {
        lease_wakeup::unwatch();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        lease_wakeup::unwatch();
    }
}

impl Lease {
    /// Whether a growing file may take the file's lease.
    pub fn may_be_taken(&self) -> bool {
        let state = self.state();
        !state.barred && !state.resting && state.fd.is_none() && !may_come_back()
    }
}
