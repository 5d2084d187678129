//! What is asked before a growing file is cut to what is committed, to have a session: what is cut off is only in memory or in a file
//! without a name then, and where there can be no session it has to be put back.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, GROWING};
use crate::file::parts::growing_state::State;
use crate::file::session::attach::is_out_of_reach;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

/// Bytes that a journal takes in any case, and others may take meanwhile.
const JOURNAL_MIN: u64 = 1 << 20;

impl AtomicFile {
    /// A growing file that can have no session is committed as it is, and the kernel's from here on. Whether it is.
    ///
    /// # Errors
    /// There can be no session now, and the file goes on growing.
    pub(in crate::file) fn is_left_instead_of_cut(&self) -> Result<bool> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(false);
        }
        match self.check_session_can_begin() {
            Err(error) if is_out_of_reach(error.errno()) && self.leave_growing(&error) => Ok(true),
            Err(error) => Err(self.named(error)),
            Ok(()) => self.check_room().map(|()| false),
        }
    }

    /// The open epoch takes room a second time on its way, and others may take some meanwhile.
    fn check_room(&self) -> Result<()> {
        let growing = self.growing.state.lock();
        let Some(state) = growing.as_ref().filter(|state| state.is_marked()) else { return Ok(()) };
        self.fds.with(true, |fd| state.check_room(fd)).map_err(|e| self.named(e))
    }
}

impl State {
    fn check_room(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        let allocated = stat.st_blocks as u64 * 512; // fewer where there are holes
        let open = (stat.st_size as u64).saturating_sub(self.committed()).min(allocated);
        let needed = open + (open / 4).max(JOURNAL_MIN);
        let system = rustix::fs::fstatfs(fd)?;
        let free = system.f_bavail.saturating_mul(system.f_bsize as u64);
        // A file system that tells no number has no limit that it knows.
        if open == 0 || system.f_blocks == 0 || free >= needed {
            return Ok(());
        }
        let what = format!(
            "its file system has {free} bytes free, and a journal for what was written since its last SYNC takes {needed}"
        );
        Err(Error::with(libc::ENOSPC, what))
    }
}
