//! The clean end of a growing file: everything is committed, and the mark is removed.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, GROWING, PLAIN};
use crate::file::lease;
use crate::file::session::sync::failed;
use crate::file::state::growing_state::State;
use crate::journal::{GrowingMark, mark};
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
        self.grows_no_longer(&mut growing, Some(fd))
    }

    /// A file that was to be the kernel's until its first SYNC stays the kernel's. Returns whether it was one.
    pub(super) fn leave_unmarked(&self) -> Result<bool> {
        let _inner = self.inner();
        let mut growing = self.growing.state.lock();
        if growing.as_ref().is_none_or(|state| state.is_marked()) {
            return Ok(false);
        }
        self.grows_no_longer(&mut growing, None)?;
        Ok(true)
    }

    /// The file does not grow any more, and has no session. `just`: a descriptor that this call has confirmed.
    ///
    /// # Errors
    /// `EBADF`: the descriptor was closed unseen, and the lease is gone with it.
    pub(super) fn grows_no_longer(&self, growing: &mut Option<Box<State>>, just: Option<RawFd>) -> Result<()> {
        let _moving = self.growing.moving(); // a reader must not take it for growing once others may change it
        let given_up = self.give_up_growing_lease(just);
        self.growing.is_overwritten.store(false, Ordering::Relaxed);
        self.state.store(PLAIN, Ordering::SeqCst);
        *growing = None;
        lease::Watched::end();
        given_up
    }

    /// The program has closed the file, and it could not be committed: the next open takes it back to its last SYNC.
    pub(in crate::file) fn abandon_growing(&self) {
        let mut growing = self.growing.state.lock();
        if self.state.load(Ordering::Acquire) == GROWING && growing.is_some() {
            let _ = self.grows_no_longer(&mut growing, None); // fails only if the lease is gone already
        }
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
        if self.durability() == Durability::Process && !self.is_suspect && self.overwrites.is_empty() {
            return mark::remove(fd); // without a mark everything is committed
        }
        let has_hash = self.mark.new != self.mark.base;
        let may_be_at_once = self.keeps_order && !self.is_suspect && !has_hash && !self.has_overwrites();
        if may_be_at_once && self.finish_at_once(fd, size)? {
            return Ok(());
        }
        self.commit(fd, size)?;
        match self.unmark(fd) {
            // A full disk that needs room to change a mark (xfs). It commits what the file has, too.
            Err(e) if e.is_full() && !self.is_unapplied && !self.mark.overwrites.is_empty() => Ok(()),
            unmarked => unmarked,
        }
    }

    /// Writes new bytes to the disk, removes the mark, and makes both durable by one flush: if a crash finds the mark
    /// gone, the bytes had reached the disk before. Not with a hash or overwrites in the mark: after a kill before the
    /// flush, others may overwrite the file, and a power cut bring the mark back. Returns whether it was possible.
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

    /// Sets the mark, whether it was removed or not; without the room reserved in it, if there is none any more.
    pub(super) fn mark_again(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        self.mark.renew();
        let set =
            |mark: &GrowingMark| mark::set_growing(fd, mark, true).or_else(|_| mark::set_growing(fd, mark, false));
        match set(&self.mark) {
            Err(e) if e.is_full() && self.mark.reserved > 0 => {
                self.mark.reserved = 0;
                set(&self.mark)
            }
            marked => marked,
        }
    }

    /// Removes the mark of a file of which everything is committed.
    pub(super) fn unmark(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if self.is_unapplied {
            let what = "what is committed finds no room in the file: its next open writes it, or famio recover";
            return Err(Error::with(libc::ENOSPC, what));
        }
        if !self.overwrites.is_empty() {
            return Err(failed(Error::new(libc::EIO))); // committed, but the file could not get them
        }
        self.write_out_overwrites(fd).map_err(failed)?;
        let size = self.committed();
        end_growing(fd, &self.mark, (size, size), self.durability(), self.medium).inspect_err(|e| {
            if !e.is_full() && !self.mark.overwrites.is_empty() {
                // The flush failed, and the file may not have them.
                self.is_suspect = true;
                let _ = self.mark_again(fd);
            }
        })
    }
}
