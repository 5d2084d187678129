//! SYNC of a growing file: the mark gets the new size and a hash of the new bytes, and one flush makes mark and bytes
//! durable in any order. If the file system keeps that order, the bytes are written first, and need no hash.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, GROWING};
use crate::file::lease;
use crate::file::session::sync::failed;
use crate::file::state::growing_state::{ReleasedLock, State};
use crate::journal::GrowingMark;
use crate::recovery::hash_of;
use crate::settings::Durability;
use crate::sys::write_out;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

/// More bytes are not read again for a hash, at a SYNC and at a recovery, but flushed before the mark.
const MOST_HASHED: u64 = 16 << 20;
/// Commits until a file gets a session, if a commit in a session takes no system call.
const COMMITS_MAX: u32 = 64;
/// Writes that overwrite committed bytes until a file in memory gets a session, in which they are cheaper.
const OVERWRITES_IN_MEMORY_MAX: u32 = 64;
/// The same on a disk, where the mark costs more than a record in a journal.
const OVERWRITES_ON_DISK_MAX: u32 = 16;

impl AtomicFile {
    /// SYNC of a growing file. `None`: it does not grow any more.
    #[cold]
    pub(in crate::file) fn sync_growing(&self) -> Option<Result<()>> {
        let mut growing = self.growing.state.lock();
        if self.state.load(Ordering::Acquire) != GROWING {
            return None;
        }
        let state = growing.as_mut()?;
        let mut has_ended = false;
        let synced = self.fds.with_size(|fd, size| {
            if lease::is_broken(fd) {
                return Ok(None);
            }
            let is_marked = state.mark_if_new(fd, size)?;
            if is_marked {
                state.commit(fd, size)?;
                self.growing.show_overwrites_of(state);
            } else {
                state.flush(fd)?; // the kernel's until now, in a session from its next change on
            }
            // After this many SYNCs a session is faster.
            let is_over = match state.durability() {
                Durability::Process => {
                    state.commits >= COMMITS_MAX || state.overwriting_writes >= OVERWRITES_IN_MEMORY_MAX
                }
                Durability::Power => state.overwriting_writes >= OVERWRITES_ON_DISK_MAX,
            };
            has_ended = !is_marked || is_over && state.unmark(fd).is_ok(); // everything is committed in any case
            Ok(Some(()))
        });
        if has_ended {
            self.growing.is_over.store(true, Ordering::Relaxed);
            let _ = self.grows_no_longer(&mut growing, None); // fails only if the lease is gone already
        }
        let is_full = synced.as_ref().is_err_and(Error::is_full);
        if is_full && self.growing.is_overwritten.load(Ordering::Relaxed) {
            drop(growing);
            // There may be room for a journal, which takes them up.
            let refused = self.session_for_write().err().filter(|refusal| !refusal.is_session_ended());
            return refused.map(|refusal| Err(self.named(refusal.into())));
        }
        synced.map_err(|e| self.named(e)).transpose()
    }

    /// A SYNC, if the file is the kernel's until its first one: flushes it, and leaves it as it is.
    pub(in crate::file) fn flush_unmarked(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) != GROWING {
            return Ok(());
        }
        let mut growing = self.growing.state.lock();
        match growing.as_mut().filter(|state| !state.is_marked()) {
            Some(state) => self.fds.with(true, |fd| state.flush(fd)).map_err(|e| self.named(e)),
            None => Ok(()),
        }
    }
}

/// Why nothing was committed.
enum NotCommitted {
    /// There is no room for the mark; some file systems need some also to replace or remove one (xfs). All is as before,
    /// and the SYNC may be repeated.
    NoRoom(Error),
    Failed(Error),
}

