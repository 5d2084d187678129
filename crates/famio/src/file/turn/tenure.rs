//! Tenures: what a process wrote since its tenure began goes with it, if it is killed before a SYNC. A tenure ends when its process
//! gives up a lock or leaves, and when another process writes over what it wrote. Reading ends none.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, Inner};
use crate::file::base::doing::is_doing;
use crate::file::parts::travel::Draft;
use crate::file::session::Session;
use crate::index::{RELEASED, STORES, Standing, Writer};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Whose a lock on the file is.
#[derive(Clone, Copy, Debug)]
pub enum LockOf {
    /// The process's (`F_SETLK`, `lockf`): the kernel drops it with any of the process's descriptors of the file.
    Process = 1,
    /// The open description's (`flock`, `F_OFD_SETLK`).
    Description = 2,
}

impl AtomicFile {
    /// This process has locked the file for writing, or a part of it.
    pub fn begin_section(&self, lock: LockOf) {
        if !self.is_disowned() {
            self.turns.locked.fetch_or(lock as u32, Ordering::AcqRel);
        }
    }

    /// Whether it has, and may still have such a lock.
    pub fn is_in_section(&self) -> bool {
        self.turns.locked.load(Ordering::Acquire) != 0
    }

    /// It certainly has none of that kind any more.
    pub fn end_section(&self, lock: LockOf) {
        self.turns.locked.fetch_and(!(lock as u32), Ordering::AcqRel);
    }

    /// A descriptor of the program's goes that is not the last: the kernel drops all record locks of the process with it.
    pub(in crate::file) fn lose_record_locks(&self) {
        if self.turns.locked.load(Ordering::Acquire) & LockOf::Process as u32 != 0 {
            let _ = self.end_tenure(); // who looks at the file next is told what is wrong
            self.end_section(LockOf::Process);
        }
    }

    /// What this process wrote until now stays, though it dies before a SYNC, as long as others have the file open who can
    /// commit it: they are let at what it did. For the end of a lock.
    ///
    /// # Errors
    /// Those of a session's end.
    pub fn end_tenure(&self) -> Result<()> {
        // With before-images each change has its tenure, and nothing has to be done for those of this one.
        let is_dirty = |session: &Session| {
            let is_told_apart = session.saves_images() && !session.keeps;
            session.arena.shared().dirty.load(Ordering::Acquire) != 0 && !is_told_apart
        };
        if self.with_session(is_dirty) == Some(true) {
            let given = if self.turns.door.has_others() { self.give_turn() } else { Ok(()) };
            match given {
                // It goes on here: an unlock that failed would keep everybody out.
                Err(e) if ![libc::EBUSY, libc::EFBIG, libc::ENOSPC].contains(&e.errno()) => return Err(e),
                _ => self.release_writes(),
            }
        }
        if self.is_disowned() {
            return Ok(());
        }
        // With the gate closed: a change under way has its image, and is not to stay as the half that a kill leaves.
        let ended = self.with_session(|session| -> Result<()> {
            let is_open = session.saves_images() && session.arena.shared().dirty.load(Ordering::Acquire) != 0;
            let _closed = if is_open { Some(session.close_gate(&self.fds)?) } else { None };
            self.turns.door.end_tenure();
            Ok(())
        });
        if !matches!(ended, Some(Ok(()))) {
            self.turns.door.end_tenure();
        }
        Ok(())
    }

    /// A lock was given up: who waited for it is likely to change the file.
    pub fn has_unlocked(&self) {
        if self.is_wanted.load(Ordering::Relaxed) {
            self.leave_if_wanted();
        }
    }

    /// Nobody else is there, or it could not be given: whoever comes later finds what was written until now as others would have
    /// found it.
    fn release_writes(&self) {
        self.with_session(|session| {
            self.turns.has_released.store(true, Ordering::Release); // before the other: a SYNC in between ends both
            let shared = session.arena.shared();
            shared.released.store(1, Ordering::SeqCst);
            let dirty = &shared.dirty;
            let _ = dirty.compare_exchange(1, RELEASED, Ordering::AcqRel, Ordering::Relaxed);
        });
    }

    /// As whom this process sends off what its session has. What it wrote before it gave up a lock, with nobody else there, can't be
    /// told from what it wrote since. So all of it stays; but not if this process has locked the file for writing again, and has
    /// written: that may be half of something, and nobody has seen the other under a lock.
    pub(super) fn writer_of(&self, draft: &Draft) -> Writer {
        let me = self.turns.door.me();
        let stays = draft.is_released || !self.is_in_section();
        if self.turns.has_released.load(Ordering::Acquire) && stays { me.of_last_tenure() } else { me }
    }

    /// This process has changed the file in `range`: of whomever that was, it is not rolled back any more.
    pub(in crate::file) fn end_tenures(&self, range: Range<u64>) {
        if self.turns.has_foreign() {
            let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
            let others = self.turns.others.lock();
            let written_over = others.iter().filter(|(there, _)| touches(there));
            written_over.for_each(|&(_, writer)| self.turns.door.end_tenure_of(writer));
        }
    }

    /// As [`end_tenures`](Self::end_tenures), of a file that is mapped: where this process may store, nobody knows where it does; and
    /// a shadow of its own is not put in order after another's death.
    pub(in crate::file) fn end_tenures_if_stored_to(&self) {
        if !self.has_shared_shadow() || self.turns.door.has_maps(STORES) {
            self.end_tenures(0..u64::MAX);
        }
    }

    /// What is of those who have died is rolled back: before this process reads it, writes beside it, or commits.
    /// Not by a thread that is in the middle of a change, which holds what the end of the session takes.
    pub(in crate::file) fn leave_dead_behind(&self) -> Result<()> {
        if self.has_to_leave_dead() { self.anew() } else { Ok(()) }
    }

    /// Whether that is to be done. To be asked with the session at hand: who took it up has said before what is in it.
    #[inline]
    pub(in crate::file) fn has_to_leave_dead(&self) -> bool {
        self.turns.has_foreign() && !is_doing() && self.has_foreign_of(Standing::Dead)
    }

    /// As [`has_to_leave_dead`](Self::has_to_leave_dead), by whoever does what is to be done beside a change.
    pub(in crate::file) fn has_dead_within(&self) -> bool {
        self.turns.has_foreign() && self.has_foreign_of(Standing::Dead)
    }

    /// Whether what others wrote is in this process's session, of one who stands so.
    pub(super) fn has_foreign_of(&self, standing: Standing) -> bool {
        let is_so = |&(_, writer): &(Range<u64>, Writer)| self.turns.door.standing(writer) == standing;
        self.turns.has_foreign() && self.turns.others.lock().iter().any(is_so)
    }

    /// Ends the session: who takes the turn next, leaves what is of the dead behind.
    pub(super) fn anew(&self) -> Result<()> {
        Self::may_lock()?;
        let _changing = self.shadow.lock();
        self.end_with_arena(&mut self.inner())
    }

    /// Ends the session, and gives its arena up with the turn: it is for one session whose changes have several writers.
    pub(super) fn end_with_arena(&self, inner: &mut Inner) -> Result<()> {
        self.end_session(inner)?;
        self.release_claim(inner);
        Ok(())
    }
}
