//! The calls that move a file's bytes: to its session, or to the kernel if it has none.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::disowned;
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, DISOWNED, GROWING};
use crate::file::base::refusal::{Answer, Reason, Refusal};
use crate::file::descriptors::by_kernel::{read_by_kernel, write_by_kernel};
use crate::file::session::{CALL_MAX, Session};
use crate::file::state::burst::Ended;
use core::sync::atomic::Ordering;

/// Sessions that may end during one call, or looks at one that is ending, until it is taken to be unable to end.
pub(super) const ENDINGS: u32 = 1 << 20;

impl AtomicFile {
    /// Fails if this thread holds a lock of ours: a signal handler that interrupted a call of ours must not wait for
    /// it.
    #[inline]
    pub(in crate::file) fn may_lock() -> Result<()> {
        if crate::thread::current().locks_held.get() == 0 { Ok(()) } else { Err(Error::new(libc::EDEADLK)) }
    }

    /// Calls `work` with the session, again if the journal was closed meanwhile; `kernel` if the file is demoted.
    #[inline(always)]
    pub(in crate::file) fn writing<T>(
        &self,
        mut work: impl FnMut(&Session) -> Answer<T>,
        kernel: impl FnOnce() -> Result<T>,
    ) -> Answer<T> {
        for _ in 0..ENDINGS {
            match self.session_for_write() {
                Ok(None) => return Ok(kernel()?),
                Ok(Some(session)) => match work(&session) {
                    Ok(done) => {
                        if self.is_wanted.load(Ordering::Relaxed) {
                            drop(session);
                            self.leave_if_wanted(Ended::Change);
                        }
                        return Ok(done);
                    }
                    Err(refusal) => match refusal.reason() {
                        Reason::NeedsFollowUp => return Err(Refusal::needs_follow_up()),
                        Reason::NeedsGroup => return Err(Refusal::needs_group()),
                        Reason::SessionEnded if session.imaging.is_full() => {
                            drop(session);
                            self.begin_without_images()?;
                        }
                        Reason::SessionEnded => rustix::thread::sched_yield(),
                        Reason::Failed(e) if e.errno() == libc::ENOMEM => {
                            drop(session);
                            if !self.demote_for_lack_of_memory(&e) {
                                return Err(e.into());
                            }
                        }
                        Reason::Failed(e) => {
                            self.let_background_answer(); // the call may have made this process the owner
                            return Err(self.refused(e).into());
                        }
                    },
                },
                // It was closed again before we had it.
                Err(refusal) if refusal.is_session_ended() => rustix::thread::sched_yield(),
                Err(_) if self.is_demoted() => return Ok(kernel()?),
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Error::with(libc::EIO, "its journal could not be closed: no more writes are taken").into())
    }

    /// The error of a write; if the file takes no more writes, with the reason.
    #[cold]
    pub(in crate::file) fn refused(&self, error: Error) -> Error {
        let poisoned = |session: &Session| session.arena.shared().poisoned.load(Ordering::Acquire) != 0;
        if error.errno() != libc::EIO || error.detail().is_some() || self.with_session(poisoned) != Some(true) {
            return error;
        }
        let why = "an earlier write or SYNC of it failed, and it takes no more: close it, and open it again";
        self.named(Error::with(libc::EIO, why))
    }

    /// Reads into `bufs` from `offset`; fewer bytes at the end of the file.
    ///
    /// # Errors
    /// `EFAULT`: a bad buffer. `EIO`: an outsider has cut the file, or its medium is bad. Otherwise the kernel's.
    ///
    /// # Safety
    /// The buffers may be overwritten; bad ones are an error, not a crash.
    #[inline]
    pub unsafe fn read(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        if self.ownership.has_foreign() {
            // SAFETY: the caller's promise.
            return unsafe { self.read_after_rollback(offset, bufs) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_here(offset, bufs) }
    }

    /// As [`read`](Self::read), without rolling back dead writers first: from the shadow, if there is one, otherwise
    /// from the file.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    #[inline]
    pub(in crate::file) unsafe fn read_here(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        match self.shadow() {
            // SAFETY: the caller's promise.
            Some(shadow) if !self.is_demoted() => unsafe { self.read_shadow(shadow, offset, bufs) },
            // SAFETY: the caller's promise.
            _ => unsafe { self.read_file(offset, bufs) },
        }
    }

    /// As [`read_here`](Self::read_here), past the shadow.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub(in crate::file) unsafe fn read_file(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        loop {
            while self.state.load(Ordering::Acquire) == ATTACHED
                && let Some(session) = self.session()
            {
                // The background may just have taken the session over, to end it.
                if self.has_dead_changes() {
                    drop(session);
                    self.roll_back_dead()?;
                    continue;
                }
                // SAFETY: the caller's promise.
                match unsafe { session.read(&self.fds, offset, bufs) } {
                    // Closed and attached again meanwhile.
                    Err(refusal) if refusal.is_session_ended() => {}
                    read => return Ok(read?),
                }
            }
            match self.state.load(Ordering::Acquire) {
                ATTACHED => {}
                DISOWNED => return Err(disowned()),
                DEMOTED => return self.read_kernel(offset, bufs),
                state => {
                    let Some(unmoved) = self.growing.before_read() else {
                        rustix::thread::sched_yield();
                        continue;
                    };
                    // What was true before the count was read may not be any more.
                    if self.state.load(Ordering::Acquire) != state {
                        continue;
                    }
                    if state == GROWING {
                        // SAFETY: the caller's promise.
                        let read = unsafe { self.read_growing(offset, bufs) };
                        if self.growing.is_unmoved(unmoved) {
                            return read;
                        }
                        continue;
                    }
                    // First: this may attach to the control file, which says whether there is a shadow.
                    let quiet = self.quiet();
                    if self.ownership.membership.shadow().is_some()
                        && self.shadow().is_none()
                        && let Some(shadow) = self.join_shadow()?
                    {
                        // SAFETY: the caller's promise.
                        return unsafe { self.read_shadow(shadow, offset, bufs) };
                    }
                    if let Some(quiet) = quiet
                        && let Some(read) = self.read_alone(quiet, offset, bufs)
                    {
                        if self.is_still(quiet) && self.growing.is_unmoved(unmoved) {
                            return read;
                        }
                    } else if let Some(quiet) = quiet {
                        if !self.is_quiet_now(quiet) {
                            continue; // to look whether there is a shadow by now
                        }
                        let still = || self.is_still(quiet);
                        // SAFETY: the caller's promise.
                        let read = match unsafe { self.plain.read(&self.fds, (quiet, still), offset, bufs) } {
                            Some(read) => Ok(read),
                            None => self.read_kernel(offset, bufs),
                        };
                        // No thread, and no other process, has begun to write meanwhile.
                        if self.is_still(quiet) && self.growing.is_unmoved(unmoved) {
                            return read;
                        }
                    } else {
                        // SAFETY: the caller's promise.
                        match unsafe { self.read_as_non_owner(offset, bufs) } {
                            Ok(Some(read)) => return Ok(read),
                            Err(e) if !self.is_demoted() => return Err(e),
                            _ => {}
                        }
                    }
                }
            }
        }
    }

