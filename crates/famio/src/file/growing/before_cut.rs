//! Checks before a growing file is cut to its committed size to get a session: the part cut off then lies only in
//! memory or in a nameless file, and without a session it has to be put back.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, DEMOTED, GROWING};
use crate::file::session::attach::is_out_of_reach;
use crate::file::state::growing_state::State;
use crate::journal::has_lost_its_name;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

/// Bytes that a journal takes at least, and others may take meanwhile.
const JOURNAL_MIN: u64 = 1 << 20;

impl AtomicFile {
    /// If a growing file can have no session, commits it as it is and demotes it. Returns whether it did.
    ///
    /// # Errors
    /// There can be no session now, and the file goes on growing.
    pub(in crate::file) fn demote_instead_of_cut(&self) -> Result<bool> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(false);
        }
        match self.check_session_can_begin() {
            Err(error) if error.is_nameless() && self.leave_without_name(&error)? => Ok(true),
            Err(error) if is_out_of_reach(error.errno()) && self.leave_growing(&error) => Ok(true),
            Err(error) => Err(self.named(error)),
            Ok(()) => self.check_room().map(|()| false),
        }
    }

    /// Demotes a growing file that has lost its name: a journal could not be found after a crash. Without any other
    /// name it does not survive one. Returns whether it did.
    #[cold]
    fn leave_without_name(&self, error: &Error) -> Result<bool> {
        let (has_lost_it, names) =
            self.fds.with(true, |fd| Ok((has_lost_its_name(fd), rustix::fs::fstat(fd)?.st_nlink)))?;
        if names == 0 {
            return Ok(self.end_session_as(DEMOTED).is_ok());
        }
        Ok(has_lost_it && self.settings.group.is_none() && self.leave_growing(error))
    }

    /// The open epoch takes its space a second time on its way, and others may take some meanwhile.
    fn check_room(&self) -> Result<()> {
        let growing = self.growing.state.lock();
        let Some(state) = growing.as_ref().filter(|state| state.is_marked()) else { return Ok(()) };
        self.fds.with(true, |fd| state.check_room(fd)).map_err(|e| self.named(e))
    }
}

impl State {
    fn check_room(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        let allocated = stat.st_blocks as u64 * 512; // fewer if there are holes
        let open = (stat.st_size as u64).saturating_sub(self.committed()).min(allocated);
        let needed = open + (open / 4).max(JOURNAL_MIN);
        let system = rustix::fs::fstatfs(fd)?;
        let free = system.f_bavail.saturating_mul(system.f_bsize as u64);
        // A file system that reports no number has no known limit.
        if open == 0 || system.f_blocks == 0 || free >= needed {
            return Ok(());
        }
        let what = format!(
            "its file system has {free} bytes free, and a journal for what was written since its last SYNC takes {needed}"
        );
        Err(Error::with(libc::ENOSPC, what))
    }
}
