//! The lease of a growing file: taken by the thread that changes it first, answered by the lease thread, as long as the file grows.

use super::kernel::{self, Taken};
use crate::file::base::lease_bell;
use crate::file::parts::lease_state::Lease;
use crate::sys::users::may_come_back;
use std::os::fd::BorrowedFd;

/// The lease thread watches growing files.
pub(in crate::file) struct Watched {
    tid: i32,
}

impl Watched {
    /// The thread is there, and stays, until this is dropped. `None`: there can't be one.
    pub fn begin() -> Option<Self> {
        Some(Self { tid: lease_bell::watch()? })
    }

    /// Which thread that is.
    pub fn thread(&self) -> i32 {
        self.tid
    }

    /// The thread hears of something to look at. Whether it is still the same one.
    pub fn tells(&self) -> bool {
        lease_bell::wake() && lease_bell::is_there(self.tid)
    }

    /// Takes the write lease; whether it did.
    pub fn take(&self, fd: BorrowedFd<'_>) -> bool {
        if kernel::take(fd, self.tid) != Taken::Yes {
            return false;
        }
        let is_there = lease_bell::is_there(self.tid);
        if !is_there {
            kernel::give_up(fd);
        }
        is_there
    }

    /// A file grows from now on, until [`end`](Self::end).
    pub fn goes_on(self) {
        core::mem::forget(self);
    }

    /// A file grows no more.
    pub fn end() {
        lease_bell::unwatch();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        lease_bell::unwatch();
    }
}

impl Lease {
    /// Whether the file's lease is free for a growing file.
    pub fn may_be_had(&self) -> bool {
        let state = self.state();
        !state.barred && !state.resting && state.fd.is_none() && !may_come_back()
    }
}
