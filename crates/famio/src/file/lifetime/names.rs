//! The names of an open file change: before and after the kernel's call.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, PLAIN};
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Commits, makes a checkpoint and closes the journal clean, as before a rename; the next write attaches again.
    ///
    /// # Errors
    /// Those of the commit or of the journal's end; the journal then stays, and the file may take no more writes.
    pub fn checkpoint(&self) -> Result<()> {
        self.flush_unmarked()?;
        self.commit_all()
    }

    /// As [`checkpoint`](Self::checkpoint), before the file may lose its last name. By that name it finds the other
    /// processes that have it open, so it attaches to them first. It stays atomic: the call may fail.
    ///
    /// # Errors
    /// Those of `checkpoint`, and of attaching.
    pub(crate) fn checkpoint_while_named(&self) -> Result<()> {
        if self.settings.group.is_none() && !self.is_demoted() && !self.is_disowned() {
            self.look()?;
        }
        if self.fds.stat().is_ok_and(|stat| stat.st_nlink > 1) {
            self.flush_unmarked()?;
        }
        self.commit_all()
    }

    /// The file may have lost its last name: then it does not survive a crash, and is demoted.
    ///
    /// # Errors
    /// Those of [`demote`](Self::demote).
    pub(crate) fn demote_if_nameless(&self) -> Result<()> {
        // A map leads to a shadow until the next write, which finds that the file has no name.
        if self.settings.group.is_some()
            || crate::file::shadow::is_mapped(self.key())
            || self.is_mapped_by_others()
            || !self.fds.stat().is_ok_and(|stat| stat.st_nlink == 0)
        {
            return Ok(());
        }
        // Others may go on with their session, and only a writer can end it: this process goes on reading theirs.
        let membership = &self.ownership.membership;
        if !self.fds.has_writable() && membership.is_attached() && membership.has_others() {
            return Ok(());
        }
        self.demote()
    }

    /// The file has another name: its members move to where processes that open it by that name find them.
    pub(crate) fn follow_its_name(&self) {
        let mut inner = self.inner();
        if self.state.load(Ordering::Acquire) == PLAIN && self.ownership.membership.is_attached() {
            let _ = self.follow_control_file(&mut inner); // the next write tries again, and reports errors
        }
    }
}
