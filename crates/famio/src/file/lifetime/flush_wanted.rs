//! Answers `famio flush`.

use crate::file::atomic::{ATTACHED, AtomicFile};
use crate::file::session::flush::FlushStep;
use crate::file::session::flush_tries::FlushTries;
use crate::index::FlushWanted;
use crate::sys::monotonic_now;
use core::sync::atomic::Ordering;

/// For this many nanoseconds the background works on one request; then it looks at its other work, which may be another
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
        self.ownership.flush_seen.store(membership.flush_activity(), Ordering::Relaxed);
        let Some(wanted) = membership.flush_wanted() else { return false };
        if !self.ownership.is_owner.load(Ordering::Acquire) || self.state.load(Ordering::Acquire) != ATTACHED {
            return false;
        }
        let end = monotonic_now() + SLICE;
        // A process that waits for ownership comes first; the next owner of the session continues the flush.
        self.answer(wanted, &|| !self.ownership.has_requests() && monotonic_now() < end)
    }

    /// Returns whether there is more to do soon.
    fn answer(&self, wanted: FlushWanted<'_>, goes_on: &dyn Fn() -> bool) -> bool {
        let Some(session) = self.session() else { return false };
        let tries = &self.ownership.flush_tries;
        let error = match session.flush(&self.fds, &wanted, tries, goes_on) {
            Ok(FlushStep::Done) => 0,
            Ok(FlushStep::More) => return true,
            Ok(FlushStep::ToEnd) => match self.end_for_flush() {
                Ok(true) => 0,
                Ok(false) => return true,
                // `EBUSY` has another meaning there.
                Err(e) if e.errno() == libc::EBUSY => libc::EAGAIN,
                Err(e) => e.errno(),
            },
            Err(refusal) if refusal.is_session_ended() || !self.ownership.is_owner.load(Ordering::Acquire) => {
                tries.lost(); // the next owner answers, or this one, when it has the session again
                return false;
            }
            Err(refusal) => crate::Error::from(refusal).errno(),
        };
        tries.end();
        wanted.end(error);
        false
    }

    /// For tests: does what `famio flush` asks for. Returns whether this process has a session.
    #[doc(hidden)]
    pub fn flush_as_asked(&self) -> crate::Result<bool> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return Ok(false);
        }
        let Some(session) = self.session() else { return Ok(false) };
        let wanted = self.ownership.membership.flush_for_test();
        if session.flush(&self.fds, &wanted, &FlushTries::default(), &|| true)? == FlushStep::ToEnd {
            self.end_for_flush()?;
        }
        Ok(true)
    }

    /// Whether a process has asked, or looked for the answer, since this one last looked.
    pub(in crate::file) fn is_flush_unseen(&self) -> bool {
        let membership = &self.ownership.membership;
        membership.has_attached()
            && !self.is_disowned()
            && membership.flush_activity() != self.ownership.flush_seen.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
