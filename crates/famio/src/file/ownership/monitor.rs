//! What the background does for a shared file: it answers requests for ownership, switches maps over, and reaps dead
//! members. It never waits: if a lock is taken, it looks again later.

use crate::error::Result;
use crate::file::atomic::{ATTACHED, AtomicFile, PLAIN};
use crate::file::base::background_wakeup::Watched;
use crate::file::session::Session;
use crate::index::calls::exclusive::prepare_process;
use crate::index::{KERNELS, WriterState};
use crate::sys::{Word, monotonic_now};
use core::sync::atomic::Ordering;

/// Nanoseconds of attempts to reap a dead member, until that is left to the next process that uses the file: the
/// owner may be stopped.
const PATIENCE: u64 = 1_000_000_000;

impl AtomicFile {
    /// Hands over ownership if it was requested and held long enough; reaps dead members. Returns whether to look
    /// again soon.
    pub(in crate::file) fn monitor_members(&self) -> bool {
        let membership = &self.ownership.membership;
        if membership.has_attached() {
            // Before the look: what comes after it changes the word again.
            self.ownership.calls_seen.store(membership.calls().load(Ordering::SeqCst), Ordering::Relaxed);
        }
        self.ownership.leave_session();
        self.monitor_companions();
        let unowned = self.end_for_others() || self.reap_dead_of_session();
        let dead = self.reap_orphan() || self.reap_dead() || unowned;
        self.monitor_maps() || self.answer_request() || dead
    }

    /// Allows exclusive mode again once the other processes have left.
    fn monitor_companions(&self) {
        let is_shared = |session: &Session| !session.may_be_exclusive.load(Ordering::Relaxed);
        if self.ownership.is_owner.load(Ordering::Acquire)
            && self.settings.group.is_none()
            && self.with_session(is_shared) == Some(true)
            && !self.ownership.membership.has_others()
            && prepare_process()
        {
            self.ownership.membership.set_read_along(false); // a process that comes at this moment notices, and requests ownership
            self.with_session(|session| session.may_be_exclusive.store(true, Ordering::Relaxed));
            self.is_wanted.store(false, Ordering::Release);
        }
    }

