//! SYNC: makes the open epoch durable.

use super::Session;
use super::closed_gate::ClosedGate;
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::engine::context::{Context, Sealed};
use crate::file::engine::policy;
use crate::index::{Inside, SYNCS_TIMED, Shared, Sums, Timer};
use crate::rule::{Rule, holds};
use core::sync::atomic::{Ordering, compiler_fence};

impl Session {
    /// Makes everything durable that was written before the call. Returns when every epoch that could contain it is
    /// durable, also if there was nothing to do. Refused if the session has ended: what was written is durable then.
    /// `is_done`: asked while no thread writes, whether everything that the caller wrote is durable by then.
    /// `committed`: called before any write of the next epoch, and before the session's end.
    pub fn sync(&self, fds: &Descriptors, is_done: impl FnOnce() -> bool, committed: impl FnOnce()) -> Answer<()> {
        let shared = self.arena.shared();
        // A dirty epoch's mark is cleared only after its last fence: clean means durable.
        let clean = shared.dirty.load(Ordering::Acquire) == 0 && shared.poisoned.load(Ordering::Acquire) == 0;
        if clean && self.engine.finds_journal(self.context(fds)) {
            return Ok(());
        }
        let totals = &self.arena.shared().totals;
        let is_timed =
            !clean && (!self.engine.commits_in_memory() || self.arena.shared().committed().is_multiple_of(SYNCS_TIMED));
        let timer = Timer::begin(&totals.sync_times, is_timed);
        let excluded = self.exclude_others(fds, clean)?;
        if is_done() {
            return Ok(());
        }
        if clean {
            self.check(self.context(fds))?;
            self.ensure_journal_named(self.context(fds), true)?;
        }
        self.commit(fds, matches!(excluded, Excluded::Inside(_)))?;
        committed();
        timer.end();
        totals.wait_for_thaw();
        Ok(())
    }

    /// Excludes all other threads from the session until the result is dropped. `closes`: always close the gate.
    /// Otherwise a thread in exclusive mode stays inside, which is faster but makes readers wait: not for a SYNC to a
    /// disk, during a backup, or if the journal has something to return. Exclusive mode cannot end while inside.
    #[inline]
    fn exclude_others<'a>(&'a self, fds: &'a Descriptors, closes: bool) -> Answer<Excluded<'a>> {
        let shared = self.arena.shared();
        let closes = closes
            || !shared.gate.is_exclusively_of(self.me)
            || !self.may_commit_inside()
            || !self.engine.commits_in_memory()
            || shared.totals.is_frozen();
        if !closes {
            let mut cx = self.context(fds);
            let inside = self.enter_gate(&mut cx)?;
            if inside.exclusive {
                self.carry_out(&cx)?;
                return Ok(Excluded::Inside(inside));
            }
        }
        Ok(Excluded::Closed(self.close_gate(fds)?))
    }

    /// Whether the thread in exclusive mode may commit inside: that mode need not end, and nothing is to be given back.
    #[inline]
    pub(in crate::file) fn may_commit_inside(&self) -> bool {
        self.may_be_exclusive.load(Ordering::Relaxed) && self.engine.journal().limit().must_return() == 0
    }

    /// Makes sure that a recovery finds the journal, with what was and will be committed, by its name. `is_lost`: it
    /// was looked for already, and not found. No other thread is inside.
    pub(in crate::file) fn ensure_journal_named(&self, cx: Context<'_>, is_lost: bool) -> Result<()> {
        if !is_lost && self.engine.finds_journal(cx) {
            return Ok(());
        }
        self.was_lost.store(true, Ordering::Relaxed);
        self.make_journal_anew(cx).map_err(|e| {
            cx.shared().poisoned.store(1, Ordering::Release);
            failed(e)
        })?;
        // Before any write to it.
        cx.shared().journal.store(self.engine.inode_in_place(), Ordering::Release);
        cx.shared().journal_file.store(self.engine.journal().file().identity().1, Ordering::Release);
        Ok(())
    }

    /// Gives the journal its name back: by a copy, which the session uses from now on.
    pub(in crate::file) fn make_journal_anew(&self, cx: Context<'_>) -> Result<()> {
        let before = self.engine.journal().file().identity();
        let made = self.moving(|| self.engine.make_journal_anew(cx));
        if made.is_err() && self.engine.journal().file().identity() != before {
            // What is written from now on would go to the old one, and a recovery finds the copy.
            cx.shared().poisoned.store(1, Ordering::Release);
        }
        made
    }

