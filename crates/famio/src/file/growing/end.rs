//! The clean end of a growing file: all of it is committed, and the mark goes.

use crate::error::Result;
use crate::file::atomic::{AtomicFile, GROWING, PLAIN};
use crate::file::lease;
use crate::file::parts::growing_state::State;
use crate::file::session::sync::failed;
use crate::journal::mark;
use crate::recovery::end_growing;
use crate::settings::Durability;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

impl AtomicFile {
    /// Commits all, and takes the mark off; a file that has none is left to the kernel. With `inner` held. Nothing, if it does not grow.
    pub(in crate::file) fn end_growing(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(());
        }
        let mut growing = self.growing.state.lock();
        let Some(state) = growing.as_mut() else { return Ok(()) };
        self.fds.with_size(|fd, size| {
            if state.is_marked() {
                if lease::is_broken(fd) {
                    self.check_it_is_ours(fd, state)?; // the mark may be another process's
                }
                state.finish(fd, size)?;
            }
            Ok(())
        })?;
        self.give_up_growing_lease()?;
        self.has_grown(&mut growing);
        Ok(())
    }

    /// A file that is the kernel's until its first SYNC is so for good. Whether it was one.
    pub(super) fn leave_unmarked(&self) -> Result<bool> {
        let _inner = self.inner();
        let mut growing = self.growing.state.lock();
        if growing.as_ref().is_none_or(State::is_marked) {
            return Ok(false);
        }
        self.give_up_growing_lease()?;
        self.has_grown(&mut growing);
        Ok(true)
    }

    /// The file grows no more, and has no session.
    pub(super) fn has_grown(&self, growing: &mut Option<State>) {
        self.state.store(PLAIN, Ordering::SeqCst);
        *growing = None;
        lease::Watched::end();
    }

    /// Whoever waits to open the file goes on.
    ///
    /// # Errors
    /// `EBADF`: the descriptor was closed out of sight, and the lease is gone with it.
    pub(super) fn give_up_growing_lease(&self) -> Result<()> {
        let mut given_up = Ok(());
        self.locks_leave_memory(|joined| match joined {
            Some(fd) => lease::give_up(fd),
            None => {
                given_up = self.fds.with(true, |fd| {
                    lease::give_up(fd);
                    Ok(())
                });
            }
        });
        given_up
    }
}

impl State {
    /// Commits all that the file has, which is `size`, and takes the mark off.
    fn finish(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        if self.durability() == Durability::Process && !self.is_suspect {
            return mark::remove(fd); // what has no mark is committed
        }
        if self.keeps_order && !self.is_suspect && self.mark.new == self.mark.base && self.finish_at_once(fd, size)? {
            return Ok(());
        }
        self.commit(fd, size)?;
        self.unmark(fd)
    }

    /// What is new reaches the disk, then the mark goes, then one flush makes both durable: where a crash finds the mark gone, all that
    /// had reached the disk before is there. Not with a hash in the mark: after a kill before the flush others may overwrite the
    /// file, and a power cut bring the mark back. Whether it could be done.
    fn finish_at_once(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<bool> {
        if size == self.committed() && !self.mark.is_found {
            return mark::remove(fd).map(|()| true);
        }
        let finished = self.write_out_first(fd).and_then(|is_written| {
            if is_written {
                mark::remove(fd)?;
                self.medium.fsync(fd)?;
            }
            Ok(is_written)
        });
        finished.map_err(|e| {
            self.is_suspect = true;
            // Else it would show half an epoch as committed. It may be there still.
            let _ = mark::set_growing(fd, &self.mark, true).or_else(|_| mark::set_growing(fd, &self.mark, false));
            failed(e)
        })
    }

    /// Takes the mark off a file of which all is committed.
    pub(super) fn unmark(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let size = self.committed();
        end_growing(fd, &self.mark, (size, size), self.durability(), self.medium)
    }
}
