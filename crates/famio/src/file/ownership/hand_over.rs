//! Handing a session over: the owner leaves it as it is, with journal and uncommitted bytes, and the next owner, in any
//! process, continues it. There is no checkpoint, no recovery, and no system call on file or journal.
//!
//! What a session needs lies in its arena, which every owner maps. What an engine keeps outside of it (the end of the
//! log, blocks that await a checkpoint) the owner puts there as it leaves ([`Session::leave_unowned`]). The session is
//! then *unowned* until a process takes the owner lock. If an owner is killed, the lock is free but the session is not
//! marked unowned: that is a crash, and the next process that takes the lock recovers the file (`take`).

use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, Inner, PLAIN};
use crate::file::session::attach;
use crate::file::session::attach::spills_to;
use crate::file::session::{OldSession, Session};
use crate::file::state::burst::Ended;
use crate::file::state::deferred::has_changed_since_exact;
use crate::file::state::ownership::PATIENCE;
use crate::index::{Arena, HAS_IMAGE, Images, OwnerLock, WriterState, follow_up};
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Calls after each of which a process leaves a session that it got from another one: as long as they change the file
/// alternately, neither waits for the other while that is idle.
const CALLS_IN_TENURE: u32 = 16;
impl AtomicFile {
    /// As [`hand_session_over`](Self::hand_session_over), although no process wants it now: if epoch `committed` is
    /// still the last, nothing is open, and the file is exactly that. The next owner finds that noted.
    pub(in crate::file) fn leave_to_any(&self, committed: u64) -> Result<bool> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        self.hand_session_over_as(&mut self.inner(), Some(committed))
    }

    /// Leaves the session, and with it the owner lock, to the next owner. False: it cannot be handed over as it is.
    pub(super) fn hand_session_over(&self, inner: &mut Inner) -> Result<bool> {
        self.hand_session_over_as(inner, None)
    }

    fn hand_session_over_as(&self, inner: &mut Inner, exact: Option<u64>) -> Result<bool> {
        let membership = &self.ownership.membership;
        let Some(session) = &inner.session else { return Ok(false) };
        if self.state.load(Ordering::Acquire) != ATTACHED
            || session.keeps
            || self.settings.group.is_some()
            || membership.is_without_hand_over()
            || self.shadow.get().is_some()
            || membership.shadow().is_some()
        {
            return Ok(false);
        }
        let begun = monotonic_now();
        self.lease.rest();
        match session.leave_unowned(&self.fds, exact) {
            Ok(true) => {}
            left => {
                self.lease.begin(session);
                return left;
            }
        }
        self.plain.forget_size();
        self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
        let before = core::mem::replace(&mut inner.left, inner.session.take());
        // A session that was left earlier and has ended: the background may still use it.
        inner.old.extend(before.map(OldSession::new));
        self.state.store(PLAIN, Ordering::Release);
        self.ownership.forget_writers();
        self.watch_for_others();
        membership.count_hand_over();
        membership.set_unowned(true);
        self.ownership.ended_in.store(monotonic_now() - begun, Ordering::Relaxed);
        self.give_up(inner, OwnerLock::leave);
        Ok(true)
    }

    /// Makes this process the owner of an unowned session; it has the owner lock. False: this process cannot take the
    /// session, and another one has to end it.
    pub(super) fn take_session_over(&self, inner: &mut Inner) -> Result<bool> {
        let membership = &self.ownership.membership;
        let begun = monotonic_now();
        let number = membership.arena();
        let left = inner.left.take();
        let is_that = |session: &Session| {
            let shared = session.arena.shared();
            session.arena_number == number
                && session.opened.load(Ordering::Acquire) == shared.open.load(Ordering::Acquire)
                && session.engine.journal().file().identity().1 == shared.journal_file.load(Ordering::Acquire)
        };
        let is_own = |session: &Session| {
            let shared = session.arena.shared();
            shared.generation.load(Ordering::Acquire) == session.generation.load(Ordering::Acquire) + 1
        };
        if !left.as_ref().is_some_and(|left| is_that(left) && is_own(left)) {
            self.ownership.calls_in_tenure.store(CALLS_IN_TENURE, Ordering::Relaxed);
        }
        self.watch_for_others();
        let session = match left {
            Some(left) if is_that(&left) => match left.arena.catch_up() {
                Ok(()) => Ok(left),
                Err(e) => {
                    inner.old.push(OldSession::new(left)); // calls of this process may still use it
                    Err(e)
                }
            },
            left => {
                inner.old.extend(left.map(OldSession::new));
                self.attach_to_session(number).map(Box::new)
            }
        };
        let session = match session {
            Ok(session) => session,
            Err(e) => {
                // A process that only reads cannot own it; another one may.
                if e.errno() != libc::EBADF {
                    membership.set_no_hand_over();
                }
                return Ok(false);
            }
        };
        let is_changed = has_changed_since_exact(&self.fds, session.arena.shared());
        // From here on a kill is that of an owner.
        self.register_for_death_notice();
        membership.set_unowned(false);
        membership.set_attached(number);
        let taken = session.take_over(&self.fds).and_then(|closed| {
            self.ownership.has_taken_image.store(membership.state() & HAS_IMAGE != 0, Ordering::Release);
            self.note_writers(&session)?;
            if is_changed {
                session.take_file_as_it_is(&self.fds)?;
            }
            drop(closed);
            Ok(())
        });
        if let Err(e) = taken {
            inner.old.push(OldSession::new(session)); // as above
            return Err(self.named(e));
        }
        self.ownership.is_file_changed.store(is_changed, Ordering::Release);
        inner.arena = Some(session.arena.clone());
        self.session.store(core::ptr::from_ref(&*session).cast_mut(), Ordering::Release);
        inner.session = Some(session);
        inner.old.retain_mut(|old| !old.is_unused());
        self.state.store(ATTACHED, Ordering::Release);
        self.ownership.began(begun);
        self.with_session(|session| self.lease.begin(session));
        Ok(true)
    }

    /// Records the processes whose death would still roll back a part of the session's open epoch.
    fn note_writers(&self, session: &Session) -> Result<()> {
        let (ownership, shared) = (&self.ownership, session.arena.shared());
        let dead = ownership.membership.dead();
        let mut others = Vec::new();
        if shared.dirty.load(Ordering::Acquire) != 0 {
            others = session.imaging.see_others(Images::of(&session.arena), shared.committed() + 1)?;
        }
        // They were killed with nothing open here: their slots are free.
        if !dead.is_empty()
            && others.iter().all(|(_, writer)| ownership.membership.writer_state(*writer) != WriterState::Dead)
        {
            ownership.membership.reap(&dead);
        }
        ownership.foreign.store(!others.is_empty(), Ordering::Release);
        if others.is_empty() {
            shared.follow_up.fetch_and(!follow_up::OTHERS, Ordering::AcqRel);
        } else {
            shared.follow_up.fetch_or(follow_up::OTHERS, Ordering::AcqRel);
        }
        *ownership.others.lock() = others;
        Ok(())
    }

    /// Attaches to a session that another process began.
    fn attach_to_session(&self, number: u64) -> Result<Session> {
        let memory = self.ownership.membership.open_arena_to_own(number)?;
        let beside = self.fds.with(true, |fd| spills_to(fd, &self.settings))?;
        let arena = Arc::new(Arena::attach(memory, &beside)?);
        let shared = arena.shared();
        let inode = self.fds.with(true, |fd| Ok(rustix::fs::fstat(fd)?.st_ino))?;
        if shared.inode.load(Ordering::Acquire) != inode || shared.has_left.load(Ordering::Acquire) == 0 {
            return Err(Error::new(libc::EIO));
        }
        // A previous process in this slot may have left it inside.
        let place = self.ownership.membership.place();
        shared.gate.remove_dead(place, &shared.entered);
        let opened = AtomicU64::new(shared.open.load(Ordering::Acquire));
        let journal = shared.journal_file.load(Ordering::Acquire);
        attach::join(
            &self.fds,
            &self.settings,
            arena,
            number,
            opened,
            journal,
            (&self.ownership.membership, &self.ownership.others),
        )
    }

    /// Ends an unowned session; this process has the owner lock. What is not committed becomes a hand-over image.
    pub(super) fn end_unowned(&self, inner: &mut Inner) -> Result<bool> {
        if !self.take_session_over(inner)? {
            return Ok(false);
        }
        self.ownership.is_owner.store(true, Ordering::Release);
        let ended = self.end_with_arena(inner);
        if let Some(session) = inner.session.as_ref().filter(|_| ended.is_err() && self.settings.group.is_some()) {
            // It goes on as this process's: nothing of it is handed over any more, and the changes of the others are
            // committed with this process's own, as those of a hand-over image are.
            {
                let (others, membership) = (self.ownership.others.lock(), &self.ownership.membership);
                let living = others.iter().filter(|(_, writer)| membership.writer_state(*writer) == WriterState::Open);
                living.for_each(|&(_, writer)| membership.end_tenure_of(writer));
            }
            // With a dead process's changes in it, each call first tries to end it again.
            session.of_group.store(!self.has_foreign_of(WriterState::Dead), Ordering::Release);
        }
        ended.map(|()| true)
    }

    /// As [`end_unowned`](Self::end_unowned), if this process could take the session over and the owner lock is free.
    fn try_to_end_unowned(&self, inner: &mut Inner) {
        if inner.left.is_some() {
            self.end_unowned_if_free(inner);
        }
    }

    /// As [`end_unowned`](Self::end_unowned), if the owner lock is free.
    pub(in crate::file) fn end_unowned_at_once(&self) {
        self.end_unowned_if_free(&mut self.inner());
    }

    fn end_unowned_if_free(&self, inner: &mut Inner) {
        if inner.owner_lock.is_some() || !self.try_acquire_ownership(inner).unwrap_or(false) {
            return;
        }
        if !self.ownership.membership.has_unowned() || !matches!(self.end_unowned(inner), Ok(true)) {
            self.give_up_unless_held(inner);
        }
    }

    /// After an error of [`end_unowned`](Self::end_unowned): releases the owner lock, unless this process still holds
    /// what could not end. In that case others are told. Returns whether it was released.
    pub(super) fn give_up_unless_held(&self, inner: &mut Inner) -> bool {
        if inner.session.is_some() || inner.unsent.is_some() {
            self.ownership.is_owner.store(true, Ordering::Release);
            self.ownership.membership.set_stuck(rustix::process::getpid().as_raw_nonzero().get() as u32);
            self.ownership.membership.announce_change();
            return false;
        }
        self.give_up(inner, OwnerLock::leave);
        true
    }

    /// For an unowned session to which this process, with the owner lock, cannot attach. If no other member can
    /// either, it counts as left by a killed owner. Returns whether that is so.
    pub(super) fn is_unowned_session_lost(&self) -> bool {
        let membership = &self.ownership.membership;
        let is_gone = !membership.is_attached_by_others(membership.arena());
        if is_gone {
            membership.set_unowned(false);
        }
        is_gone
    }

    /// Before this process detaches: ends an unowned session that no other member could continue, so that its changes
    /// become a hand-over image.
    pub(super) fn end_if_last_attached(&self) {
        let membership = &self.ownership.membership;
        if !membership.has_attached()
            || !membership.has_unowned()
            || membership.is_attached_by_others(membership.arena()) && !membership.is_without_hand_over()
        {
            return;
        }
        self.try_to_end_unowned(&mut self.inner());
    }

    /// Images of others' changes leave no room for more: everything uncommitted becomes a hand-over image, and a new
    /// session saves no images.
    pub(in crate::file) fn begin_without_images(&self) -> Result<()> {
        // A change of a file with a shadow is made under the shadow's lock.
        let mut inner = self.inner();
        let is_full = |session: &Session| session.imaging.is_full();
        if self.with_session(is_full) == Some(true) {
            self.ownership.no_images.store(true, Ordering::Release);
            self.end_with_arena(&mut inner)?;
        }
        Ok(())
    }

    /// From now on the background watches for requests of other processes and for their deaths, whichever process
    /// owns the session.
    fn watch_for_others(&self) {
        if !self.is_wanted.swap(true, Ordering::AcqRel) {
            crate::file::base::background_wakeup::watch_members();
        }
    }

    /// After a change or a SYNC: leaves the session to the process that has asked for it, or that is likely to.
    #[cold]
    pub(in crate::file) fn leave_if_wanted(&self, ended: Ended) {
        let ownership = &self.ownership;
        if !ownership.is_owner.load(Ordering::Acquire) || Self::may_lock().is_err() {
            return;
        }
        if self.is_in_section() {
            return self.let_background_answer();
        }
        let left = ownership.calls_in_tenure.load(Ordering::Relaxed);
        if left == 0 && !ownership.has_requests() {
            return;
        }
        if ownership.keeps_for_burst(ended, monotonic_now()) {
            return self.let_background_answer();
        }
        let may_leave = (left > 0 || ownership.was_long_enough())
            && self.shadow.get().is_none()
            && ownership.membership.may_have_other_writers();
        let is_left = may_leave
            && self.inner.try_lock().is_some_and(|mut inner| {
                inner.owner_lock.is_some() && {
                    ownership.calls_in_tenure.store(left.saturating_sub(1), Ordering::Relaxed);
                    self.hand_session_over(&mut inner).unwrap_or(false)
                }
            });
        if !is_left {
            self.let_background_answer();
        }
    }

    /// Waiting processes may have asked an earlier owner, so this owner's background answers. It is woken once for each
    /// request.
    pub(in crate::file) fn let_background_answer(&self) {
        let ownership = &self.ownership;
        if ownership.has_requests() {
            let requests = ownership.membership.requests();
            if ownership.requests_woken_for.swap(requests, Ordering::Relaxed) != requests {
                crate::file::base::background_wakeup::wake();
            }
        }
    }

    /// Ends a session for a process that cannot attach to it, if this one can. Called by the background.
    pub(super) fn end_for_others(&self) -> bool {
        let membership = &self.ownership.membership;
        if !(membership.has_attached()
            && membership.has_unowned()
            && membership.is_without_hand_over()
            && membership.is_attached())
        {
            return false;
        }
        let Some(_changing) = self.shadow.try_lock() else { return true };
        let Some(mut inner) = self.inner.try_lock() else { return true };
        self.try_to_end_unowned(&mut inner);
        false
    }

    /// If no process has owned the session or asked for it for a while, its last owner takes it again, for a
    /// checkpoint; at once, and any process that has owned it, for `famio flush`. Called by the background. Returns
    /// whether to look again.
    pub(in crate::file) fn look_after_unowned(&self) -> bool {
        let membership = &self.ownership.membership;
        if self.state.load(Ordering::Acquire) != PLAIN || !membership.has_attached() || !membership.has_unowned() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return true };
        let Some(left) = &inner.left else { return false };
        let shared = left.arena.shared();
        let is_mine = shared.generation.load(Ordering::Acquire) == left.generation.load(Ordering::Acquire) + 1;
        let is_flush_wanted = membership.flush_wanted().is_some();
        if !(is_mine || is_flush_wanted) || !membership.is_attached() {
            return false;
        }
        if shared.exact_file().is_some() && !is_flush_wanted {
            return false; // there is nothing to write to the file, which another program may change
        }
        let left_at = self.ownership.since.load(Ordering::Relaxed);
        if !is_flush_wanted && monotonic_now() < left_at + PATIENCE.tv_nsec as u64 * 30 {
            return true;
        }
        if inner.owner_lock.is_none() && self.try_acquire_ownership(&mut inner).unwrap_or(false) {
            let mut is_done = membership.has_unowned() && matches!(self.take_session_over(&mut inner), Ok(true));
            if is_done {
                self.ownership.is_owner.store(true, Ordering::Release);
                if self.ownership.is_file_changed.load(Ordering::Acquire) {
                    is_done = self.end_with_arena(&mut inner).is_ok();
                }
            }
            if !is_done {
                self.give_up_unless_held(&mut inner);
            }
        }
        false
    }
}
