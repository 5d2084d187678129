//! Changes of a growing file: made in the kernel's file, unless they overwrite committed bytes.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, GROWING, PLAIN};
use crate::file::descriptors::by_kernel;
use crate::file::lease;
use crate::file::session::CALL_MAX;
use crate::file::session::write::SIZE_MAX;
use crate::file::state::growing_state::{ReleasedLock, SUSPECT, State};
use crate::journal::{GrowingMark, mark};
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

/// What a change reaches.
#[derive(Clone, Copy)]
pub(super) enum Reach<'a> {
    /// What lies at this offset or beyond.
    From(u64),
    /// Committed bytes at this offset, which become these.
    Within(u64, &'a [u8]),
}

impl Reach<'_> {
    /// Whether a file of which so many bytes are committed may be changed there without a journal.
    pub(super) fn is_open_with(self, committed: u64) -> bool {
        match self {
            Self::From(from) => from >= committed,
            Self::Within(at, new) => at + new.len() as u64 <= committed,
        }
    }
}

impl AtomicFile {
    /// Writes to a growing file, at its end if there is no offset. `None`: this needs a session.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[cold]
    pub(in crate::file) unsafe fn write_growing(
        &self,
        at: Option<u64>,
        bufs: &[UserBuf],
    ) -> Option<Result<(u64, usize)>> {
        let total = UserBuf::total(bufs).min(CALL_MAX) as u64;
        if total == 0 {
            return None;
        }
        if let Some(at) = at.filter(|&at| at < self.committed_without_session()) {
            // SAFETY: the caller's promise.
            return unsafe { self.overwrite_growing(at, bufs) }.map(|done| done.map(|len| (at, len)));
        }
        self.change_growing(Reach::From(at.unwrap_or(u64::MAX)), |_, fd| {
            let offset = match at {
                Some(offset) => offset,
                None => rustix::fs::fstat(fd)?.st_size as u64,
            };
            if offset.saturating_add(total) > SIZE_MAX {
                return Ok(None);
            }
            by_kernel::write_by_kernel(fd, offset, bufs).map(|done| Some((offset, done)))
        })
    }