impl From<Error> for NotCommitted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl State {
    /// Marks a new file that had no mark, at its first SYNC. Returns whether it has one. All of its `size` bytes count
    /// as found: after a kill in the middle of that SYNC it has them as a moment before.
    pub(super) fn mark_if_new(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<bool> {
        if self.marked_later.is_none() || self.is_suspect {
            return Ok(self.marked_later.is_none());
        }
        if self.durability() == Durability::Power && !self.write_out_first(fd)? {
            // The mark may reach the disk before they would.
            self.medium.fdatasync(fd).inspect_err(|_| self.is_suspect = true).map_err(failed)?;
        }
        let Some(order) = &self.marked_later else { return Ok(true) };
        let mut mark = GrowingMark { is_found: true, ..self.mark.of_size_with_room(size) };
        mark.renew();
        let is_marked = order.mark_later(fd, &mark)?;
        if is_marked {
            (self.mark, self.marked_later) = (mark, None);
        }
        Ok(is_marked)
    }

    /// Makes a file without a mark durable.
    fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        let flushed = if self.is_suspect { Err(Error::new(libc::EIO)) } else { self.medium.fsync(fd) };
        self.is_suspect = flushed.is_err();
        flushed.map_err(failed)
    }

    /// Flushes the file, if commits survive a power cut.
    pub(super) fn flush_if_power(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if self.durability() == Durability::Process {
            return Ok(());
        }
        // Data of a failed flush may be lost even if a retry succeeds.
        self.medium.fsync(fd).inspect_err(|_| self.is_suspect = true)
    }

    /// Commits everything in the file, whose size is `size`, and the overwrites. Earlier commits stay in any case.
    pub(super) fn commit(&mut self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        if self.is_suspect {
            return Err(failed(Error::new(libc::EIO)));
        }
        if size == self.committed() && !self.mark.is_found && self.overwrites.is_empty() {
            return Ok(());
        }
        match self.commit_size(fd, size) {
            Ok(()) => {
                self.commits = self.commits.saturating_add(1);
                self.released_lock = ReleasedLock::No;
                self.apply_overwrites(fd);
            }
            Err(NotCommitted::NoRoom(e)) => return Err(e),
            // Data of a failed flush may be lost even if a retry succeeds.
            Err(NotCommitted::Failed(e)) => {
                self.is_suspect = true;
                return Err(failed(e));
            }
        }
        Ok(())
    }

    /// If the file system keeps the order: writes new bytes to the disk before the mark changes. Returns whether it
    /// did; a sandbox may forbid it.
    pub(super) fn write_out_first(&mut self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.keeps_order {
            match write_out(fd) {
                Err(e) if [libc::ENOSYS, libc::EPERM].contains(&e.errno()) => self.keeps_order = false,
                written => written?,
            }
        }
        Ok(self.keeps_order)
    }

    fn commit_size(&mut self, fd: BorrowedFd<'_>, size: u64) -> core::result::Result<(), NotCommitted> {
        let base = self.committed();
        // It does not become shorter meanwhile: xfs makes a short attribute long in two steps, and has none in between.
        let mut next = GrowingMark { overwrites: self.overwrites.clone(), ..self.mark.of_size_with_room(size) };
        if !self.overwrites.is_empty() {
            next.renew(); // they change the file once they are committed
        }
        if self.durability() == Durability::Process {
            return self.store_committing_mark(fd, next);
        }
        if self.write_out_first(fd)? {
            // If a crash leaves the new mark, it leaves the bytes.
            self.store_committing_mark(fd, next)?;
            self.medium.fsync(fd)?;
            self.mark.is_found = false;
            return Ok(());
        }
        let is_hashed = (1..=MOST_HASHED).contains(&size.saturating_sub(base)) && !self.has_overwrites();
        let hash = if is_hashed { hash_of(fd, base, size)? } else { None };
        match hash {
            Some(hash) => {
                self.store_committing_mark(fd, GrowingMark { base, new: size, hash, ..self.mark.clone() })?;
                self.medium.fsync(fd)?;
            }
            None => {
                // What the file has got since the last mark, or before the first.
                if size != base || self.mark.is_found || !self.mark.overwrites.is_empty() {
                    self.medium.fdatasync(fd)?;
                }
                self.store_committing_mark(fd, next)?;
                self.medium.fsync(fd)?;
            }
        }
        self.mark.is_found = false; // harmless that the file gets this only with its next mark
        Ok(())
    }

    /// The kernel replaces a mark as a whole, or not at all.
    fn store_committing_mark(
        &mut self,
        fd: BorrowedFd<'_>,
        mark: GrowingMark,
    ) -> core::result::Result<(), NotCommitted> {
        self.store_mark(fd, mark)
            .map_err(|e| if e.is_full() { NotCommitted::NoRoom(e) } else { NotCommitted::Failed(e) })
    }
}