    /// Rolls back the changes of a dead member in a session that others continue, even if no call looks at the file.
    fn reap_dead_of_session(&self) -> bool {
        let membership = &self.ownership.membership;
        if !membership.has_attached() || !self.is_wanted.load(Ordering::Relaxed) || !membership.has_dead() {
            return false;
        }
        if self.ownership.is_owner.load(Ordering::Acquire) {
            if self.has_foreign_of(WriterState::Dead)
                && let Some(_changing) = self.shadow.try_lock()
                && let Some(mut inner) = self.inner.try_lock()
                && inner.owner_lock.is_some()
            {
                let _ = self.end_with_arena(&mut inner); // the next call begins without the session, or tries again
            }
            return false;
        }
        if !membership.has_unowned() || !membership.is_attached() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return true };
        let state = membership.state();
        if inner.owner_lock.is_none() && inner.left.is_some() && !self.ownership.is_unrepairable(state) {
            match self.recover_the_dead(&mut inner) {
                Ok(_) => {}
                Err(_) => self.ownership.cannot_repair(state),
            }
        }
        false
    }

    /// A process has just died with its session: its owner lock may not be free yet.
    fn reap_orphan(&self) -> bool {
        if !self.ownership.membership.has_attached() || !self.ownership.membership.is_orphaned() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return true };
        if inner.owner_lock.is_some() || !self.ownership.membership.is_attached() {
            return false;
        }
        let state = self.ownership.membership.state();
        if self.ownership.is_unrepairable(state) {
            return false;
        }
        match self.recover_the_dead(&mut inner) {
            Ok(free) => !free,
            Err(_) => {
                // The next process that uses the file reports it.
                self.ownership.cannot_repair(state);
                false
            }
        }
    }

    /// Undoes a dead member's stores and writes that show in others' maps, which are read without a call.
    fn reap_dead(&self) -> bool {
        let Some(dead) = self.dead_to_reap() else {
            self.ownership.reaping_since.store(0, Ordering::Relaxed);
            return false;
        };
        let (begun, now) = (self.ownership.reaping_since.load(Ordering::Relaxed), monotonic_now());
        // A failure may be temporary: the session may just have ended.
        if self.undo_the_dead().unwrap_or(false) || begun != 0 && now > begun + PATIENCE {
            self.ownership.reaped.store(dead, Ordering::Relaxed);
            return false;
        }
        if begun == 0 {
            self.ownership.reaping_since.store(now, Ordering::Relaxed);
            self.ownership.membership.announce_change(); // the kernel woke one watcher, which may not be the owner
        }
        true
    }

    /// The dead members whose changes may show in a map and were not undone yet, as one number.
    fn dead_to_reap(&self) -> Option<u64> {
        let dead = if self.is_shown() { self.ownership.membership.dead_hash() } else { None };
        dead.filter(|&dead| dead != self.ownership.reaped.load(Ordering::Relaxed))
    }

    /// Whether this process is attached, and members share a shadow.
    fn is_shown(&self) -> bool {
        let membership = &self.ownership.membership;
        membership.has_attached() && !self.is_disowned() && membership.shadow().is_some() && membership.is_attached()
    }

    /// Undoes them; returns whether that is done.
    fn undo_the_dead(&self) -> Result<bool> {
        let membership = &self.ownership.membership;
        let Some(_changing) = self.shadow.try_lock() else { return Ok(false) };
        let Some(mut inner) = self.inner.try_lock() else { return Ok(false) };
        if !membership.is_attached() {
            return Ok(true); // it detached meanwhile, under that lock
        }
        if inner.owner_lock.is_none() {
            return self.recover_the_dead(&mut inner);
        }
        match self.state.load(Ordering::Acquire) {
            PLAIN if inner.unsent.is_none() => self.recover_and_roll_back(&mut inner).map(|()| true),
            ATTACHED if self.has_foreign_of(WriterState::Dead) => {
                if self.ownership.has_map_in_progress() {
                    return Ok(false); // a map is being made
                }
                self.end_with_arena(&mut inner)?;
                Ok(false) // by the next owner
            }
            ATTACHED => {
                let dead = membership.dead();
                drop(inner); // ownership stays, under the shadow's lock
                if let Some(shadow) = self.shadow()
                    && self.has_shared_shadow()
                    && membership.has_dead_stores()
                {
                    self.leave_dead_stores(shadow)?;
                }
                if !self.has_foreign_of(WriterState::Dead) {
                    membership.reap(&dead); // otherwise all others would look at them, too
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn answer_request(&self) -> bool {
        // Where another process is asked and cannot hand over, `end_for_others` deals with it.
        if !self.ownership.has_requests() || !self.ownership.is_owner.load(Ordering::Acquire) {
            return false;
        }
        if !self.ownership.was_long_enough() || self.ownership.may_finish_burst(monotonic_now()) {
            return true;
        }
        let _ = self.take_last_stores(); // otherwise they keep ownership here
        // A thread that changes the file and its shadow, or begins or ends a session, comes first.
        let Some(_changing) = self.shadow.try_lock() else { return true };
        let Some(mut inner) = self.inner.try_lock() else { return true };
        // The thread that began the session may have caused the request itself (`register_for_death_notice`), or
        // ownership was handed over already.
        if self.ownership.has_requests() {
            // If it fails, the other process finds this one stuck, or requests ownership again.
            let _ = self.hand_over_or_end(&mut inner, true);
        }
        false
    }

    /// For `famio flush`: ends this process's session, which brings the file to the last commit; what is not committed
    /// becomes a hand-over image, which survives a kill of this process at any moment. Called by the background. False:
    /// it has to be called again.
    ///
    /// # Errors
    /// As of a hand-over.
    pub(in crate::file) fn end_for_flush(&self) -> Result<bool> {
        let _ = self.take_last_stores(); // otherwise they keep ownership here
        let Some(_changing) = self.shadow.try_lock() else { return Ok(false) };
        let Some(mut inner) = self.inner.try_lock() else { return Ok(false) };
        if inner.owner_lock.is_none() {
            return Ok(false); // another process has the session
        }
        self.hand_over_or_end(&mut inner, false)?;
        Ok(true)
    }

    /// Adds what the background waits for. The owner waits for requests, other members for the end of the owner and
    /// of members that may have left something in a map. False: there is something to do first.
    pub(in crate::file) fn watch_membership(&self, on: &mut Watched) -> bool {
        let membership = &self.ownership.membership;
        let is_shown = self.is_shown();
        let mut watched = true;
        if self.ownership.is_owner.load(Ordering::Acquire)
            || self.is_wanted.load(Ordering::Acquire) && membership.is_attached()
        {
            let seen = self.ownership.calls_seen.load(Ordering::Relaxed);
            on.words.push(Word::shared(membership.calls(), seen));
            watched &= membership.calls().load(Ordering::SeqCst) == seen; // for a kernel that cannot wait for all
            if self.is_wanted.load(Ordering::Acquire) {
                // The owner changes often: watch all members, since any of them may die as the owner.
                membership.watch_others(&mut on.holders);
                let known = self.ownership.unrepairable_state.load(Ordering::Relaxed);
                watched &= !(membership.is_orphaned() && membership.state() != known);
            }
            if is_shown || membership.has_maps(KERNELS) {
                membership.watch_given(&mut on.words);
            }
            watched &= !self.are_maps_waited_for(); // looked at after the word that announces it
        } else if membership.has_attached() && !self.is_disowned() {
            watched = membership.watch(
                &mut on.words,
                &mut on.holders,
                self.ownership.unrepairable_state.load(Ordering::Relaxed),
            );
            watched &= !self.are_maps_waited_for(); // looked at after what tells of it
        }
        if is_shown {
            membership.watch_others(&mut on.others);
            // Members that are looked at from time to time anyway do not keep it awake.
            watched &= self.dead_to_reap().is_none() || self.ownership.reaping_since.load(Ordering::Relaxed) != 0;
        }
        watched && !self.is_flush_unseen()
    }
}
