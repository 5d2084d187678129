//! The end of a session: everything is in the file, and nothing beside it.

use super::Session;
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::base::quiet::is_quiet;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::engine::policy::Policy;
use core::sync::atomic::Ordering;

/// Checkpoint rounds in a row, for an outsider that reads the file.
const EAGER_ROUNDS: u32 = 64;

/// The work that a file still has for the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Left {
    /// Nothing that could be done now: the next event brings more.
    Nothing,
    /// Something for a quiet moment.
    ForLater,
    /// Something to continue at once.
    More,
}

/// The part of a checkpoint round to do; tests do them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::file) enum PassStep {
    /// All of it.
    Round,
    /// Some blocks of a pass, which begins with them if none is under way.
    Blocks,
    /// The end of a pass whose blocks are all written.
    End,
}

impl Session {
    /// Commits, makes a checkpoint, cuts the file to its size and removes the journal. Later writers are refused.
    ///
    /// Refused if there is something to commit, and not `is_alone`: it is to be committed with a group.
    pub fn close(&self, fds: &Descriptors, is_alone: bool) -> Answer<()> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds).map_err(Error::from)?;
        if shared.closed.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        if !is_alone && shared.dirty.load(Ordering::Acquire) != 0 {
            return Err(Refusal::needs_group());
        }
        self.commit(fds, false).map_err(Error::from)?;
        keeping_bits(fds, || self.engine.retire(cx))?;
        shared.closed.store(1, Ordering::Release);
        Ok(())
    }

    /// An outsider is about to open the file, or another process to share it: brings the file to the committed state.
    /// `lease`: the lease's new state. The epoch stays open and goes on under redo.
    pub fn expose(&self, fds: &Descriptors, lease: u32) -> Result<()> {
        let cx = self.context(fds);
        let shared = cx.shared();
        // Before anything that may fail: no later epoch relies on the lease.
        shared.lease.store(lease, Ordering::Release);
        let _closed = self.close_gate(fds)?;
        self.check(cx)?;
        let exposed = self.moving(|| self.engine.expose(cx));
        if exposed.is_ok() {
            // Not after an error: redo must find no committed copy in the log whose place in the file the epoch has
            // taken.
            shared.policy.store(Policy::Redo as u32, Ordering::Relaxed);
        }
        exposed.map(drop) // growth that could not be hidden stays visible
    }

    /// One checkpoint round by the background: in quiet moments, when the journal is filling up, or while an outsider
    /// may read the file.
    pub fn checkpoint_some(&self, fds: &Descriptors) -> Result<Left> {
        self.checkpoint_step(fds, PassStep::Round)
    }

    /// As [`checkpoint_some`](Self::checkpoint_some), or a part of that.
    pub(in crate::file) fn checkpoint_step(&self, fds: &Descriptors, step: PassStep) -> Result<Left> {
        let cx = self.context(fds);
        let shared = cx.shared();
        self.engine.prepare(cx)?;
        while self.engine.make_ready(cx) {}
        let must_return = self.engine.journal().limit().look() > 0;
        let has_surplus = self.engine.has_surplus(cx);
        if !self.engine.is_waiting(cx) && !self.engine.can_shrink(cx) && !must_return {
            return Ok(if has_surplus { Left::ForLater } else { Left::Nothing });
        }
        let quiet = is_quiet(shared);
        let gathering = self.gather_pages(cx, quiet);
        let mut gave_way = false;
        let eager = !quiet && shared.is_exposed();
        if step != PassStep::End && !quiet && !eager && !must_return && !self.engine.is_pressed(cx) {
            return Ok(Left::ForLater);
        }
        let moved = if step == PassStep::End {
            false
        } else {
            let mut alone = cx;
            let _inside = self.enter_gate(&mut alone)?;
            self.carry_out(&alone)?;
            if self.check(cx).is_err() {
                return Ok(Left::Nothing);
            }
            let moved = keeping_bits(fds, || {
                let mut moved = self.engine.checkpoint_some(cx)?;
                let mut rounds = if eager { EAGER_ROUNDS } else { 1 };
                while moved && rounds > 1 && !gave_way {
                    moved = self.engine.checkpoint_some(cx)?;
                    rounds -= 1;
                    gave_way = shared.gate.is_closing();
                }
                Ok(moved)
            });
            shared.leave_now();
            moved?
        };
        let ends = step != PassStep::Blocks && keeping_bits(fds, || self.engine.finish_checkpoint(cx))?;
        let moved = moved | ends;
        let rests = quiet && !moved && self.engine.journal().limit().is_shared();
        if must_return || rests {
            // Also with an epoch open, since nothing tells of what others need before its next write.
            self.engine.give_back(cx, rests)?;
        }
        if quiet && !moved && self.engine.can_shrink(cx) {
            let _closed = self.close_gate(fds)?;
            if self.check(cx).is_ok() && shared.dirty.load(Ordering::Acquire) == 0 {
                self.engine.shrink(cx)?;
            }
        }
        Ok(match (moved || gathering, quiet) {
            // An active writer is not chased, whatever is owed: after a pass it has a while to itself, and one with a
            // journal in place, which only a SYNC cuts, after each round.
            (true, false) if eager && gave_way => Left::More,
            (_, false) if eager || must_return && (ends || self.engine.inode_in_place() != 0) => Left::ForLater,
            (true, _) => Left::More,
            // Another process copies the file, and has asked to wait.
            (false, true) if shared.totals.is_held() || has_surplus => Left::ForLater,
            // Everything left belongs to the open epoch: its SYNC is the next event.
            (false, true) => Left::Nothing,
            (false, false) => Left::ForLater,
        })
    }
}
