//! The end of a session: everything in the file, nothing beside it.

use super::Descriptors;
use super::session::Session;
use crate::error::Result;
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

    /// One round of settling, by the background. Whether more is left.
    pub fn settle_some(&self, fds: &Descriptors) -> Result<bool> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _inside = shared.gate.enter(&shared.slots[self.me as usize])?;
        if self.check(cx).is_err() {
            return Ok(false);
        }
        let more = self.engine.settle_some(cx)?;
        let now = crate::sys::coarse_now();
        shared.touched.store(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, Ordering::Release);
        Ok(more)
    }
}
