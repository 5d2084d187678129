//! Transactions of two threads that are copied at the same time, and committed at once.
//!
//! The thread that has closed the gate leads: when everything that can fail is done, it opens a
//! [pair](crate::index::Pairs). A thread that comes while the leader copies joins it, if its blocks have all they need,
//! and copies beside the leader: first its pieces of other blocks than the leader's, then, when the leader has copied
//! all of its own, the rest. So its transaction follows the leader's as a whole. Then the leader commits one epoch for
//! both. To readers the two are one transaction.

use super::pieces::Pieces;
use super::seen::Seen;
use super::write_set::{AT_END, Step, WriteSet};
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::engine::context::Context;
use crate::file::session::Session;
use crate::index::{Leading, Led, Partner, Taken};
use core::sync::atomic::Ordering;

/// What has fewer is copied in less time than two threads need to meet.
const STEPS_MIN: usize = 4;

impl Session {
    /// The pieces of a transaction that may be one of two: it has some, but not many, and changes no size. Not where
    /// what processes do is to be told apart after a kill.
    pub(super) fn pieces_for_pair(&self, set: &WriteSet) -> Option<Pieces> {
        if set.steps().len() < STEPS_MIN || set.changes_size() || self.keeps || self.saves_images() {
            return None;
        }
        let mut pieces = Pieces::new();
        for step in set.steps() {
            match *step {
                Step::Write { offset, from, len } if offset != AT_END => {
                    pieces.add(offset, set.bytes(from, len), |_| Err(())).ok()?;
                }
                _ => return None,
            }
        }
        Some(pieces)
    }

    /// Prefetches what another thread may have in its cache.
    pub(super) fn prefetch_pieces(&self, cx: &Context<'_>, pieces: &Pieces) {
        for piece in pieces.all() {
            cx.arena.prefetch_cell(piece.block, true);
        }
        for piece in pieces.all() {
            self.engine.prefetch_for(cx, piece.block, (piece.start, piece.end));
        }
    }

    /// With the gate closed: applies and commits the transaction, together with that of a thread that comes meanwhile.
    pub(super) fn lead_pair(
        &self,
        fds: &Descriptors,
        leading: &Leading<'_>,
        (set, pieces): (&WriteSet, &Pieces),
        seen: Option<&Seen>,
        committed: &dyn Fn(),
    ) -> Answer<()> {
        let cx = self.context(fds);
        self.check_still_holds(cx, seen)?;
        if self.are_prepared(&cx, pieces) {
            cx.shared().make_dirty();
        } else {
            let stale = self.prepare(cx, set)?;
            debug_assert!(stale.is_empty(), "it changes no size");
        }
        let mut led = None;
        self.copying(cx, || {
            // Not earlier: also the partner's copies are hidden from readers, and not kept after a kill.
            let led = led.insert(leading.open(pieces.all().iter().map(|piece| piece.block)));
            let copied = self.copy_pieces(&cx, pieces.all());
            // Also after an error: the partner may be copying.
            let partner = led.close();
            copied?;
            match partner {
                Partner::None | Partner::Done => Ok(()),
                Partner::Failed => Err(Error::with(libc::EIO, "the transaction that was copied beside it failed")),
            }
        })?;
        self.count_set(cx, set);
        self.commit_at_once(fds, false, Some(committed))?;
        led.into_iter().for_each(Led::end);
        Ok(())
    }

    fn are_prepared(&self, cx: &Context<'_>, pieces: &Pieces) -> bool {
        pieces.all().iter().all(|piece| self.engine.is_prepared(cx, piece.block))
    }

    fn count_set(&self, cx: Context<'_>, set: &WriteSet) {
        cx.shared().counts.mine().wrote(set.steps().len() as u64, set.len() as u64);
    }

    /// Applies and commits the transaction as the partner of the thread that has closed the gate. False: it was not
    /// applied.
    pub(super) fn join_pair(&self, cx: Context<'_>, set: &WriteSet, pieces: &mut Pieces, number: u32) -> Result<bool> {
        let shared = cx.shared();
        // A follow-up is this thread's own, as in `check_change`, which the leader has done for itself only.
        if shared.follow_up.load(Ordering::Acquire) != 0 {
            return Ok(false);
        }
        // If it can be joined afterwards, the gate was closed all the time, and what is found here holds.
        if !pieces.is_within(shared.size()) || !self.are_prepared(&cx, pieces) {
            return Ok(false);
        }
        let mut common = Pieces::new();
        let split = |taken: &Taken| pieces.split(&mut common, |piece| taken.has(piece.block));
        let Some(joined) = self.pairs.join(number, split) else { return Ok(false) };
        shared.gate.note_closer(self.me);
        let copied = (|| {
            self.copy_pieces(&cx, pieces.all())?;
            if !common.all().is_empty() {
                joined.wait_for_leader()?;
                self.copy_pieces(&cx, common.all())?;
            }
            Ok(())
        })();
        // Not as it is: `ENOMEM` would demote the file, and `EDEADLK` and `ENOSPC` say that nothing was changed.
        copied.map_err(|e: Error| {
            let what = "a transaction could not be copied to the end: no more writes are taken; reads go on";
            Error::with(libc::EIO, format!("{what} ({e})"))
        })?;
        self.count_set(cx, set);
        let ended = joined.end().map_err(|_| {
            Error::with(libc::EIO, "the commit of two transactions does not end: both may still be committed")
        })?;
        if !ended {
            let what = "the commit of two transactions failed: no more writes are taken; reads go on";
            return Err(Error::with(libc::EIO, what));
        }
        shared.totals.wait_for_thaw();
        Ok(true)
    }
}
