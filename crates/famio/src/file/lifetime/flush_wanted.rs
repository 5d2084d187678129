//! Answers `famio flush`.

use crate::file::atomic::{ATTACHED, AtomicFile};
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicU32, Ordering};

/// For so many nanoseconds the background works on one request; then it looks at its other work, which may be another
/// process that waits for another file.
const SLICE: u64 = 100_000_000;

impl AtomicFile {
    /// Writes back what is committed, if a process has asked for that and this one owns the session. Called by the
    /// background. Returns whether to call it again soon.
    pub(in crate::file) fn answer_flush(&self) -> bool {
        let membership = &self.ownership.membership;
        if !membership.has_attached() || self.is_disowned() {
            return false;
        }
        self.ownership.flush_seen.store(membership.flush_knocks(), Ordering::Relaxed);
        let Some(wanted) = membership.flush_wanted() else { return false };
        if !self.ownership.is_owner.load(Ordering::Acquire) || self.state.load(Ordering::Acquire) != ATTACHED {
            return false;
        }
        let Some(session) = self.session() else { return false };
        let end = monotonic_now() + SLICE;
        // A process that waits for ownership comes first; whoever has the session then goes on.
        let goes_on = || !self.ownership.is_asked() && monotonic_now() < end;
        let left = &self.ownership.flush_left;
        match session.flush(&self.fds, &wanted, left, &goes_on) {
            Ok(false) => return true,
            Ok(true) => wanted.end(0),
            // The next owner answers.
            Err(refusal) if refusal.is_session_ended() || !self.ownership.is_owner.load(Ordering::Acquire) => {}
            Err(refusal) => wanted.end(crate::Error::from(refusal).errno()),
        }
        left.store(0, Ordering::Relaxed);
        false
    }

    /// For tests: does what `famio flush` asks for. Returns whether this process has a session.
    #[doc(hidden)]
    pub fn flush_as_asked(&self) -> crate::Result<bool> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return Ok(false);
        }
        let Some(session) = self.session() else { return Ok(false) };
        session.flush(&self.fds, &self.ownership.membership.flush_for_test(), &AtomicU32::new(0), &|| true)?;
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
