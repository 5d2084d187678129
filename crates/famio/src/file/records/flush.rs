//! `famio flush` of a journal of epochs: passes that leave nothing behind, and then a forced one for what the open epoch
//! has overwritten or cut off, which lies committed in the journal alone.

use super::Records;
use super::checkpointing::Checkpointing;
use crate::error::Result;
use crate::file::engine::context::Context;
use core::sync::atomic::Ordering;

impl Records {
    /// See [`Engine::flush_round`](crate::file::engine::context::Engine::flush_round).
    pub(super) fn flush_round(&self, cx: Context<'_>) -> Result<bool> {
        if self.waits_for_cut(cx) {
            return Ok(false); // also in the middle of a pass, which stays until the cut is committed
        }
        let mut checkpointing = self.checkpointing.lock(cx);
        if self.round(cx, &mut checkpointing, true)? {
            return Ok(true);
        }
        if !self.is_cut(cx) && (self.extend_to_committed(cx)? || self.is_behind(cx, &checkpointing)) {
            // A commit may have changed nothing but the size: then a pass without blocks takes it up.
            checkpointing.was_cut = true;
            self.begin_pass(cx, &mut checkpointing, true);
        }
        Ok(!checkpointing.queue.is_empty())
    }

    /// Whether the journal has epochs for which no pass is under way, and none has to wait for the next commit.
    fn is_behind(&self, cx: Context<'_>, checkpointing: &Checkpointing) -> bool {
        let is_behind = self.in_file.load(Ordering::Acquire) < self.log.lock(cx).committed();
        is_behind && !checkpointing.is_waiting() && checkpointing.finished.is_none()
    }

    /// Makes the file as long as the last commit has, if it is shorter. Returns whether it was. The
    /// caller holds the lock of the checkpoint, so that nothing else changes the file's size.
    fn extend_to_committed(&self, cx: Context<'_>) -> Result<bool> {
        let shared = cx.shared();
        let size = shared.committed_size.load(Ordering::Acquire);
        if size <= shared.physical.load(Ordering::Acquire) {
            return Ok(false);
        }
        shared.physical_next.store(size, Ordering::Release);
        cx.fds.with(true, |fd| self.medium.ftruncate(fd, size))?;
        cx.home.cover(cx.fds, size)?;
        shared.physical.fetch_max(size, Ordering::AcqRel);
        Ok(true)
    }

    /// See [`Engine::flush_rest`](crate::file::engine::context::Engine::flush_rest).
    pub(super) fn flush_rest(&self, cx: Context<'_>) -> Result<()> {
        let committed = self.force_all(cx)?;
        {
            let _checkpointing = self.checkpointing_without_syncs(cx);
            if self.extend_to_committed(cx)? {
                self.flush_forced(cx)?;
            }
        }
        self.in_file.fetch_max(committed, Ordering::AcqRel);
        Ok(())
    }
}
