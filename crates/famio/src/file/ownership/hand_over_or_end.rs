//! Handing over ownership: the session is left to the next owner, or ends with a hand-over image; the last member
//! commits everything.

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, Inner, PLAIN};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::session::{OldSession, Session};
use crate::file::{Access, shadow};
use crate::index::{CLOSED, LIVES, OwnerLock, SESSION};
use crate::recovery;
use crate::sys::internal::undisturbed;
use crate::sys::monotonic_now;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;
use std::os::fd::AsRawFd;

/// Tries of the last process to end an unowned session, and the pause between two: about a second in all.
const ROUNDS: u32 = 1000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

impl AtomicFile {
    /// Hands ownership to the process that requested it, together with what is not committed.
    ///
    /// # Errors
    /// The file stays with this process: it was demoted, or is mapped without shared memory; or its open epoch is too
    /// large, or its journal cannot be ended; or it belongs to a group, and is mapped for stores or has something
    /// uncommitted.
    pub(in crate::file) fn hand_over_ownership(&self) -> Result<()> {
        self.take_stores_and_hand_over(true)
    }

    /// As [`hand_over_ownership`](Self::hand_over_ownership), but always ends the session.
    ///
    /// # Errors
    /// As there.
    pub(in crate::file) fn end_ownership(&self) -> Result<()> {
        self.take_stores_and_hand_over(false)
    }

    fn take_stores_and_hand_over(&self, alive: bool) -> Result<()> {
        Self::may_lock()?;
        if self.has_shared_shadow() && self.ownership.is_owner.load(Ordering::Acquire) {
            self.take_stores()?;
        } else {
            self.take_last_stores()?;
        }
        let _changing = self.shadow.lock();
        self.hand_over_or_end(&mut self.inner(), alive)
    }

    /// `alive`: a session that can be handed over as it is, is.
    pub(super) fn hand_over_or_end(&self, inner: &mut Inner, alive: bool) -> Result<()> {
        let membership = &self.ownership.membership;
        self.ownership.requests_seen.store(membership.requests(), Ordering::Relaxed);
        if inner.owner_lock.is_none() {
            return Ok(());
        }
        let state = self.state.load(Ordering::Acquire);
        let is_mapped = !self.has_shared_shadow() && shadow::is_mapped(self.key());
        if self.ownership.has_map_in_progress() || !is_mapped && !self.has_shared_shadow() && self.has_last_stores() {
            return Err(Error::new(libc::EBUSY)); // a map is being made, or has just gone; the other process asks again
        }
        membership.set_stuck(0); // it may have been mapped at the last request
        // In a group, what this process has stored, or may store, is its own to commit.
        let is_held = is_mapped || self.settings.group.is_some() && shadow::may_have_stores(self.key());
        let ended = if ![PLAIN, ATTACHED].contains(&state) || is_held {
            Err(Error::new(libc::EBUSY))
        } else if alive && self.hand_session_over(inner).unwrap_or(false) {
            return Ok(());
        } else {
            self.end_session(inner)
        };
        match ended {
            Ok(()) => {
                membership.count_hand_over();
                self.release_owner_lock(inner);
            }
            Err(_) => {
                membership.set_stuck(rustix::process::getpid().as_raw_nonzero().get() as u32);
                membership.announce_change(); // for the waiting process to see
            }
        }
        ended
    }

    pub(in crate::file) fn release_owner_lock(&self, inner: &mut Inner) {
        self.give_up(inner, OwnerLock::release);
    }

    pub(in crate::file) fn give_up(&self, inner: &mut Inner, how: impl FnOnce(OwnerLock)) {
        if let Some(owner_lock) = inner.owner_lock.take() {
            inner.arena = None;
            inner.unsent = None; // whoever gives the file up with it has reported an error
            self.shadow_is_stale();
            self.ownership.is_owner.store(false, Ordering::Release);
            self.ownership.membership.set_stuck(0);
            how(owner_lock);
            self.ownership.membership.announce_release();
        }
    }

