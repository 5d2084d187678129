//! Changes of a growing file: made in the kernel's file, as long as they leave committed bytes alone.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::atomic::{AtomicFile, GROWING, PLAIN};
use crate::file::descriptors::by_kernel;
use crate::file::lease;
use crate::file::session::CALL_MAX;
use crate::file::session::write::SIZE_MAX;
use crate::file::state::growing_state::{SUSPECT, State};
use crate::journal::{GrowingMark, mark};
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

impl AtomicFile {
    /// Writes to a growing file, at its end if there is no offset. `None`: this needs a session.
    #[cold]
    pub(in crate::file) fn write_growing(&self, at: Option<u64>, bufs: &[UserBuf]) -> Option<Result<(u64, usize)>> {
        let total = UserBuf::total(bufs).min(CALL_MAX) as u64;
        if total == 0 {
            return None;
        }
        self.change_growing(at.unwrap_or(u64::MAX), |_, fd| {
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
        self.change_growing(at.unwrap_or(u64::MAX), |state, fd| {
            let size = rustix::fs::fstat(fd)?.st_size as u64;
            if at.is_some_and(|at| at != size) || size.saturating_add(total) > SIZE_MAX {
                return Ok(None);
            }
            match by_kernel::write_by_kernel(fd, size, bufs) {
                Ok(done) if done as u64 == total => Ok(Some((size, done))),
                Ok(_) => {
                    state.medium.ftruncate(fd, size)?; // removes the part for which there was room
                    Err(Error::new(libc::ENOSPC))
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Sets the size of a growing file; `only_more`: only if that makes it longer. `None`: this needs a session.
    #[cold]
    pub(in crate::file) fn set_size_growing(&self, size: u64, only_more: bool) -> Option<Result<()>> {
        self.change_growing(size, |state, fd| {
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
        self.change_growing(u64::MAX, |state, _| {
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
        self.change_growing(from, |_, fd| by_kernel::punch_hole(fd, from, to).map(Some))
    }

    /// Changes a growing file at or beyond `from`; an unchanged file may begin to grow with that.
    fn change_growing<T>(
        &self,
        from: u64,
        change: impl FnOnce(&mut State, BorrowedFd<'_>) -> Result<Option<T>>,
    ) -> Option<Result<T>> {
        let just = match self.state.load(Ordering::Acquire) {
            GROWING => None,
            PLAIN => self.begin_to_grow(from)?,
            _ => return None,
        };
        let mut growing = self.growing.state.lock();
        if self.state.load(Ordering::Acquire) != GROWING {
            return None;
        }
        let state = growing.as_mut()?;
        if from < state.committed() {
            return None;
        }
        let changed = self.fds.with_confirmed(just, |fd| {
            if state.is_suspect {
                return Err(self.named(Error::with(libc::EIO, SUSPECT)));
            }
            if just.is_none() && lease::is_broken(fd) {
                return Ok(None); // an outsider waits to open it
            }
            state.renew_own_change_time(fd)?;
            change(state, fd)
        });
        changed.transpose()
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
