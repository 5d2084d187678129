//! Reading without ownership, and in a session with changes of others that may still be rolled back.

use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, PLAIN};
use crate::file::base::modified::Modified;
use crate::file::state::hand_over_image::HandOverImage;
use crate::file::state::owner_session::{Look, OwnerSession};
use crate::file::state::ownership::{LOOKS, Ownership, PATIENCE};
use crate::index::{MOVED, Positions, SESSION};
use crate::sys::read_at;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// For reads without ownership: calls `along` with the owner's session or, if there is none, `work` with what is
    /// not committed; if the session cannot be reached, waits for its end first. Tries again if the state changes
    /// meanwhile. `None`: the caller has to look in the usual way, perhaps because this process has become the owner.
    #[cold]
    pub(super) fn read_without_ownership<T>(
        &self,
        mut work: impl FnMut(&HandOverImage, u64) -> Result<T>,
        mut along: impl FnMut(&OwnerSession) -> Result<Look<T>>,
    ) -> Result<Option<T>> {
        Self::may_lock()?;
        if !self.ownership.membership.is_attached() {
            if let Some(done) = self.read_as_visitor(&mut work, &mut along)? {
                return Ok(Some(done));
            }
            self.look()?;
            return Ok(None); // to be looked at in the usual way
        }
        let membership = &self.ownership.membership;
        let asked = membership.change_count();
        for look in 0..LOOKS {
            if self.state.load(Ordering::Acquire) != PLAIN {
                return Ok(None);
            }
            let (state, count) = (membership.state(), membership.change_count());
            if state & MOVED != 0 {
                self.follow_control_file(&mut self.inner())?;
                return Ok(None);
            }
            if state & SESSION == 0 {
                if let Some(done) = self.read_without_session(&self.ownership, state, &mut work)? {
                    return Ok(Some(done));
                }
                continue;
            }
            if let Some((seen, epoch)) = self.ownership.view(&self.fds)? {
                let done = work(&epoch, self.kernels_size())?;
                if self.ownership.is_still_seen(&self.fds, seen) {
                    return Ok(Some(done));
                }
                continue;
            }
            match self.ownership.look_into_session((&self.fds, &self.settings), &mut along)? {
                Look::Done(done) => return Ok(Some(done)),
                Look::Changing => {
                    // The owner could neither hand it over nor end it, and has not gone on.
                    if self.ownership.is_refused(asked, look) {
                        break;
                    }
                    if membership.state() == state {
                        membership.wait_for_change(count, PATIENCE);
                    }
                    continue;
                }
                Look::Unreachable if membership.state() != state => continue,
                Look::Unreachable => {}
            }
            let mut inner = self.inner();
            if inner.owner_lock.is_some() {
                // This process has just begun it, or could not end it.
                if inner.unsent.is_some() {
                    drop(inner);
                    self.session_for_write()?;
                }
                continue;
            }
            match self.recover_the_dead(&mut inner) {
                Err(_) if self.ownership.has_view(&self.fds) => continue,
                Err(e) => return Err(e),
                Ok(true) => continue,
                Ok(false) => {}
            }
            drop(inner);
            if !self.fds.has_writable() {
                membership.ask_for_end(); // a process that only reads cannot take it over
            }
            membership.request_ownership_of_any();
            membership.wait_for_change(count, PATIENCE);
            if self.ownership.is_refused(asked, look) {
                break;
            }
        }
        Err(self.in_use())
    }

    /// Calls `work` with what is not committed, if there is no session. `ownership` has the control page; its state was
    /// `state`. `None`: that has changed meanwhile.
    pub(super) fn read_without_session<T>(
        &self,
        ownership: &Ownership,
        state: u64,
        work: &mut dyn FnMut(&HandOverImage, u64) -> Result<T>,
    ) -> Result<Option<T>> {
        let membership = &ownership.membership;
        let mut epoch = match ownership.hand_over_image(&self.fds) {
            Err(e) if membership.state() == state => return Err(e),
            Err(_) => return Ok(None), // it changed while we read it
            Ok(epoch) => epoch,
        };
        epoch.roll_back(|writer| membership.writer_state(writer));
        let committed = self.fds.stat()?.st_size as u64;
        let done = work(&epoch, committed)?;
        Ok(ownership.still(state).then_some(done))
    }

    /// Reads what all processes have written, without ownership. `None`: this process owns the file now.
    ///
    /// # Safety
    /// The buffers may be overwritten; bad ones are an error, not a crash.
    #[cold]
    pub(in crate::file) unsafe fn read_as_non_owner(&self, offset: u64, bufs: &[UserBuf]) -> Result<Option<usize>> {
        let from_file = |epoch: &HandOverImage, committed: u64| {
            let (mut at, mut done) = (offset, 0);
            for buf in bufs {
                let mut used = 0;
                while used < buf.len {
                    let mut piece = vec![0; (buf.len - used).min(64 << 10)];
                    self.fds.with(false, |fd| read_at(fd, at, &mut piece))?;
                    let n = epoch.show(at, &mut piece, committed);
                    // SAFETY: the caller's promise; the source is ours.
                    unsafe {
                        crate::file::engine::home::copy_out(buf.base.wrapping_add(used), piece.as_ptr().cast_mut(), n)
                    }?;
                    (used, at, done) = (used + n, at + n as u64, done + n);
                    if n < piece.len() {
                        break;
                    }
                }
                if used < buf.len {
                    break;
                }
            }
            Ok(done)
        };
        // SAFETY: the caller's promise.
        self.read_without_ownership(from_file, |joined| unsafe { joined.read(&self.fds, offset, bufs) })
    }

    /// Rolls back the changes of dead processes, then reads in the session, which has changes of others.
    ///
    /// # Safety
    /// As [`read_as_non_owner`](Self::read_as_non_owner).
    #[cold]
    pub(in crate::file) unsafe fn read_after_rollback(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        self.roll_back_dead()?;
        // SAFETY: the caller's promise.
        unsafe { self.read_here(offset, bufs) }
    }

    /// Takes the lock of the file positions that this process shares with others. `None`: this process may only read
    /// the file.
    ///
    /// # Errors
    /// `EDEADLK`: another process does not release it. Those of attaching.
    pub(crate) fn lock_positions(&self) -> Result<Option<Positions<'_>>> {
        match self.become_member() {
            Err(e) if self.is_mere_reader(&e) => Ok(None),
            attached => attached.and_then(|()| self.ownership.membership.lock_positions()).map(Some),
        }
    }

    /// The size that all processes have given the file, without ownership. `None`: this process owns the file now.
    #[cold]
    pub(in crate::file) fn size_as_non_owner(&self) -> Result<Option<u64>> {
        self.read_without_ownership(
            |epoch, committed| Ok(epoch.size(committed)),
            |joined| Ok(Look::Done(joined.size())),
        )
    }

    /// When another process, which has the session, last changed the file. `None`: none has, or it cannot be asked.
    #[cold]
    pub(in crate::file) fn modified_by_owner(&self) -> Option<Modified> {
        let membership = &self.ownership.membership;
        if !membership.has_attached() || membership.state() & SESSION == 0 {
            return None;
        }
        let asked = self.read_without_ownership(|_, _| Ok(None), |joined| Ok(Look::Done(joined.last_change())));
        asked.ok().flatten().flatten()
    }
}
