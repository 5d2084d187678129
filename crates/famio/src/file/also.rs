//! Follow-ups of a change of a file's bytes: the shadow is updated (`shadow`), earlier changes there by other
//! processes stay (`turn`), and set-user-id bits are removed (`privileges`). A change looks once, inside the gate,
//! whether [`Shared::also`](crate::index::Shared) requires one, and starts again if so.

use super::atomic::AtomicFile;
use crate::error::Result;
use crate::thread::current;
use core::ops::Range;

/// Not returned to callers: there is a follow-up, for a caller that says that it does it ([`doing`]).
pub(super) const ALSO: i32 = libc::EREMCHG;

/// This thread does the follow-up of a change, and may change the file meanwhile.
pub(super) struct Doing(());

/// See [`Doing`].
pub(super) fn doing() -> Doing {
    let count = &current().doing_also;
    count.set(count.get() + 1);
    Doing(())
}

/// Whether this thread does so now.
#[inline]
pub(super) fn is_doing() -> bool {
    current().doing_also.get() != 0
}

impl Drop for Doing {
    fn drop(&mut self) {
        let count = &current().doing_also;
        count.set(count.get() - 1);
    }
}

impl AtomicFile {
    /// Makes a change of the file's bytes, with its follow-up if the session requires one ([`ALSO`]). `again` is
    /// `change` once more for that case, so that a caller can have its own change inlined.
    #[inline(always)]
    pub(super) fn changing<T>(
        &self,
        change: impl FnOnce() -> Result<T>,
        again: impl FnOnce() -> Result<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        match change() {
            Err(e) if e.errno() == ALSO => self.change_and_also(again, |done| core::iter::once(changed(done))),
            done => done,
        }
    }

    /// As [`changing`](Self::changing), for several ranges.
    pub(super) fn changing_ranges<R: IntoIterator<Item = Range<u64>>>(
        &self,
        mut change: impl FnMut() -> Result<()>,
        changed: impl FnOnce() -> R,
    ) -> Result<()> {
        match change() {
            Err(e) if e.errno() == ALSO => self.change_and_also(change, |()| changed()),
            done => done,
        }
    }

    #[cold]
    #[inline(never)]
    fn change_and_also<T, R: IntoIterator<Item = Range<u64>>>(
        &self,
        change: impl FnOnce() -> Result<T>,
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
    pub(super) fn follow_change(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
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