    pub(in crate::file) fn read_kernel(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        self.fds.with(false, |fd| read_by_kernel(fd, offset, bufs))
    }

    /// Writes `bufs` at `offset`; part of the open epoch until the next [`sync`](Self::sync). Returns the number of
    /// bytes written.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: no room in the file system or the journal; committed data is intact. `EFBIG`. `EFAULT`: a
    /// bad buffer. `EIO`: an earlier flush failed.
    ///
    /// # Safety
    /// The buffers may be read; bad ones are an error, not a crash.
    #[inline(never)]
    pub unsafe fn write(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        Self::may_lock()?;
        if self.may_grow_with_a_change()
            // SAFETY: the caller's promise.
            && let Some(done) = unsafe { self.write_growing(Some(offset), bufs) }
        {
            return done.map(|(_, done)| done);
        }
        let total = UserBuf::total(bufs);
        self.reserve_in_record(offset, total)?;
        let written = self.writing(
            // SAFETY: the caller's promise.
            |session| unsafe { session.write(&self.fds, offset, bufs) },
            || self.kernel_write(offset, bufs),
        );
        let done = match written {
            Ok(done) => done,
            // SAFETY: the caller's promise.
            Err(refusal) => unsafe { self.write_again(refusal, offset, bufs) }?,
        };
        if done < total {
            // SAFETY: the caller's promise.
            return Ok(unsafe { self.write_rest(offset, bufs, done) });
        }
        Ok(done)
    }

    /// A write has ended after `done` bytes. In a pool with a size it goes on, after waiting for what others have
    /// borrowed, which cannot be done in the middle. Returns how many bytes are written in all.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[cold]
    #[inline(never)]
    unsafe fn write_rest(&self, offset: u64, bufs: &[UserBuf], mut done: usize) -> usize {
        while done > 0 && done < UserBuf::total(bufs).min(CALL_MAX) && self.is_in_shared_pool() {
            let rest = UserBuf::after(bufs, done);
            // SAFETY: the caller's promise, as for the first part.
            let again = || unsafe { self.write_file(offset + done as u64, &rest) };
            match self.changing(again, again, |&more| offset + done as u64..offset + (done + more) as u64) {
                Ok(more) if more > 0 => done += more,
                _ => break, // the next call has the error
            }
        }
        done
    }

    /// Whether its journal is in a pool with a size; it may be if another process has the session now.
    pub fn is_in_shared_pool(&self) -> bool {
        let is_shared = |session: &Session| session.engine.journal().limit().is_shared();
        self.with_session(is_shared).unwrap_or(self.settings.pool.is_some() && !self.is_demoted())
    }

    /// As [`write`](Self::write), past the shadow.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[cold]
    #[inline(never)]
    pub(in crate::file) unsafe fn write_file(&self, offset: u64, bufs: &[UserBuf]) -> Answer<usize> {
        self.writing(
            // SAFETY: the caller's promise.
            |session| unsafe { session.write(&self.fds, offset, bufs) },
            || self.kernel_write(offset, bufs),
        )
    }

    /// Writes `bufs` at the end of the file, two threads never at the same offset. Returns the offset, and the number
    /// of bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn append(&self, bufs: &[UserBuf]) -> Result<(u64, usize)> {
        Self::may_lock()?;
        if self.may_grow_with_a_change()
            // SAFETY: the caller's promise.
            && let Some(done) = unsafe { self.write_growing(None, bufs) }
        {
            return done;
        }
        if self.settings.group.is_some() {
            self.reserve_in_record(self.size(), UserBuf::total(bufs))?;
        }
        let append = || {
            self.writing(
                // SAFETY: the caller's promise.
                |session| unsafe { session.append(&self.fds, bufs) },
                || {
                    let offset = self.size();
                    self.kernel_write(offset, bufs).map(|done| (offset, done))
                },
            )
        };
        self.changing(append, append, |&(offset, done)| offset..offset + done as u64)
    }

    #[cold]
    pub(in crate::file) fn kernel_write(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        self.fds.with(true, |fd| write_by_kernel(fd, offset, bufs))
    }
}
