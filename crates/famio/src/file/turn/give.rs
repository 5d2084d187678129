//! Giving the turn: the session ends, and what is not committed is sent on its way; or all is committed, by the last to leave.

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, Inner, PLAIN};
use crate::file::parts::travel::{Draft, Travelling};
use crate::file::session::{CLOSED, OldSession, Session};
use crate::file::{Access, shadow};
use crate::index::{Claim, LIVES, SESSION};
use crate::recovery;
use crate::settings::OnKill;
use crate::sys::{monotonic_now, read_at};
use core::sync::atomic::Ordering;
use rustix::time::Timespec;
use std::os::fd::AsRawFd;

/// Tries of the last process to end a session that nobody owns, and a pause between two: about a second.
const ROUNDS: u32 = 1000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

impl AtomicFile {
    /// Gives the turn to whoever wants it; what is not committed goes along.
    ///
    /// # Errors
    /// The file stays with this process: it is handed back, or mapped with no memory for all to share, its open epoch is too large, or its journal can't be
    /// ended.
    pub(in crate::file) fn give_turn(&self) -> Result<()> {
        self.give_with(true)
    }

    /// As [`give_turn`](Self::give_turn); the session ends, though it could be handed over.
    ///
    /// # Errors
    /// As there.
    pub(in crate::file) fn end_turn(&self) -> Result<()> {
        self.give_with(false)
    }

    fn give_with(&self, alive: bool) -> Result<()> {
        Self::may_lock()?;
        if self.has_shared_shadow() && self.turns.has_turn.load(Ordering::Acquire) {
            self.take_stores()?;
        } else {
            self.take_last_stores()?;
        }
        let _changing = self.shadow.lock();
        self.give(&mut self.inner(), alive)
    }

    /// `alive`: a session that can be handed over as it is, is.
    pub(super) fn give(&self, inner: &mut Inner, alive: bool) -> Result<()> {
        let door = &self.turns.door;
        let heard = door.bell().load(Ordering::SeqCst);
        self.turns.heard.store(heard, Ordering::Relaxed);
        if inner.claim.is_none() {
            return Ok(());
        }
        let state = self.state.load(Ordering::Acquire);
        let is_mapped = !self.has_shared_shadow() && shadow::is_mapped(self.key());
        if self.turns.is_kept() || !is_mapped && !self.has_shared_shadow() && self.has_last_stores() {
            return Err(Error::new(libc::EBUSY)); // a map is being made, or has just gone; who waits rings again
        }
        door.set_stuck(0); // it may have been mapped when it was asked for last
        let ended = if ![PLAIN, ATTACHED].contains(&state) || inner.kept.is_some() || is_mapped {
            Err(Error::new(libc::EBUSY))
        } else if alive && self.hand_session_over(inner).unwrap_or(false) {
            return Ok(());
        } else {
            self.end_session(inner)
        };
        match ended {
            Ok(()) => {
                door.count_hand_over();
                self.release_claim(inner);
            }
            Err(_) => {
                door.set_stuck(rustix::process::getpid().as_raw_nonzero().get() as u32);
                door.give(); // who waits is to see that
            }
        }
        ended
    }

    pub(in crate::file) fn release_claim(&self, inner: &mut Inner) {
        self.give_up(inner, Claim::release);
    }

    pub(in crate::file) fn give_up(&self, inner: &mut Inner, how: impl FnOnce(Claim)) {
        if let Some(claim) = inner.claim.take() {
            inner.arena = None;
            self.shadow_is_stale();
            self.turns.has_turn.store(false, Ordering::Release);
            self.turns.door.set_stuck(0);
            how(claim);
            self.turns.door.give();
        }
    }

