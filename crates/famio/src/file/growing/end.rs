//! The clean end of a growing file: everything is committed, and the mark is removed.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, GROWING, PLAIN};
use crate::file::lease;
use crate::file::session::sync::failed;
use crate::file::state::growing_state::State;
use crate::journal::mark;
use crate::recovery::end_growing;
use crate::settings::Durability;
use core::sync::atomic::Ordering;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

impl AtomicFile {
    /// Commits everything and removes the mark; leaves a file without mark to the kernel. Does nothing if the file
    /// does not grow. The caller holds `inner`.
    pub(in crate::file) fn end_growing(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(());
        }
        let mut growing = self.growing.state.lock();
        let Some(state) = growing.as_mut() else { return Ok(()) };
        let fd = self.fds.with_size(|fd, size| {
            if state.is_marked() {
                if lease::is_broken(fd) {
                    self.check_lease_was_kept(fd, state)?; // the mark may be another process's
                }
                state.finish(fd, size)?;
            }
            Ok(fd.as_raw_fd())
        })?;
        self.give_up_growing_lease(Some(fd))?;
        self.has_grown(&mut growing);
        Ok(())
    }

    /// A file that was to be the kernel's until its first SYNC stays the kernel's. Returns whether it was one.
    pub(super) fn leave_unmarked(&self) -> Result<bool> {
        let _inner = self.inner();
        let mut growing = self.growing.state.lock();
        if growing.as_ref().is_none_or(State::is_marked) {
            return Ok(false);
        }
        self.give_up_growing_lease(None)?;
        self.has_grown(&mut growing);
        Ok(true)
    }

    /// The file does not grow any more, and has no session.
    pub(super) fn has_grown(&self, growing: &mut Option<State>) {
        self.state.store(PLAIN, Ordering::SeqCst);
        *growing = None;
        lease::Watched::end();
    }

    /// Releases the lease, so that waiting opens go on. `just`: a descriptor that this call has confirmed.
    ///
    /// # Errors
    /// `EBADF`: the descriptor was closed unseen, and the lease is gone with it.
    pub(super) fn give_up_growing_lease(&self, just: Option<RawFd>) -> Result<()> {
        let mut given_up = Ok(());
        self.move_locks_to_kernel(|joined| match joined {
            Some(fd) => lease::give_up(fd),
            None => {
                given_up = self.fds.with_confirmed(just, |fd| {
                    lease::give_up(fd);
                    Ok(())
                });
            }
        });
        given_up
    }
}

impl State {
    /// Commits everything in the file, whose size is `size`, and removes the mark.
    fn finish(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        if self.durability() == Durability::Process && !self.is_suspect {
            return mark::remove(fd); // without a mark everything is committed
        }
        if self.keeps_order && !self.is_suspect && self.mark.new == self.mark.base && self.finish_at_once(fd, size)? {
            return Ok(());
        }
        self.commit(fd, size)?;
        self.unmark(fd)
    }

    /// Writes new bytes to the disk, removes the mark, and makes both durable by one flush: if a crash finds the mark
    /// gone, the bytes had reached the disk before. Not with a hash in the mark: after a kill before the flush,
    /// others may overwrite the file, and a power cut bring the mark back. Returns whether it was possible.
    fn finish_at_once(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<bool> {
        if size == self.committed() && !self.mark.is_found {
            return mark::remove(fd).map(|()| true);
        }
        let finished = match self.write_out_first(fd) {
            Ok(true) => match mark::remove(fd) {
                Err(e) if e.is_full() => return Err(e), // all is as before
                removed => removed.and_then(|()| self.medium.fsync(fd)).map(|()| true),
            },
            written => written,
        };
        finished.map_err(|e| {
            self.is_suspect = true;
            // Without the mark, half an epoch would look committed. It may still be there.
            let _ = self.mark_again(fd);
            failed(e)
        })
    }

    /// Sets the mark, whether it was removed or not.
    pub(super) fn mark_again(&self, fd: BorrowedFd<'_>) -> Result<()> {
        mark::set_growing(fd, &self.mark, true).or_else(|_| mark::set_growing(fd, &self.mark, false))
    }

    /// Removes the mark of a file of which everything is committed.
    pub(super) fn unmark(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let size = self.committed();
        end_growing(fd, &self.mark, (size, size), self.durability(), self.medium)
    }
}
