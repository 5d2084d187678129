//! The part of a transaction that concerns one file.

use crate::error::{Error, Result};
use crate::file::transaction::{Seen, Share, WriteSet};
use crate::file::{AtomicFile, UserBuf};
use std::sync::Arc;

/// For a transaction of the parent of this process.
pub(crate) fn of_parent() -> Error {
    let what = "a transaction belongs to the process that began it; a forked child has to begin its own";
    Error::with(libc::ECHILD, what)
}

pub(super) struct Part {
    file: Arc<AtomicFile>,
    set: WriteSet,
    /// Only for a transaction that checks.
    seen: Option<Seen>,
    has_read: bool,
}

impl Part {
    pub fn new(file: Arc<AtomicFile>) -> Self {
        Self { file, set: WriteSet::default(), seen: None, has_read: false }
    }

    #[inline]
    pub fn is_of(&self, file: &Arc<AtomicFile>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    #[cold]
    pub fn named(&self, error: Error) -> Error {
        self.file.named(error)
    }

    /// Whether it has read or written.
    pub fn is_touched(&self) -> bool {
        self.has_read || !self.set.is_empty()
    }

    /// Drops everything it has kept.
    pub fn forget(&mut self) {
        self.set.clear();
        self.seen = None;
    }

    pub fn begin_to_see(&mut self) -> Result<()> {
        self.seen = Some(self.file.begin_to_see().map_err(|e| self.file.named(e))?);
        Ok(())
    }

    #[inline]
    pub fn is_parents(&self) -> bool {
        self.file.is_parents()
    }

    /// # Errors
    /// `ECHILD`: a forked child's parent began it. `EBADF`: the file was closed, or was opened for reading only.
    #[inline]
    pub fn is_usable(&self) -> Result<()> {
        if !self.file.is_parents() && self.file.is_open_for_writing() {
            return Ok(());
        }
        Err(self.unusable())
    }

    #[cold]
    fn unusable(&self) -> Error {
        self.named(if self.file.is_parents() {
            of_parent()
        } else {
            Error::with(libc::EBADF, "the file of a transaction is closed, or was opened for reading")
        })
    }

    /// # Safety
    /// The buffer may be read; it may also be a bad address.
    #[inline]
    pub unsafe fn write(&mut self, offset: u64, buf: UserBuf) -> Result<()> {
        self.see_overwritten(offset, buf.len)?;
        // SAFETY: the caller's promise.
        unsafe { self.set.write(offset, buf) }
    }

    #[inline]
    pub fn write_slice(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.see_overwritten(offset, bytes.len())?;
        self.set.write_slice(offset, bytes)
    }

    #[inline]
    fn see_overwritten(&mut self, offset: u64, len: usize) -> Result<()> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        // Beyond the file's end there is nothing to overwrite.
        let end = offset.saturating_add(len as u64).min(self.file.size());
        self.file.see_overwritten(&(offset..end.max(offset)), seen)
    }

    /// The last `len` bytes that were written to it.
    pub fn last_written(&self, len: usize) -> &[u8] {
        self.set.last_written(len)
    }

    /// # Safety
    /// The buffer may be overwritten; it may also be a bad address.
    pub unsafe fn read(&mut self, offset: u64, buf: UserBuf) -> Result<usize> {
        self.has_read = true;
        let there = match &mut self.seen {
            // SAFETY: the caller's promise.
            Some(seen) => unsafe { self.file.read_and_see(offset, buf, seen) },
            // SAFETY: as above.
            None => unsafe { self.file.read(offset, &[buf]) },
        }?;
        if self.set.is_empty() {
            return Ok(there);
        }
        // As long as it was for the read: another thread or process may have made it longer since.
        let end = offset.saturating_add(there as u64);
        let size = self.set.size_after(match there {
            0 => self.file.size().min(offset),
            _ if there < buf.len => end,
            _ => self.file.size().max(end),
        });
        let len = buf.len.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if len > there {
            // SAFETY: the rest of the caller's buffer.
            unsafe { crate::file::zero_out(buf.base.wrapping_add(there), len - there) }?;
        }
        // SAFETY: the caller's promise.
        unsafe { self.set.show(offset, buf.base, len) }?;
        Ok(len)
    }

    pub fn set_size(&mut self, size: u64) -> Result<()> {
        if let Some(seen) = &mut self.seen {
            self.file.see_size(seen);
        }
        self.set.set_size(size)
    }

    pub fn size(&mut self) -> u64 {
        self.has_read = true;
        let size = match &mut self.seen {
            Some(seen) => self.file.see_size(seen),
            None => self.file.size(),
        };
        self.set.size_after(size)
    }

    /// Whether it has something to commit or to check.
    pub fn has_work(&self) -> bool {
        !self.set.is_empty() || self.seen.as_ref().is_some_and(|seen| !seen.is_empty())
    }

    /// Its share of a commit of several files.
    pub fn share(&self) -> Share<'_> {
        Share { file: &self.file, set: &self.set, seen: self.seen.as_ref() }
    }

    pub fn commit(&self, durable: bool) -> Result<()> {
        let durable = durable || self.file.is_write_atomic();
        self.file.commit_transaction(&self.set, self.seen.as_ref(), durable).map_err(|e| self.named(e))
    }
}
