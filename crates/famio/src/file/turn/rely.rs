//! What others wrote in the open epoch: relied on it stays; what is of the dead is left behind.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::index::{STORES, Standing, Writer};
use core::ops::Range;

impl AtomicFile {
    /// This process relies on what the file has in `range`, of whomever it is, since it writes over it: that is not rolled back any
    /// more. Reading relies on nothing.
    pub(in crate::file) fn rely_on(&self, range: Range<u64>) {
        if self.turns.has_foreign() {
            let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
            let others = self.turns.others.lock();
            others.iter().filter(|(there, _)| touches(there)).for_each(|&(_, writer)| self.turns.door.rely_on(writer));
        }
    }

    /// As [`rely_on`](Self::rely_on), where a map may be stored to, and nobody knows where; or is memory of this process alone,
    /// which no other one rolls back.
    pub(in crate::file) fn rely_as_mapped(&self) {
        if !self.has_shared_shadow() || self.turns.door.has_maps(STORES) {
            self.rely_on(0..u64::MAX);
        }
    }

    /// What is of those who have died is rolled back: before a SYNC, and before this process relies on it.
    pub(in crate::file) fn leave_dead_behind(&self) -> Result<()> {
        if self.has_foreign_of(Standing::Dead) { self.anew() } else { Ok(()) }
    }

    /// Whether what others wrote is in this process's session, of one who stands so.
    pub(super) fn has_foreign_of(&self, standing: Standing) -> bool {
        let is_so = |&(_, writer): &(Range<u64>, Writer)| self.turns.door.standing(writer) == standing;
        self.turns.has_foreign() && self.turns.others.lock().iter().any(is_so)
    }

    /// Ends the session: who takes the turn next, leaves what is of the dead behind.
    pub(super) fn anew(&self) -> Result<()> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        let mut inner = self.inner();
        self.end_session(&mut inner)?;
        self.release_claim(&mut inner); // an arena is for one such session
        Ok(())
    }
}
