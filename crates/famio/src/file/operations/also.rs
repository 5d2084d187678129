//! What is done beside a change of a file's bytes: its shadow follows (`shadow`), others who wrote there can't take it back any more (`turn`), and
//! set-user-id bits go (`privileges`). The session says whether there is such a thing ([`Shared::also`](crate::index::Shared)): a change looks at it once,
//! inside the gate, and is begun anew if so.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::file::base::refusal::{Answer, Refusal};
use core::ops::Range;

impl AtomicFile {
    /// A change of the file's bytes, with what is to be done beside it, if the session says so
    /// ([`Reason::NeedsFollowUp`](super::refusal::Reason)). `again` is `change` once more, for that case: so a caller can have its
    /// own change in line.
    #[inline(always)]
    pub(in crate::file) fn changing<T>(
        &self,
        change: impl FnOnce() -> Answer<T>,
        again: impl FnOnce() -> Answer<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        match change() {
            Err(refusal) if refusal.is_needs_follow_up() => {
                self.change_and_also(again, |done| core::iter::once(changed(done)))
            }
            done => done.map_err(Refusal::into),
        }
    }

    /// As [`changing`](Self::changing), of several ranges.
    pub(in crate::file) fn changing_ranges<R: IntoIterator<Item = Range<u64>>>(
        &self,
        mut change: impl FnMut() -> Answer<()>,
        changed: impl FnOnce() -> R,
    ) -> Result<()> {
        match change() {
            Err(refusal) if refusal.is_needs_follow_up() => self.change_and_also(change, |()| changed()),
            done => done.map_err(Refusal::into),
        }
    }

    #[cold]
    #[inline(never)]
    fn change_and_also<T, R: IntoIterator<Item = Range<u64>>>(
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

    /// After a change of these ranges, with the shadow's lock: nobody takes back any more what was there, and maps show what is.
    pub(in crate::file) fn follow_change(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        // The shadow that is there now: the change may have begun a session, or made the file too large for the one before. Handed back by it, its maps are the kernel's.
        for range in ranges {
            self.end_tenures(range.clone());
            if let Some(shadow) = self.shadow().filter(|_| !self.is_demoted()) {
                self.follow(shadow, range)?;
            }
        }
        Ok(())
    }
}