    /// Whether the journal was found without its name since the last call. Looked at first: a locked instruction would
    /// wait for all that the epoch has stored.
    #[inline]
    pub(in crate::file) fn take_was_lost(&self) -> bool {
        self.was_lost.load(Ordering::Relaxed) && self.was_lost.swap(false, Ordering::Relaxed)
    }

    /// Runs `work`, which moves bytes of the open epoch: if the process is killed meanwhile, no other process can
    /// find them.
    pub(in crate::file) fn moving<T>(&self, work: impl FnOnce() -> T) -> T {
        let moving = &self.arena.shared().moving;
        moving.store(1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        let done = work();
        moving.store(0, Ordering::Release);
        done
    }

    /// SYNC with the gate closed; or `inside` it, by the thread in exclusive mode, which keeps that: if it ended here,
    /// others would enter before the caller has left.
    pub(in crate::file) fn commit(&self, fds: &Descriptors, inside: bool) -> Answer<()> {
        let cx = Context { exclusive: inside, ..self.context(fds) };
        let shared = cx.shared();
        self.check(cx)?;
        if shared.dirty.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.ensure_journal_named(cx, false)?;
        let sealed = Sealed { epoch: shared.committed() + 1, size: shared.size() };
        let done = self.engine.commit(cx, sealed);
        if inside {
            shared.leave_coarsely(); // its stores may have changed the file; a closed gate stamps that as it opens
        }
        if let Err(e) = done {
            shared.totals.failed_syncs.fetch_add(1, Ordering::Relaxed);
            // Data of the failed flush may be lost even if a retry succeeds: no more writes.
            shared.poisoned.store(u32::from(holds(Rule::FailedFlushIsForGood)), Ordering::Release);
            return Err(failed(e).into());
        }
        shared.committed_size.store(sealed.size, Ordering::Release);
        shared.epoch_low.store(sealed.size, Ordering::Release);
        shared.lowest_since_acquired.store(sealed.size, Ordering::Release);
        shared.committed.store(sealed.epoch, Ordering::Release);
        // After it: a process that is killed between the two has nothing open, as its journal says.
        shared.recorded.store(self.engine.recorded(cx, sealed), Ordering::Release);
        shared.dirty.store(0, Ordering::Release); // after the commit's fences
        if !inside {
            self.give_back_at_sync(cx);
        }
        let may_be_exclusive = inside || self.may_be_exclusive.load(Ordering::Relaxed);
        self.end_images(may_be_exclusive);
        let done = shared.counts.take();
        shared.totals.end_epoch(&done);
        next_epoch(shared, &done, self.choice);
        let syncs_each_write = done.writes <= 1;
        if self.syncs_each_write.load(Ordering::Relaxed) != syncs_each_write {
            self.syncs_each_write.store(syncs_each_write, Ordering::Relaxed);
        }
        if inside {
            shared.gate.go_on()
        } else {
            shared.gate.grant(self.me, may_be_exclusive)
        }
        crate::file::base::background_wakeup::notify();
        Ok(())
    }
}

impl Session {
    /// Gives back what others of the pool need, if the engine does that at a SYNC. The epoch is durable: an error is
    /// the next write's, and what could not go to the file stays in the journal.
    #[inline]
    fn give_back_at_sync(&self, cx: Context<'_>) {
        if self.engine.journal().limit().must_return() > 0 {
            let _ = crate::file::descriptors::set_id::keeping_bits(cx.fds, || self.engine.give_back_at_sync(cx));
        }
    }
}

/// No other thread is inside the session.
#[allow(dead_code, reason = "held for its end")]
enum Excluded<'a> {
    Closed(ClosedGate<'a>),
    /// This thread is in exclusive mode, and inside.
    Inside(Inside<'a>),
}

/// The error of a SYNC that failed because of `error`.
#[cold]
pub(in crate::file) fn failed(error: Error) -> Error {
    Error::with(libc::EIO, format!("SYNC failed ({error}): no more writes are taken; reads go on"))
}

/// Chooses the policy of the epoch that begins, from what was done in the last.
pub(in crate::file) fn next_epoch(shared: &Shared, done: &Sums, choice: crate::settings::PolicyChoice) {
    let policy = policy::choose(shared, done, choice);
    shared.policy.store(policy as u32, Ordering::Relaxed);
}