    /// Ends the session without a commit.
    pub(super) fn end_session(&self, inner: &mut Inner) -> Result<()> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return Ok(());
        }
        let Some(session) = &inner.session else { return Ok(()) };
        let begun = monotonic_now();
        self.lease.rest();
        session.close_to_others();
        let ended = if self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_nlink == 0))? {
            // It does not outlive a crash, and no recovery would find it: what is in it stays.
            self.close_journal(session).map(|()| None)
        } else {
            session.end(&self.fds, || self.turns.committed(session.arena.shared()))
        };
        self.lease_ends(ended.is_ok());
        let draft = ended.inspect_err(|_| session.stays_closed_to_others())?;
        self.plain.forget_size();
        self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
        let session = inner.session.take();
        let arena = session.as_ref().map(|session| session.arena.clone());
        self.state.store(PLAIN, Ordering::Release);
        inner.old.extend(session.map(OldSession::new));
        match draft {
            None => {
                inner.old.retain_mut(|old| !old.is_left());
                self.turns.door.set_session(false);
            }
            Some(draft) => {
                let sent = self.send_off(inner, &draft);
                if sent.is_err() {
                    inner.kept = Some(draft);
                    // It does not go on soon: a reader is not to wait for that.
                    arena.iter().for_each(|arena| arena.shared().open.store(CLOSED, Ordering::Release));
                }
                sent?;
            }
        }
        self.turns.door.note_end();
        self.turns.ended_in.store(monotonic_now() - begun, Ordering::Relaxed);
        Ok(())
    }

    /// From now on the end of this process is seen at once by who is at the door.
    pub(in crate::file) fn be_seen(&self) {
        if self.is_disowned() {
            return;
        }
        if !LIVES.are_kept() {
            crate::file::base::background_bell::start(); // it may have joined what others map, and never had a turn
            crate::file::base::background_bell::wait_until_there();
        }
        if self.turns.door.be_seen() {
            // Wakes the processes that wait for the bell only. A ring of this process is no request to itself; a request that another
            // process made before or meanwhile stays.
            let before = self.turns.door.ring();
            let after = before.wrapping_add(1);
            let _ = self.turns.heard.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
        if LIVES.want_keeper() {
            crate::file::base::background_bell::wake();
        }
    }

    /// There is one more thread to keep lives: is seen, if it should be and was not.
    pub(in crate::file) fn be_seen_now(&self) {
        if !self.is_disowned() && (self.state.load(Ordering::Acquire) == ATTACHED || self.has_shared_shadow()) {
            self.turns.door.be_seen();
        }
    }

    /// The file goes back to what is committed, and the rest on its way.
    pub(super) fn send_off(&self, inner: &mut Inner, draft: &Draft) -> Result<()> {
        let Some(claim) = inner.claim.as_mut() else { return Err(Error::new(libc::EIO)) };
        let turns = &self.turns;
        self.be_seen(); // by processes that take up what travels
        if self.settings.on_kill == OnKill::Keep {
            // It travels before the file goes back: at no moment is it in memory of this process alone.
            turns.send(&self.fds, &Travelling::kept(draft.all()), true)?;
            self.recover(claim, true)?;
            turns.all_own();
            turns.door.set_session(false);
            return Ok(());
        }
        if let Some(changes) = &draft.by_writer {
            // Of others too, and nowhere else: it travels before the file goes back.
            turns.send(&self.fds, &Travelling { changes: changes.clone() }, true)?;
            self.recover(claim, true)?;
            turns.all_own();
            turns.door.set_session(false);
            return Ok(());
        }
        let mut epoch = turns.travelling(&self.fds)?;
        self.recover(claim, true)?;
        self.fds.with(true, |fd| {
            let committed = rustix::fs::fstat(fd)?.st_size as u64;
            epoch.add(self.writer_of(draft), draft, committed, |offset, piece| read_at(fd, offset, piece).map(drop))
        })?;
        turns.send(&self.fds, &epoch, false)?;
        turns.all_own();
        turns.door.set_session(false);
        Ok(())
    }

    /// Closes the session's journal clean. What travelled here is committed, and travels no more, before the journal is gone.
    pub(in crate::file) fn close_journal(&self, session: &Session) -> Result<()> {
        if self.turns.travelled.load(Ordering::Acquire) {
            session.sync(&self.fds, || false, || ())?;
            self.turns.committed(session.arena.shared());
        }
        session.close(&self.fds)?;
        self.turns.has_released.store(false, Ordering::Release);
        Ok(())
    }

    /// The process ends, or goes on as another program: what is not committed is the others' who have the file open to commit,
    /// or is committed.
    pub(in crate::file) fn part(&self) -> Result<()> {
        if self.turns.door.has_other_writers() && self.give_turn().is_ok() {
            self.end_if_last_attached();
            if self.turns.door.retire() {
                self.turns.door.end_tenure();
                return Ok(());
            }
        }
        self.commit_all()
    }

    /// Commits, settles and closes the journal clean; what travels, too.
    pub(in crate::file) fn commit_all(&self) -> Result<()> {
        if self.turns.is_disturbed() && self.fds.has_writable() && !self.is_demoted() {
            self.sync_all(|| false)?;
        }
        if self.state.load(Ordering::Acquire) == PLAIN {
            self.join_shadow()?; // others may have stored there
        }
        self.close_session()
    }

    /// Of a process that only reads, when all that could write are gone: what those who left cleanly wrote is to be committed.
    fn recover_if_alone(&self) {
        let door = &self.turns.door;
        if self.state.load(Ordering::Acquire) == PLAIN
            && !self.fds.has_writable()
            && door.is_here()
            && door.state() & SESSION != 0
            && !door.has_others()
        {
            let mut inner = self.inner();
            if inner.claim.is_none() {
                let _ = self.recover_the_dead(&mut inner); // else whoever opens the file next does
            }
        }
    }

    /// The program has closed its last descriptor. As the last process: all is committed.
    pub(in crate::file) fn leave_door(&self) -> Result<()> {
        let mut result = Ok(());
        let mut own = None;
        for round in 0.. {
            // What it wrote is for the others to commit.
            self.end_if_last_attached();
            self.recover_if_alone();
            let others = self.turns.door.has_other_writers() && self.give_turn().is_ok();
            self.turns.door.end_tenure();
            if !others {
                let closed = self.commit_all();
                result = result.and(closed);
                let _changing = self.shadow.lock(); // what a thread is about to show, it shows with the turn
                self.release_claim(&mut self.inner());
            }
            let left = {
                let _inner = self.inner(); // the background puts in order what is dead under it, and has to be at the door
                self.turns.door.leave()
            };
            if left {
                let mut inner = self.inner();
                let ended = inner.left.take();
                inner.old.extend(ended.map(OldSession::new));
                drop(inner);
                self.shadow_is_stale(); // if it went with this process
                self.joint.leave();
                own.into_iter().for_each(|own| self.fds.leave(own));
                return result;
            }
            // Nobody else is there to commit what travels. A reader does it as it would recover the file.
            if own.is_none() && !self.fds.has_writable() {
                own = self.fds.with(false, recovery::writable).ok();
                own.iter().for_each(|own| self.fds.add(own.as_raw_fd(), Access::Write));
                if own.is_some() {
                    continue;
                }
                result = result.and(Err(Error::new(libc::EBADF)));
            }
            if result.is_err() || self.is_demoted() || round > ROUNDS {
                self.turns.door.set_attached(0); // what could not be ended is left as a killed process leaves it
            } else if round > 1 {
                let _ = rustix::thread::nanosleep(&PAUSE); // another process is about to go on with the session
            }
            if (result.is_err() || self.is_demoted()) && !self.turns.door.has_others() {
                self.turns.door.forget_epoch();
                self.turns.door.found_unknown_stores(self.turns.door.unknown_stores());
            }
        }
        result
    }
}
