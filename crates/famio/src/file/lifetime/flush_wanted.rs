//! Answers `famio flush`.

use crate::file::atomic::{ATTACHED, AtomicFile};
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Writes back what is committed, if a process has asked for that and this one owns the session. Called by the
    /// background.
    pub(in crate::file) fn answer_flush(&self) {
        let membership = &self.ownership.membership;
        if !membership.has_attached() || self.is_disowned() {
            return;
        }
        self.ownership.flush_seen.store(membership.flush_knocks(), Ordering::Relaxed);
        let Some(wanted) = membership.flush_wanted() else { return };
        if !self.ownership.is_owner.load(Ordering::Acquire) || self.state.load(Ordering::Acquire) != ATTACHED {
            return;
        }
        let Some(session) = self.session() else { return };
        // A process that waits for ownership comes first; whoever has the session then goes on.
        match session.flush(&self.fds, &wanted, &|| !self.ownership.is_asked()) {
            Ok(true) => wanted.end(0),
            Ok(false) => {}
            Err(refusal) if refusal.is_session_ended() => {}
            Err(refusal) => wanted.end(crate::Error::from(refusal).errno()),
        }
    }

    /// For tests: does what `famio flush` asks for. Returns whether this process has a session.
    #[doc(hidden)]
    pub fn flush_as_asked(&self) -> crate::Result<bool> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return Ok(false);
        }
        let Some(session) = self.session() else { return Ok(false) };
        session.flush(&self.fds, &self.ownership.membership.flush_for_test(), &|| true)?;
        Ok(true)
    }

    /// Whether a process has asked, or looked for the answer, since this one last looked.
    pub(in crate::file) fn is_flush_unseen(&self) -> bool {
        let membership = &self.ownership.membership;
        membership.has_attached()
            && !self.is_disowned()
            && membership.flush_knocks() != self.ownership.flush_seen.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
