//! A journal that has ended, and that stayed, or its mark, because the process lacked the right to remove it: it ended
//! the session as another user. While the file is open, the process removes both once it has the right.

use crate::file::atomic::{AtomicFile, DEMOTED, PLAIN};
use crate::index::SESSION;
use crate::journal::JournalId;
use crate::recovery;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Whether this is the journal that this process's last session left. Then the file has everything, even if the
    /// journal cannot be read, as after a `chroot`.
    pub(super) fn has_left(&self, journal: JournalId) -> bool {
        *self.left_journal.lock() == Some(journal)
    }

    /// After a change of user: removes what the last session left. By the program's own descriptor, since closing
    /// another one would end the program's record locks. Best effort: the next process with the right does the same.
    pub(crate) fn remove_left_journal(&self) {
        if self.left_journal.lock().is_none() || self.is_disowned() || !self.fds.has_writable() {
            return;
        }
        let mut inner = self.inner();
        if ![PLAIN, DEMOTED].contains(&self.state.load(Ordering::Acquire)) || self.left_journal.lock().is_none() {
            return; // the end of a new session tells what is left
        }
        let is_owner = inner.owner_lock.is_some();
        if !is_owner && !self.try_acquire_ownership(&mut inner).unwrap_or(false) {
            return; // another process may have a session
        }
        let has_ended = self.fds.with(true, |fd| Ok(recovery::has_ended(fd, &self.settings))).unwrap_or(false);
        if self.ownership.membership.state() & SESSION == 0
            && has_ended
            && let Some(owner_lock) = inner.owner_lock.as_mut()
            && self.recover(owner_lock, true).is_ok()
        {
            *self.left_journal.lock() = None;
        }
        if !is_owner {
            self.release_owner_lock(&mut inner);
        }
    }
}
