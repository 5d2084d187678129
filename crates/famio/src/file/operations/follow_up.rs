//! Follow-ups of a change of a file's bytes: the shadow is updated (`shadow`), earlier changes there by other
//! processes stay (`ownership`), and set-user-id bits are removed (`privileges`). A change looks once, inside the gate,
//! whether [`Shared::follow_up`](crate::index::Shared) requires one, and starts again if so.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::base::waiting::{WAITS, wait_for};
use core::ops::Range;

impl AtomicFile {
    /// Makes a change of the file's bytes, with its follow-up if the session requires one. `again` is `change` once
    /// more for that case, so that a caller can have its own change inlined.
    #[inline(always)]
    pub(in crate::file) fn changing<T>(
        &self,
        change: impl FnOnce() -> Answer<T>,
        again: impl FnMut() -> Answer<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        match change() {
            Ok(done) => Ok(done),
            Err(refusal) => self.change_again(refusal, again, |done| core::iter::once(changed(done)), WAITS),
        }
    }

    /// As [`changing`](Self::changing), for several ranges, and without waiting for what others of the pool have
    /// borrowed: the caller holds up others.
    pub(in crate::file) fn changing_ranges<R: IntoIterator<Item = Range<u64>>>(
        &self,
        mut change: impl FnMut() -> Answer<()>,
        changed: impl FnOnce() -> R,
    ) -> Result<()> {
        match change() {
            Ok(()) => Ok(()),
            Err(refusal) => self.change_again(refusal, change, |()| changed(), 0),
        }
    }

    /// A change was refused: makes it with its follow-up, or after others of the pool have given back what they have
    /// borrowed, which is waited for here, up to `waits` times, with nothing held. Otherwise the error.
    #[cold]
    #[inline(never)]
    fn change_again<T, R: IntoIterator<Item = Range<u64>>>(
        &self,
        mut refusal: Refusal,
        mut change: impl FnMut() -> Answer<T>,
        changed: impl FnOnce(&T) -> R,
        mut waits: u32,
    ) -> Result<T> {
        let mut needs_follow_up = false;
        loop {
            if refusal.is_needs_follow_up() && !needs_follow_up {
                needs_follow_up = true;
            } else if waits > 0 && wait_for(refusal.lent()) {
                waits -= 1;
            } else {
                return Err(refusal.into());
            }
            if needs_follow_up {
                self.roll_back_dead()?;
                self.drop_privileges()?;
            }
            let changing = needs_follow_up.then(|| self.shadow.lock());
            match change() {
                Ok(done) => {
                    if needs_follow_up {
                        self.follow_change(changed(&done))?;
                    }
                    return Ok(done);
                }
                Err(next) => refusal = next,
            }
            drop(changing);
        }
    }

    /// After a change of these ranges, with the shadow's lock: earlier changes there stay, and maps show the new
    /// bytes.
    pub(in crate::file) fn follow_change(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        // The present shadow: the change may have begun a session, or made the file too large for the earlier shadow.
        // If the change has demoted the file, its maps are the kernel's.
        for range in ranges {
            self.end_tenures(range.clone());
            if let Some(shadow) = self.shadow().filter(|_| !self.is_demoted()) {
                self.follow(shadow, range)?;
            }
        }
        Ok(())
    }
}
