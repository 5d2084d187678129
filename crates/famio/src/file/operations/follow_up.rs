//! Follow-ups of a change of a file's bytes: the shadow is updated (`shadow`), earlier changes there by other
//! processes stay (`ownership`), and set-user-id bits are removed (`privileges`). A change looks once, inside the gate,
//! whether [`Shared::follow_up`](crate::index::Shared) requires one, and starts again if so.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::base::refusal::{Answer, Refusal};
use core::ops::Range;

impl AtomicFile {
    /// Makes a change of the file's bytes, with its follow-up if the session requires one. `again` is `change` once more for
    /// that case, so that a caller can have its own change inlined.
    #[inline(always)]
    pub(in crate::file) fn changing<T>(
        &self,
        change: impl FnOnce() -> Answer<T>,
        again: impl FnOnce() -> Answer<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        match change() {
            Err(refusal) if refusal.is_needs_follow_up() => {
                self.change_and_follow_up(again, |done| core::iter::once(changed(done)))
            }
            done => done.map_err(Refusal::into),
        }
    }

    /// As [`changing`](Self::changing), for several ranges.
    pub(in crate::file) fn changing_ranges<R: IntoIterator<Item = Range<u64>>>(
        &self,
        mut change: impl FnMut() -> Answer<()>,
        changed: impl FnOnce() -> R,
    ) -> Result<()> {
        match change() {
            Err(refusal) if refusal.is_needs_follow_up() => self.change_and_follow_up(change, |()| changed()),
            done => done.map_err(Refusal::into),
        }
    }

    #[cold]
    #[inline(never)]
    fn change_and_follow_up<T, R: IntoIterator<Item = Range<u64>>>(
        &self,
        change: impl FnOnce() -> Answer<T>,
        changed: impl FnOnce(&T) -> R,
    ) -> Result<T> {
        self.leave_dead_behind()?;
        self.drop_privileges()?;
        let _changing = self.shadow.lock();
        let done = change()?;
        self.follow_change(changed(&done))?;
        Ok(done)
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
