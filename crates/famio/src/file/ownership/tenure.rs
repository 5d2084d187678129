//! Tenures: if a process is killed before a SYNC, what it wrote in its current tenure is rolled back. A tenure ends
//! when its process releases a lock or detaches, and when another process writes over its bytes. Reading ends none.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, Inner};
use crate::file::base::doing::is_doing;
use crate::file::session::Session;
use crate::file::state::burst::Ended;
use crate::file::state::hand_over_image::OpenChanges;
use crate::index::{RELEASED, STORES, Writer, WriterState};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// The kind of a lock on the file.
#[derive(Clone, Copy, Debug)]
pub enum LockOf {
    /// The process's (`F_SETLK`, `lockf`): the kernel drops it when the process closes any descriptor of the file.
    Process = 1,
    /// The open description's (`flock`, `F_OFD_SETLK`).
    Description = 2,
}

impl AtomicFile {
    /// This process has locked the file for writing, or a part of it.
    pub fn begin_section(&self, lock: LockOf) {
        if !self.is_disowned() {
            self.ownership.locked.fetch_or(lock as u32, Ordering::AcqRel);
        }
    }

    /// Whether it may still have such a lock.
    pub fn is_in_section(&self) -> bool {
        self.ownership.locked.load(Ordering::Acquire) != 0
    }

    /// It certainly has no lock of that kind any more.
    pub fn end_section(&self, lock: LockOf) {
        self.ownership.locked.fetch_and(!(lock as u32), Ordering::AcqRel);
    }

    /// The program closes a descriptor that is not its last: the kernel drops all record locks of the process.
    pub(in crate::file) fn lose_record_locks(&self) {
        if self.ownership.locked.load(Ordering::Acquire) & LockOf::Process as u32 != 0 {
            let _ = self.end_tenure(); // the next call on the file reports errors
            self.end_section(LockOf::Process);
        }
    }

    /// What this process wrote until now stays, even if it dies before a SYNC, provided that other members can commit
    /// it: they may act on it from now on. Called at the release of a lock.
    ///
    /// # Errors
    /// Those of a session's end.
    pub fn end_tenure(&self) -> Result<()> {
        if self.settings.group.is_some() {
            return Ok(()); // a kill takes all files of a group back to the same SYNC
        }
        self.note_released_lock_growing();
        // With before-images each change names its tenure, so changes of this tenure need nothing more.
        let is_dirty = |session: &Session| {
            let is_told_apart = session.saves_images() && !session.keeps;
            session.arena.shared().dirty.load(Ordering::Acquire) != 0 && !is_told_apart
        };
        if self.with_session(is_dirty) == Some(true) {
            let given = if self.ownership.membership.has_others() { self.hand_over_ownership() } else { Ok(()) };
            match given {
                // The session goes on here: an unlock that failed would keep all others out.
                Err(e) if ![libc::EBUSY, libc::EFBIG, libc::ENOSPC].contains(&e.errno()) => return Err(e),
                _ => self.release_writes(),
            }
        }
        if self.is_disowned() || !self.ownership.membership.has_owned() {
            return Ok(()); // it has written nothing
        }
        // With the gate closed: a change in progress already has its image, and half a change must not be kept.
        let ended = self.with_session(|session| -> Result<()> {
            let is_open = session.saves_images() && session.arena.shared().dirty.load(Ordering::Acquire) != 0;
            let _closed = if is_open { Some(session.close_gate(&self.fds)?) } else { None };
            self.ownership.membership.end_tenure();
            Ok(())
        });
        if !matches!(ended, Some(Ok(()))) {
            self.ownership.membership.end_tenure();
        }
        Ok(())
    }

    /// A lock was released.
    pub fn has_unlocked(&self) {
        if self.is_wanted.load(Ordering::Relaxed) {
            self.leave_if_wanted(Ended::Section);
        }
    }

    /// There is no other member, or ownership could not be handed over: a process that comes later finds what was
    /// written until now as other members would have.
    fn release_writes(&self) {
        self.with_session(|session| self.release_writes_of(session, false));
    }

    /// As [`release_writes`](Self::release_writes). `more`: the process has written since.
    pub(in crate::file) fn release_writes_of(&self, session: &Session, more: bool) {
        self.ownership.has_released_lock.store(true, Ordering::Release); // before `released`: a SYNC in between ends both
        let shared = session.arena.shared();
        shared.released.store(1, Ordering::SeqCst);
        if !more {
            let dirty = &shared.dirty;
            let _ = dirty.compare_exchange(1, RELEASED, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The writer under which this process hands over its session's changes. What it wrote before it released a lock,
    /// with no other member there, cannot be told from later writes. So everything stays, unless this process has
    /// locked the file for writing again and has written since: that may be half of an update.
    pub(super) fn writer_of(&self, open_changes: &OpenChanges) -> Writer {
        let me = self.ownership.membership.me();
        let stays = open_changes.is_released || !self.is_in_section();
        if self.ownership.has_released_lock.load(Ordering::Acquire) && stays { me.of_last_tenure() } else { me }
    }

    /// This process has changed `range` of the file: earlier changes there, by any process, are not rolled back any
    /// more.
    pub(in crate::file) fn end_tenures(&self, range: Range<u64>) {
        if self.ownership.has_foreign() {
            let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
            let others = self.ownership.others.lock();
            let written_over = others.iter().filter(|(there, _)| touches(there));
            written_over.for_each(|&(_, writer)| self.ownership.membership.end_tenure_of(writer));
        }
    }

    /// As [`end_tenures`](Self::end_tenures), for a mapped file: stores of this process may be anywhere; and a shadow
    /// of its own is not put in order after another's death.
    pub(in crate::file) fn end_tenures_if_stored_to(&self) {
        if !self.has_shared_shadow() || self.ownership.membership.has_maps(STORES) {
            self.end_tenures(0..u64::MAX);
        }
    }

    /// Rolls back the changes of dead processes before this process reads them, writes next to them, or commits. Not
    /// for a thread in the middle of a change: it holds a lock that the end of the session takes.
    pub(in crate::file) fn roll_back_dead(&self) -> Result<()> {
        if self.has_dead_changes() { self.end_session_with_dead_changes() } else { Ok(()) }
    }

    /// Whether the session has changes of dead processes. Asked within the session, whose beginning has recorded what
    /// it contains.
    #[inline]
    pub(in crate::file) fn has_dead_changes(&self) -> bool {
        self.ownership.has_foreign() && !is_doing() && self.has_foreign_of(WriterState::Dead)
    }

    /// As [`has_dead_changes`](Self::has_dead_changes), for the follow-up of a change.
    pub(in crate::file) fn has_dead_within(&self) -> bool {
        self.ownership.has_foreign() && self.has_foreign_of(WriterState::Dead)
    }

    /// Whether this process's session has changes of other processes with this standing.
    pub(super) fn has_foreign_of(&self, writer_state: WriterState) -> bool {
        let is_so =
            |&(_, writer): &(Range<u64>, Writer)| self.ownership.membership.writer_state(writer) == writer_state;
        self.ownership.has_foreign() && self.ownership.others.lock().iter().any(is_so)
    }

    /// Ends the session, which has changes of dead processes: the next session begins without them.
    pub(super) fn end_session_with_dead_changes(&self) -> Result<()> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        self.end_with_arena(&mut self.inner())
    }

    /// Ends the session, and gives up its arena with ownership: an arena with changes of several writers serves one
    /// session.
    pub(super) fn end_with_arena(&self, inner: &mut Inner) -> Result<()> {
        self.end_session(inner)?;
        self.release_owner_lock(inner);
        Ok(())
    }
}
