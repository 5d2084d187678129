//! What the background does for a shared file: it answers requests for ownership, switches maps over, and reaps dead
//! members. It never waits: if a lock is taken, it looks again later.

use crate::error::Result;
use crate::file::atomic::{ATTACHED, AtomicFile, PLAIN};
use crate::file::base::background_bell::Watched;
use crate::file::session::Session;
use crate::index::alone::prepare_process;
use crate::index::{KERNELS, Standing};
use crate::sys::{Word, monotonic_now};
use core::sync::atomic::Ordering;

/// Nanoseconds of attempts to reap a dead member, until that is left to the next process that uses the file: the
/// owner may be stopped.
const PATIENCE: u64 = 1_000_000_000;

impl AtomicFile {
    /// Hands over ownership if it was requested and held long enough; reaps dead members. Returns whether to look
    /// again soon.
    pub(in crate::file) fn mind_door(&self) -> bool {
        self.turns.leave_session();
        self.mind_companions();
        let unowned = self.end_for_others() || self.mind_dead_of_session();
        let dead = self.mind_orphan() || self.mind_dead() || unowned;
        self.mind_maps() || self.answer_bell() || dead
    }

    /// Allows exclusive mode again once the other processes have left.
    fn mind_companions(&self) {
        let is_shared = |session: &Session| !session.may_be_alone.load(Ordering::Relaxed);
        if self.turns.has_turn.load(Ordering::Acquire)
            && self.with_session(is_shared) == Some(true)
            && !self.turns.door.has_others()
            && prepare_process()
        {
            self.turns.door.set_read_along(false); // a process that comes at this moment notices, and requests ownership
            self.with_session(|session| session.may_be_alone.store(true, Ordering::Relaxed));
            self.is_wanted.store(false, Ordering::Release);
        }
    }