    /// Ends the session without a commit. What a file of a group has uncommitted never leaves its process: another one
    /// could commit it without the other files.
    pub(super) fn end_session(&self, inner: &mut Inner) -> Result<()> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return self.send_unsent(inner);
        }
        let Some(session) = &inner.session else { return Ok(()) };
        let begun = monotonic_now();
        self.lease.rest();
        session.close_to_others();
        let is_of_group = session.of_group.load(Ordering::Acquire);
        let ended = if !is_of_group && self.fds.stat()?.st_nlink == 0 {
            // The file has no name, so no recovery would find its journal: what it contains stays.
            self.close_journal(session, true).map(|()| None)
        } else {
            let ended = session.end(&self.fds, || self.ownership.committed(session.arena.shared()));
            ended.inspect(|_| self.note_left_journal(session))
        };
        if ended.as_ref().is_err_and(Refusal::is_needs_group) {
            session.open_to_others(); // it goes on, and others read along
            self.lease.begin(session);
            return Err(Error::new(libc::EBUSY));
        }
        self.lease_ends(ended.is_ok());
        let open_changes = ended.inspect_err(|_| session.stays_closed_to_others())?;
        self.plain.forget_size();
        self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
        let session = inner.session.take();
        let arena = session.as_ref().map(|session| session.arena.clone());
        self.state.store(PLAIN, Ordering::Release);
        inner.old.extend(session.map(OldSession::new));
        match open_changes {
            None => {
                inner.old.retain_mut(|old| !old.is_unused());
                self.ownership.membership.set_session(false);
            }
            Some(open_changes) => {
                let sent = self.send_off(inner, &open_changes);
                if sent.is_err() {
                    inner.unsent = Some(open_changes);
                    // The session does not go on soon: readers must not wait for it.
                    arena.iter().for_each(|arena| arena.shared().open.store(CLOSED, Ordering::Release));
                }
                sent?;
            }
        }
        self.ownership.membership.note_end();
        self.ownership.ended_in.store(monotonic_now() - begun, Ordering::Relaxed);
        Ok(())
    }

    /// From now on other members notice the death of this process at once.
    pub(in crate::file) fn register_for_death_notice(&self) {
        if self.is_disowned() {
            return;
        }
        if !LIVES.are_kept() {
            crate::file::base::background_wakeup::start(); // it may share others' maps without ever having owned the file
            crate::file::base::background_wakeup::wait_until_there();
        }
        if self.ownership.membership.register_for_death_notice() && self.ownership.membership.may_be_watched() {
            self.ownership.membership.call_others(); // to watch this process, too
        }
        if LIVES.want_keeper() {
            crate::file::base::background_wakeup::wake();
        }
    }

    /// Another thread can keep robust futexes now: registers this file's if there was no room for it.
    pub(in crate::file) fn retry_death_notice(&self) {
        if !self.is_disowned() && (self.state.load(Ordering::Acquire) == ATTACHED || self.has_shared_shadow()) {
            self.ownership.membership.register_for_death_notice();
        }
    }

    /// Closes the session's journal clean. A hand-over image that the session took up was committed and goes before
    /// the journal does. Refused if something is open that is committed with a group, unless the file `is_alone`.
    pub(in crate::file) fn close_journal(&self, session: &Session, is_alone: bool) -> Answer<()> {
        let is_alone = is_alone || self.settings.group.is_none();
        if self.ownership.has_taken_image.load(Ordering::Acquire) {
            if is_alone {
                session.sync(&self.fds, || false, || ()).map_err(Error::from)?;
            } else if session.arena.shared().dirty.load(Ordering::Acquire) != 0 {
                return Err(Refusal::needs_group());
            }
            self.ownership.committed(session.arena.shared());
        }
        session.close(&self.fds, is_alone)?;
        self.note_left_journal(session);
        self.ownership.has_released_lock.store(false, Ordering::Release);
        Ok(())
    }

    /// The session has ended: notes whether its journal could not be removed.
    fn note_left_journal(&self, session: &Session) {
        let journal = session.engine.journal();
        *self.left_journal.lock() = journal.is_left().then(|| journal.id());
    }

    /// The process ends, or calls `exec`: leaves what is not committed to other members that can commit it, or
    /// commits it.
    pub(in crate::file) fn part(&self) -> Result<()> {
        if !self.is_disowned() {
            let _ = self.sync_group_if_open(); // if it fails, nothing is handed over, and the commit below reports errors
        }
        if self.ownership.membership.has_other_writers() && self.hand_over_ownership().is_ok() {
            self.end_if_last_attached();
            if self.ownership.membership.retire() {
                self.ownership.membership.end_tenure();
                return Ok(());
            }
        }
        self.commit_all()
    }

    /// Commits, checkpoints and closes the journal clean; includes a hand-over image.
    pub(in crate::file) fn commit_all(&self) -> Result<()> {
        if self.ownership.is_disturbed() && self.fds.has_writable() && !self.is_demoted() {
            match self.settings.group {
                None => self.sync_all(|| false)?,
                // A session of this process is committed with the group as it is closed, if there is anything.
                Some(group) if self.state.load(Ordering::Acquire) == PLAIN => self.sync_group(group, || false)?,
                Some(_) => {}
            }
        }
        if self.state.load(Ordering::Acquire) == PLAIN {
            self.join_shadow()?; // others may have stored there
        }
        self.close_session()
    }

    /// For a process that only reads, when no other process is attached: commits what the writers left when they closed
    /// the file cleanly.
    fn recover_if_alone(&self) {
        let membership = &self.ownership.membership;
        if self.state.load(Ordering::Acquire) == PLAIN
            && !self.fds.has_writable()
            && membership.is_attached()
            && membership.state() & SESSION != 0
            && !membership.has_others()
        {
            let mut inner = self.inner();
            if inner.owner_lock.is_none() {
                let _ = self.recover_the_dead(&mut inner); // or else the next process that opens the file does
            }
        }
    }

    /// The program has closed its last descriptor: detaches. The last member commits everything.
    pub(in crate::file) fn leave_membership(&self) -> Result<()> {
        let mut result = Ok(());
        let mut own = None;
        self.leave_keeper();
        self.ownership.membership.stop_writing();
        for round in 0.. {
            // What this process wrote is left to the others to commit.
            self.end_if_last_attached();
            self.recover_if_alone();
            let others = self.ownership.membership.has_other_writers() && self.hand_over_ownership().is_ok();
            self.ownership.membership.end_tenure();
            if !others {
                let closed = self.commit_all();
                if closed.is_err() {
                    self.poison_group_if_lost();
                }
                result = result.and(closed);
                let _changing = self.shadow.lock(); // a thread that is about to show changes needs ownership
                self.release_owner_lock(&mut self.inner());
            }
            let left = {
                let _inner = self.inner(); // the background reaps under this lock, and must be attached
                if result.is_err() && !self.is_demoted() {
                    self.ownership.membership.leave_after_failure()
                } else {
                    self.ownership.membership.leave()
                }
            };
            if left {
                let mut inner = self.inner();
                let ended = inner.left.take();
                inner.old.extend(ended.map(OldSession::new));
                drop(inner);
                self.shadow_is_stale(); // if it went with this process
                self.joint.leave();
                *self.ownership.unattached.visit.lock() = None;
                own.into_iter().for_each(|own| self.fds.leave(own));
                return result;
            }
            // No other member can commit the hand-over image. A reader does it in the way of a recovery.
            if own.is_none() && !self.fds.has_writable() {
                own = self.fds.with(false, recovery::writable).ok();
                own.iter().for_each(|own| self.fds.add(own.as_raw_fd(), Access::Write));
                if own.is_some() {
                    continue;
                }
                result = result.and(Err(Error::new(libc::EBADF)));
            }
            if result.is_err() || self.is_demoted() || round > ROUNDS {
                self.ownership.membership.set_attached(0); // what could not end is left as after a kill
            } else if round > 1 {
                let _ = rustix::thread::nanosleep(&PAUSE); // another process is about to go on with the session
                undisturbed::renew();
            }
            if (result.is_err() || self.is_demoted()) && !self.ownership.membership.has_others() {
                if self.is_demoted() || !self.ownership.membership.has_kept_epoch() {
                    self.ownership.membership.forget_epoch();
                }
                self.ownership.membership.found_unknown_stores(self.ownership.membership.unknown_stores());
            }
        }
        result
    }
}
