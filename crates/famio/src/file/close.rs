//! The end of a session: everything in the file, nothing beside it.

use super::Descriptors;
use super::background::{IDLE, Left};
use super::session::Session;
use crate::error::Result;
use crate::index::Shared;
use core::sync::atomic::Ordering;

impl Session {
    /// Commits, settles, cuts the file to its size and takes the journal away. Writers that come later get `ESTALE`.
    pub fn close(&self, fds: &Descriptors) -> Result<()> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = shared.gate.close(self.me, &shared.slots)?;
        if shared.closed.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        self.commit(fds)?;
        self.engine.retire(cx)?;
        shared.closed.store(1, Ordering::Release);
        Ok(())
    }

    /// One round of settling, by the background: in quiet moments, or when the journal is filling up.
    pub fn settle_some(&self, fds: &Descriptors) -> Result<Left> {
        let cx = self.context(fds);
        let shared = cx.shared();
        if !self.engine.is_waiting(cx) && !self.engine.can_shrink(cx) {
            return Ok(Left::Nothing);
        }
        let gathering = self.gather_pages(cx);
        let quiet = is_quiet(shared);
        if !quiet && !self.engine.is_pressed(cx) {
            return Ok(if gathering { Left::More } else { Left::ForLater });
        }
        let moved = {
            let _inside = shared.gate.enter(self.me, &shared.slots[self.me as usize])?;
            if self.check(cx).is_err() {
                return Ok(Left::Nothing);
            }
            let moved = self.engine.settle_some(cx)?;
            shared.leave_at(crate::sys::coarse_now());
            moved
        } | self.engine.finish_settling(cx)?;
        if quiet && !moved && self.engine.can_shrink(cx) {
            let _closed = shared.gate.close(self.me, &shared.slots)?;
            if self.check(cx).is_ok() && shared.dirty.load(Ordering::Acquire) == 0 {
                self.engine.shrink(cx)?;
            }
        }
        Ok(match (moved, quiet) {
            (true, _) => Left::More,
            // All that is left is of the open epoch: its SYNC is the next event.
            (false, true) => Left::Nothing,
            (false, false) => Left::ForLater,
        })
    }
}

/// Whether nobody has written for a while.
fn is_quiet(shared: &Shared) -> bool {
    if crate::pmem::Lab::current().still {
        return true;
    }
    let now = crate::sys::coarse_now();
    let [seconds, nanos] = shared.modified.each_ref().map(|word| word.load(Ordering::Relaxed) as i64);
    let since = (now.tv_sec - seconds).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec - nanos);
    since >= IDLE.tv_sec * 1_000_000_000 + IDLE.tv_nsec
}