    /// Rolls back the changes of a dead member in a session that others continue, even if no call looks at the file.
    fn mind_dead_of_session(&self) -> bool {
        let door = &self.turns.door;
        if !door.has_come() || !self.is_wanted.load(Ordering::Relaxed) || !door.has_dead() {
            return false;
        }
        if self.turns.has_turn.load(Ordering::Acquire) {
            if self.has_foreign_of(Standing::Dead)
                && let Some(_changing) = self.shadow.try_lock()
                && let Some(mut inner) = self.inner.try_lock()
                && inner.claim.is_some()
            {
                let _ = self.end_with_arena(&mut inner); // the next call begins without the session, or tries again
            }
            return false;
        }
        if !door.has_unowned() || !door.is_here() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return true };
        let state = door.state();
        if inner.claim.is_none() && inner.left.is_some() && !self.turns.is_left_to_others(state) {
            match self.recover_the_dead(&mut inner) {
                Ok(_) => {}
                Err(_) => self.turns.leave_to_others(state),
            }
        }
        false
    }

    /// A process has just died with its session: its owner lock may not be free yet.
    fn mind_orphan(&self) -> bool {
        if !self.turns.door.has_come() || !self.turns.door.is_orphaned() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return true };
        if inner.claim.is_some() || !self.turns.door.is_here() {
            return false;
        }
        let state = self.turns.door.state();
        if self.turns.is_left_to_others(state) {
            return false;
        }
        match self.recover_the_dead(&mut inner) {
            Ok(free) => !free,
            Err(_) => {
                // The next process that uses the file reports it.
                self.turns.leave_to_others(state);
                false
            }
        }
    }

    /// Undoes a dead member's stores and writes that show in others' maps, which are read without a call.
    fn mind_dead(&self) -> bool {
        let Some(dead) = self.dead_to_mind() else {
            self.turns.minding.store(0, Ordering::Relaxed);
            return false;
        };
        let (begun, now) = (self.turns.minding.load(Ordering::Relaxed), monotonic_now());
        // A failure may be temporary: the session may just have ended.
        if self.undo_the_dead().unwrap_or(false) || begun != 0 && now > begun + PATIENCE {
            self.turns.minded.store(dead, Ordering::Relaxed);
            return false;
        }
        if begun == 0 {
            self.turns.minding.store(now, Ordering::Relaxed);
            self.turns.door.give(); // the kernel woke one watcher, which may not be the owner
        }
        true
    }

    /// The dead members whose changes may show in a map and were not undone yet, as one number.
    fn dead_to_mind(&self) -> Option<u64> {
        let dead = if self.is_shown() { self.turns.door.dead_in_one() } else { None };
        dead.filter(|&dead| dead != self.turns.minded.load(Ordering::Relaxed))
    }

    /// Whether this process is attached, and members share a shadow.
    fn is_shown(&self) -> bool {
        let door = &self.turns.door;
        door.has_come() && !self.is_disowned() && door.shadow().is_some() && door.is_here()
    }

    /// Undoes them; returns whether that is done.
    fn undo_the_dead(&self) -> Result<bool> {
        let door = &self.turns.door;
        let Some(_changing) = self.shadow.try_lock() else { return Ok(false) };
        let Some(mut inner) = self.inner.try_lock() else { return Ok(false) };
        if !door.is_here() {
            return Ok(true); // it detached meanwhile, under that lock
        }
        if inner.claim.is_none() {
            return self.recover_the_dead(&mut inner);
        }
        match self.state.load(Ordering::Acquire) {
            PLAIN if inner.kept.is_none() => self.recover_and_roll_back(&mut inner).map(|()| true),
            ATTACHED if self.has_foreign_of(Standing::Dead) => {
                if self.turns.is_kept() {
                    return Ok(false); // a map is being made
                }
                self.end_with_arena(&mut inner)?;
                Ok(false) // by the next owner
            }
            ATTACHED => {
                let dead = door.dead();
                drop(inner); // ownership stays, under the shadow's lock
                if let Some(shadow) = self.shadow()
                    && self.has_shared_shadow()
                    && door.has_dead_stores()
                {
                    self.leave_dead_stores(shadow)?;
                }
                if !self.has_foreign_of(Standing::Dead) {
                    door.bury(&dead); // otherwise all others would look at them, too
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn answer_bell(&self) -> bool {
        if !self.turns.is_asked() {
            return false;
        }
        if !self.turns.has_turn.load(Ordering::Acquire) {
            // Another process is asked. If that cannot hand over, `end_for_others` deals with it.
            let bell = self.turns.door.bell().load(Ordering::SeqCst);
            self.turns.heard.store(bell, Ordering::Relaxed);
            return false;
        }
        if !self.turns.was_long_enough() {
            return true;
        }
        let _ = self.take_last_stores(); // otherwise they keep ownership here
        // A thread that changes the file and its shadow, or begins or ends a session, comes first.
        let Some(_changing) = self.shadow.try_lock() else { return true };
        let Some(mut inner) = self.inner.try_lock() else { return true };
        // The thread that began the session may have caused the request itself (`be_seen`), or ownership was handed
        // over already.
        if self.turns.is_asked() {
            let _ = self.give(&mut inner, true);
        }
        false
    }

    /// Adds what the background waits for. The owner waits for requests, other members for the end of the owner and
    /// of members that may have left something in a map. False: there is something to do first.
    pub(in crate::file) fn watch_door(&self, on: &mut Watched) -> bool {
        let door = &self.turns.door;
        let is_shown = self.is_shown();
        let mut watched = true;
        if self.turns.has_turn.load(Ordering::Acquire) || self.is_wanted.load(Ordering::Acquire) && door.is_here() {
            on.words.push(Word::shared(door.bell(), self.turns.heard.load(Ordering::Relaxed)));
            if self.is_wanted.load(Ordering::Acquire) {
                // The owner changes all the time: any member may be the one that dies.
                door.watch_others(&mut on.holders);
                let known = self.turns.left_to_others.load(Ordering::Relaxed);
                watched = !(door.is_orphaned() && door.state() != known);
            }
            if is_shown || door.has_maps(KERNELS) {
                door.watch_given(&mut on.words);
            }
            watched &= !self.are_maps_waited_for(); // looked at after the word that announces it
        } else if door.has_come() && !self.is_disowned() {
            watched = door.watch(&mut on.words, &mut on.holders, self.turns.left_to_others.load(Ordering::Relaxed));
            watched &= !self.are_maps_waited_for(); // looked at after what tells of it
        }
        if is_shown {
            door.watch_others(&mut on.others);
            // Members that are looked at from time to time anyway do not keep it awake.
            watched &= self.dead_to_mind().is_none() || self.turns.minding.load(Ordering::Relaxed) != 0;
        }
        watched
    }
}
