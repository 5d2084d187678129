//! What others wrote in the open epoch: relied on it stays; what is of the dead is left behind.

use crate::error::Result;
use crate::file::atomic::AtomicFile;
use crate::index::{Standing, Writer};
use core::ops::Range;

impl AtomicFile {
    /// This process relies on what the file has in `range`, of whomever it is: that is not rolled back any more.
    pub(in crate::file) fn rely_on(&self, range: Range<u64>) {
        if self.turns.has_foreign() {
            let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
            let others = self.turns.others.lock();
            others.iter().filter(|(there, _)| touches(there)).for_each(|&(_, writer)| self.turns.door.rely_on(writer));
        }
    }

    /// What is of those who have died is rolled back: before a SYNC, and before this process relies on it.
    pub(in crate::file) fn leave_dead_behind(&self) -> Result<()> {
        if !self.turns.has_foreign() {
            return Ok(());
        }
        let dead = |&(_, writer): &(Range<u64>, Writer)| self.turns.door.standing(writer) == Standing::Dead;
        let any = self.turns.others.lock().iter().any(dead);
        if any { self.anew() } else { Ok(()) }
    }

    /// Ends the session: who takes the turn next, leaves what is of the dead behind.
    pub(super) fn anew(&self) -> Result<()> {
        Self::may_lock()?;
        let mut inner = self.inner();
        self.end_session(&mut inner)?;
        self.release_claim(&mut inner); // an arena is for one such session
        Ok(())
    }
}
