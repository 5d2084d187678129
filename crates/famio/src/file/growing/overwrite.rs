//! A few committed bytes of a growing file are overwritten: the new ones stay in memory until the SYNC has put them
//! into the file's mark, as a redo log, and reads of this process find them there. So a program that opens a file,
//! changes a little and closes it needs no journal.

use super::change::Reach;
use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use crate::file::descriptors::set_id::has_privileges;
use crate::file::engine::home::has_holes;
use crate::file::state::growing_state::{State, TAKEN};
use crate::file::{UserBuf, copied_in, copy_out};
use crate::journal::{GrowingMark, Marked, OVERWRITES_MAX, Overwrites, mark};
use crate::map::guard;
use crate::settings::Durability;
use crate::sys::read_at;
use core::sync::atomic::Ordering;
use rustix::fs::{Timespec, Timestamps, fstat, futimens};
use std::os::fd::BorrowedFd;

/// More bytes of one call are not compared with the file's.
const COMPARED_MAX: usize = 2 * OVERWRITES_MAX;
/// The mark gets room for overwrites in steps of so many bytes.
const STEP: usize = 512;

/// The time of the last access stays, that of the last change becomes now.
const CHANGED_NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
};

impl AtomicFile {
    /// Overwrites committed bytes of a growing file. `None`: this needs a session.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[cold]
    pub(super) unsafe fn overwrite_growing(&self, at: u64, bufs: &[UserBuf]) -> Option<Result<usize>> {
        if !guard::is_installed() {
            guard::install().ok()?;
        }
        // SAFETY: the caller's promise.
        let new = unsafe { copied_in(COMPARED_MAX, bufs) }?;
        self.change_growing(Reach::Within(at, &new), |state, fd| {
            let done = state.overwrite(fd, at, &new)?;
            self.growing.show_overwrites_of(state);
            Ok(done)
        })
    }

    /// Reads from a growing file.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub(in crate::file) unsafe fn read_growing(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        let is_shared = self.growing.is_shared.load(Ordering::Acquire);
        if !is_shared && !self.growing.is_overwritten.load(Ordering::Acquire) {
            return self.read_kernel(offset, bufs);
        }
        Self::may_lock()?;
        let growing = self.growing.state.lock();
        let read = self.read_kernel(offset, bufs)?;
        let Some(state) = growing.as_ref() else { return Ok(read) };
        // After the read: until then nobody had.
        if is_shared && !self.fds.with(false, |fd| state.has_mark_on(fd))? {
            return Err(self.named(Error::with(libc::EIO, TAKEN)));
        }
        state.overwrites.each_within(offset..offset + read as u64, |at, bytes| {
            // SAFETY: the caller's promise.
            unsafe { show((at - offset) as usize, bytes, bufs) }
        })?;
        Ok(read)
    }
}

impl State {
    /// Whether the file has its mark still, as this process has stored it last.
    pub(super) fn has_mark_on(&self, fd: BorrowedFd<'_>) -> Result<bool> {
        let Some(Marked::Growing(there)) = mark::get_any(fd)? else { return Ok(false) };
        // That the bytes were found is noted with the next mark only.
        Ok(GrowingMark { is_found: self.mark.is_found, ..there } == self.mark)
    }

    /// The bytes of the file, as the program sees them. `None`: it has fewer.
    fn shown(&self, fd: BorrowedFd<'_>, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; len];
        if read_at(fd, at, &mut bytes)? < len {
            return Ok(None);
        }
        self.overwrites.each_within(at..at + len as u64, |from, run| {
            bytes[(from - at) as usize..][..run.len()].copy_from_slice(run);
            Ok(())
        })?;
        Ok(Some(bytes))
    }

    /// The overwrites with these bytes among them. `None`: this needs a session.
    pub(super) fn with_overwrite(&self, fd: BorrowedFd<'_>, at: u64, new: &[u8]) -> Result<Option<Overwrites>> {
        // A hole might find no room once the bytes are committed.
        if self.room == 0 || has_holes(&fstat(fd)?) || has_privileges(fd)? {
            return Ok(None);
        }
        let Some(old) = self.shown(fd, at, new.len())? else { return Ok(None) };
        let mut overwrites = self.overwrites.clone();
        overwrites.add_differences(at, &old, new);
        Ok((overwrites.encoded_len() <= self.room).then_some(overwrites))
    }

