//! Looks into another process's session ([`crate::file::state::owner_session`]).

use crate::error::Result;
use crate::file::Descriptors;
use crate::file::state::deferred::has_changed_since_exact;
use crate::file::state::owner_session::{Look, OwnerSession};
use crate::file::state::ownership::Ownership;
use crate::settings::Settings;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Looks at something that changes before the reader waits: at a session that begins or ends, and at a block that is
/// being written.
const LOOKS_AT_SESSION: u32 = 4;
const LOOKS: u32 = 64;

impl Ownership {
    /// Looks into the owner's session, as long as the owner lives.
    pub(super) fn look_into_session<T>(
        &self,
        (fds, settings): (&Descriptors, &Settings),
        mut look: impl FnMut(&OwnerSession) -> Result<Look<T>>,
    ) -> Result<Look<T>> {
        let mut closed = 0;
        for _ in 0..LOOKS {
            if !self.membership.has_living_holder() {
                return Ok(Look::Unreachable); // or it has just ended
            }
            match self.join(fds, settings)? {
                Look::Done(joined) => match joined.look(&self.membership, &mut look) {
                    Ok(Look::Changing) => {}
                    looked => return looked,
                },
                Look::Changing if closed == LOOKS_AT_SESSION => break,
                Look::Changing => closed += 1,
                Look::Unreachable => return Ok(Look::Unreachable),
            }
            rustix::thread::sched_yield();
        }
        Ok(Look::Changing)
    }

    fn join(&self, fds: &Descriptors, settings: &Settings) -> Result<Look<Arc<OwnerSession>>> {
        let mut here = self.joined.lock();
        if let Some(joined) = here.as_ref().filter(|joined| joined.is_current(&self.membership)) {
            return Ok(Look::Done(joined.clone()));
        }
        let outgrown = here.take().filter(|joined| joined.arena.is_outgrown());
        let number = self.membership.arena();
        if number == 0 {
            return Ok(Look::Changing);
        }
        match OwnerSession::new(&self.membership, number, settings) {
            // The rest of the arena lies where only its owner finds it: on a disk.
            Ok(Some(joined))
                if outgrown.is_some_and(|old| old.number == number && old.arena.len() >= joined.arena.len()) =>
            {
                Ok(Look::Unreachable)
            }
            // Another program has changed the file, and the next owner ends the session.
            Ok(Some(joined)) if self.membership.has_unowned() && has_changed_since_exact(fds, joined.shared()) => {
                Ok(Look::Unreachable)
            }
            Ok(Some(joined)) => Ok(Look::Done(here.insert(Arc::new(joined)).clone())),
            Ok(None) => Ok(Look::Changing),
            // It may have just gone, or come; or a program in another root cannot find it.
            Err(e) if e.errno() == libc::ENOENT && self.unjoined.swap(number, Ordering::Relaxed) != number => {
                Ok(Look::Changing)
            }
            Err(_) => Ok(Look::Unreachable), // for example another user's
        }
    }

    /// Drops a session that is not read along any more.
    pub(super) fn leave_session(&self) {
        if let Some(mut here) = self.joined.try_lock()
            && here.as_ref().is_some_and(|joined| !joined.is_current(&self.membership))
        {
            *here = None;
        }
    }

    /// In a forked child: its maps are not there.
    pub(in crate::file) fn forget_joined(&self) {
        if let Some(mut here) = self.joined.try_lock() {
            core::mem::forget(here.take());
        }
        if let Some(mut here) = self.unattached.visit.try_lock()
            && let Some(visit) = here.take()
        {
            visit.membership.forget();
            visit.forget_joined();
        }
    }
}