    /// Writes all of `bufs` at the end of a growing file, or nothing; `at`, if given, must be the end. `None`: this
    /// needs a session.
    #[cold]
    pub(in crate::file) fn append_growing(&self, at: Option<u64>, bufs: &[UserBuf]) -> Option<Result<(u64, usize)>> {
        let total = UserBuf::total(bufs) as u64;
        if total > CALL_MAX as u64 {
            return None;
        }
        self.change_growing(Reach::From(at.unwrap_or(u64::MAX)), |state, fd| {
            let size = rustix::fs::fstat(fd)?.st_size as u64;
            if at.is_some_and(|at| at != size) || size.saturating_add(total) > SIZE_MAX {
                return Ok(None);
            }
            match by_kernel::write_by_kernel(fd, size, bufs) {
                Ok(done) if done as u64 == total => Ok(Some((size, done))),
                Ok(done) => {
                    // Why not more: no room, a bad address, or a limit.
                    let more = by_kernel::write_by_kernel(fd, size + done as u64, &UserBuf::after(bufs, done));
                    if more.as_ref().is_ok_and(|&more| (done + more) as u64 == total) {
                        return Ok(Some((size, total as usize)));
                    }
                    state.medium.ftruncate(fd, size)?; // removes the part that was written
                    Err(more.err().unwrap_or(Error::new(libc::ENOSPC)))
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Sets the size of a growing file; `only_more`: only if that makes it longer. `None`: this needs a session.
    #[cold]
    pub(in crate::file) fn set_size_growing(&self, size: u64, only_more: bool) -> Option<Result<()>> {
        self.change_growing(Reach::From(size), |state, fd| {
            if size > SIZE_MAX {
                return Ok(None);
            }
            let is_longer = (rustix::fs::fstat(fd)?.st_size as u64) < size;
            if !only_more || is_longer {
                state.medium.ftruncate(fd, size)?;
                state.preallocated = if is_longer { state.preallocated } else { 0 };
            }
            Ok(Some(()))
        })
    }

    /// Runs a call that preallocates space up to `end` and changes neither bytes nor size. `None`: this needs a
    /// session.
    #[cold]
    pub(in crate::file) fn preallocate_growing<T>(&self, end: u64, call: &impl Fn() -> Result<T>) -> Option<Result<T>> {
        // Bytes in a file that is not new are likely to be overwritten.
        if self.state.load(Ordering::Acquire) != GROWING && self.found_size > 0 {
            return None;
        }
        self.change_growing(Reach::From(u64::MAX), |state, _| {
            let done = call()?;
            state.preallocated = state.preallocated.max(end);
            Ok(Some(done))
        })
    }

    /// Makes a hole from `from` to `to` in a growing file. `None`: this needs a session.
    #[cold]
    pub(in crate::file) fn zero_growing(&self, from: u64, to: u64) -> Option<Result<()>> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return None;
        }
        self.change_growing(Reach::From(from), |_, fd| by_kernel::punch_hole(fd, from, to).map(Some))
    }

    /// The committed size of a growing file, or the size of an unchanged one.
    fn committed_without_session(&self) -> u64 {
        match self.state.load(Ordering::Acquire) {
            GROWING => self.growing.state.lock().as_ref().map_or(0, |state| state.committed()),
            _ => self.found_size,
        }
    }

    /// Changes a growing file; an unchanged file may begin to grow with that.
    pub(super) fn change_growing<T>(
        &self,
        reach: Reach<'_>,
        change: impl FnOnce(&mut State, BorrowedFd<'_>) -> Result<Option<T>>,
    ) -> Option<Result<T>> {
        let just = match self.state.load(Ordering::Acquire) {
            GROWING => None,
            PLAIN => self.begin_to_grow(reach)?,
            _ => return None,
        };
        let mut growing = self.growing.state.lock();
        if self.state.load(Ordering::Acquire) != GROWING {
            return None;
        }
        let state = growing.as_mut()?;
        if !reach.is_open_with(state.committed()) {
            return None;
        }
        let changed = self.fds.with_confirmed(just, |fd| {
            if state.is_suspect {
                return Err(self.named(Error::with(libc::EIO, SUSPECT)));
            }
            self.check_locks_are_kept()?;
            if just.is_none() && lease::is_broken(fd) {
                return Ok(None); // an outsider waits to open it
            }
            state.renew_own_change_time(fd)?;
            let changed = change(state, fd);
            if state.released_lock == ReleasedLock::Last {
                state.released_lock = ReleasedLock::Before;
            }
            changed
        });
        changed.transpose()
    }

    /// This process releases a lock on the file: if a session takes up the open epoch, what was written until now stays
    /// after a kill.
    pub(in crate::file) fn note_released_lock_growing(&self) {
        if self.state.load(Ordering::Acquire) != GROWING || Self::may_lock().is_err() {
            return;
        }
        let mut growing = self.growing.state.lock();
        let Some(state) = growing.as_mut() else { return };
        let has_tail = || self.fds.stat().is_ok_and(|stat| stat.st_size as u64 > state.committed());
        if !state.overwrites.is_empty() || has_tail() {
            state.released_lock = ReleasedLock::Last;
        }
    }

    /// The program has set the file's times: this counts as a change by this process now, whatever the times are.
    pub(in crate::file) fn time_was_set_growing(&self) {
        let mut growing = self.growing.state.lock();
        let Some(state) = growing.as_mut().filter(|state| !state.is_suspect) else { return }; // others may own it
        // If this fails, the next change tries again, and reports it. A crash before may let recovery take the times
        // for an outsider's.
        let _ = self.fds.with(true, |fd| state.renew_own_change_time(fd));
    }
}

impl State {
    fn renew_own_change_time(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if self.is_marked() { mark::renew_own_change_time(fd, &mut self.mark) } else { Ok(()) }
    }

    pub(super) fn store_mark(&mut self, fd: BorrowedFd<'_>, mark: GrowingMark) -> Result<()> {
        mark::set_growing(fd, &mark, false)?;
        self.mark = mark;
        Ok(())
    }
}