    /// Overwrites committed bytes, with room in the mark for them, so that the SYNC finds some. `None`: this needs a
    /// session.
    fn overwrite(&mut self, fd: BorrowedFd<'_>, at: u64, new: &[u8]) -> Result<Option<usize>> {
        let Some(overwrites) = self.with_overwrite(fd, at, new)? else { return Ok(None) };
        self.overwriting_writes = self.overwriting_writes.saturating_add(1);
        let needed = overwrites.encoded_len();
        let has_room_for = self.mark.reserved.max(self.mark.overwrites.encoded_len());
        if needed > has_room_for {
            // In the middle of that, xfs has no mark, so that everything would count as committed.
            let has_tail = || fstat(fd).is_ok_and(|stat| stat.st_size as u64 > self.committed());
            if has_room_for == 0 && self.durability() == Durability::Power && has_tail() {
                return Ok(None);
            }
            let reserved = needed.next_multiple_of(STEP).min(self.room);
            match self.store_mark(fd, GrowingMark { reserved, ..self.mark.clone() }) {
                Err(e) if e.is_full() => return Ok(None),
                stored => stored?,
            }
        }
        if futimens(fd, &CHANGED_NOW).is_err() {
            return Ok(None);
        }
        self.overwrites = overwrites;
        Ok(Some(new.len()))
    }

    /// Writes the overwrites, which are committed in the mark, to the kernel's file. If that fails, they stay in memory
    /// and in the mark. If it fails for another reason than a full disk, the file takes no more changes.
    pub(super) fn apply_overwrites(&mut self, fd: BorrowedFd<'_>) {
        if self.overwrites.is_empty() {
            return;
        }
        // The file has changed when the program wrote, or at the time that the program has set since.
        let changed = fstat(fd).map(|stat| (stat.st_mtime, stat.st_mtime_nsec));
        // The flush may have taken long. A crash must not make this look like a change by an outsider.
        let applied = self.overwrites.each(|at, bytes| {
            mark::renew_own_change_time(fd, &mut self.mark)?;
            self.medium.pwritev(fd, &[bytes], at)
        });
        if let Ok((tv_sec, nanoseconds)) = changed {
            let last_modification = Timespec { tv_sec, tv_nsec: nanoseconds as i64 };
            let _ = futimens(fd, &Timestamps { last_modification, ..CHANGED_NOW }); // only the owner has the lease
        }
        match applied {
            Ok(()) => {
                self.overwrites = Overwrites::default();
                // What is to survive only the process has got there. If this fails, they stay there for longer.
                if self.durability() == Durability::Process {
                    let _ = self.store_mark(fd, self.mark.of_size(self.committed()));
                }
            }
            Err(e) => self.is_suspect |= !e.is_full(),
        }
        self.is_unapplied = !self.overwrites.is_empty();
    }

    /// Tries again to write committed overwrites to the kernel's file, if there was no room for them.
    pub(super) fn apply_again(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if !self.is_unapplied {
            return Ok(());
        }
        self.mark.overwrites.each(|at, bytes| self.medium.pwritev(fd, &[bytes], at))?;
        self.is_unapplied = false;
        Ok(())
    }

    /// Writes the overwrites of the open epoch to the kernel's file: all, or none.
    pub(super) fn put_overwrites(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let mut before = Vec::new();
        let put = self.overwrites.each(|at, bytes| {
            let mut old = vec![0; bytes.len()];
            read_at(fd, at, &mut old)?;
            before.push((at, old));
            self.medium.pwritev(fd, &[bytes], at)
        });
        if put.is_err() {
            // The last one may be there in part. If this fails, too, there is no way back.
            before
                .iter()
                .try_for_each(|(at, old)| self.medium.pwritev(fd, &[old], *at))
                .map_err(|_| Error::new(libc::EIO))?;
        }
        put
    }

    /// Makes the committed overwrites, which the file has got, durable, so that the mark need not have them any more. If
    /// the file system keeps the order, the next flush after that of the mark does.
    pub(super) fn write_out_overwrites(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if self.mark.overwrites.is_empty() || self.durability() == Durability::Process {
            return Ok(());
        }
        let written = match self.write_out_first(fd) {
            Ok(false) => self.medium.fdatasync(fd),
            written => written.map(drop),
        };
        // Data of a failed flush may be lost even if a retry succeeds.
        written.inspect_err(|_| self.is_suspect = true)
    }
}

/// Copies `bytes` to the caller's memory, `skipped` bytes after its beginning.
///
/// # Safety
/// The buffers may be overwritten; bad ones are an error.
unsafe fn show(skipped: usize, mut bytes: &[u8], bufs: &[UserBuf]) -> Result<()> {
    for buf in UserBuf::after(bufs, skipped) {
        let (now, rest) = bytes.split_at(bytes.len().min(buf.len));
        // SAFETY: the caller's promise; `now` is not longer than the buffer.
        unsafe { copy_out(buf.base, now.as_ptr(), now.len()) }?;
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    Ok(())
}
