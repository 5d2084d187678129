//! Follow-ups of a change of a file's bytes: the shadow is updated (`shadow`), earlier changes there by other
//! processes stay (`ownership`), and set-user-id bits are removed (`privileges`). A change looks once, inside the gate,
//! whether [`Shared::follow_up`](crate::index::Shared) requires one, and starts again if so.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::base::waiting::{WAITS, wait_for};
use crate::file::state::shadow_pages::PIECE;
use crate::file::{UserBuf, copied_in};
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
            Err(refusal) => {
                self.change_again(refusal, again, |done| self.follow_change(core::iter::once(changed(done))), WAITS)
            }
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
            Err(refusal) => self.change_again(refusal, change, |()| self.follow_change(changed()), 0),
        }
    }

    /// As [`changing`](Self::changing), of a write of `bufs` at `offset` that was refused. If there is a shadow, its
    /// bytes are copied first: so the shadow gets the same bytes as the file, from the processor's cache. To read them
    /// back from where they were stored past the cache would take twice as long as the write.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[cold]
    #[inline(never)]
    pub(in crate::file) unsafe fn write_again(&self, refusal: Refusal, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        let changed = |done: usize| offset..offset + done as u64;
        let is_shown = refusal.is_needs_follow_up() && self.shadow().is_some();
        // SAFETY: the caller's promise.
        let copied = if is_shown { unsafe { copied_in(PIECE, bufs) } } else { None };
        let Some(mut bytes) = copied else {
            // SAFETY: the caller's promise.
            let again = || unsafe { self.write_file(offset, bufs) };
            let follow = |&done: &usize| self.follow_change(core::iter::once(changed(done)));
            return self.change_again(refusal, again, follow, WAITS);
        };
        let own = [UserBuf::of(&mut bytes)];
        // SAFETY: our memory.
        let again = || unsafe { self.write_file(offset, &own) };
        self.change_again(refusal, again, |&done| self.follow_by(changed(done), Some(&bytes[..done])), WAITS)
    }

    /// A change was refused: makes it with its follow-up, or after others of the pool have given back what they have
    /// borrowed, which is waited for here, up to `waits` times, with nothing held. Otherwise the error.
    #[cold]
    #[inline(never)]
    fn change_again<T>(
        &self,
        mut refusal: Refusal,
        mut change: impl FnMut() -> Answer<T>,
        follow: impl FnOnce(&T) -> Result<()>,
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
                        follow(&done)?;
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
        ranges.into_iter().try_for_each(|range| self.follow_by(range, None))
    }

    /// As [`follow_change`](Self::follow_change) of one range, which has these bytes now, if they are known.
    fn follow_by(&self, range: Range<u64>, bytes: Option<&[u8]>) -> Result<()> {
        self.end_tenures(range.clone());
        // The present shadow: the change may have begun a session, or made the file too large for the earlier shadow.
        // If the change has demoted the file, its maps are the kernel's.
        match self.shadow().filter(|_| !self.is_demoted()) {
            Some(shadow) => self.follow(shadow, range, bytes),
            None => Ok(()),
        }
    }
}
