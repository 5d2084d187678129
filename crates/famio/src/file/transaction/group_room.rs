//! Room in the record of a group's SYNC, which has at most 1 GiB, of at most 4096 files: the write that would exceed
//! that is refused, so that the SYNC need not be. Each file counts what its writes may add. That is too much if they
//! hit the same blocks, so before a refusal all files are looked at.

use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use crate::file::groups;
use crate::file::session::Session;
use crate::file::transaction::write_set::Step;
use crate::file::transaction::{AT_END, WriteSet};
use crate::index::BLOCK;
use crate::journal::joint::MOST_PARTS;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bytes of a record for all files. The rest of a gigabyte is for what is not counted: stores in maps, and what is
/// written during a count.
const ROOM: u64 = (1 << 30) - (64 << 20);
/// Bytes of a record for a block.
const PER_BLOCK: u64 = BLOCK as u64 + 16;
/// Bytes, of all files, after which all files are looked at.
const STEP: u64 = 16 << 20;
/// Bytes that were reserved in records so far, by all files of groups.
static RESERVED: AtomicU64 = AtomicU64::new(0);

impl AtomicFile {
    /// Before a write of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `ENOSPC`: the files of its group could not be committed together any more.
    #[inline]
    pub(in crate::file) fn reserve_in_record(&self, offset: u64, len: usize) -> Result<()> {
        match self.settings.group {
            None => Ok(()),
            Some(group) => self.reserve(group, offset, len as u64),
        }
    }

    /// Before the file gets that size. A cut takes nothing, unless the file has not changed yet: then it becomes one
    /// that has a part in the record.
    ///
    /// # Errors
    /// As [`reserve_in_record`](Self::reserve_in_record).
    #[inline]
    pub(in crate::file) fn reserve_size_in_record(&self, size: u64) -> Result<()> {
        match self.settings.group {
            Some(group) if self.in_record.load(Ordering::Relaxed) == 0 || size > self.size() => {
                self.reserve(group, size, 1)
            }
            _ => Ok(()),
        }
    }

    /// Before a transaction is applied.
    ///
    /// # Errors
    /// As [`reserve_in_record`](Self::reserve_in_record).
    #[inline]
    pub(super) fn reserve_set_in_record(&self, set: &WriteSet) -> Result<()> {
        let Some(group) = self.settings.group else { return Ok(()) };
        set.steps().iter().try_for_each(|step| match *step {
            Step::Write { offset: AT_END, len, .. } => self.reserve(group, self.size(), len as u64),
            Step::Write { offset, len, .. } => self.reserve(group, offset, len as u64),
            Step::SetSize(size) => self.reserve_size_in_record(size),
        })
    }

    #[cold]
    fn reserve(&self, group: u32, offset: u64, len: u64) -> Result<()> {
        let blocks = offset.saturating_add(len).div_ceil(BLOCK as u64) - offset / BLOCK as u64;
        let more = blocks * PER_BLOCK;
        let before = RESERVED.fetch_add(more, Ordering::Relaxed);
        let is_first = self.in_record.fetch_add(more, Ordering::Relaxed) == 0;
        if !is_first && before / STEP == (before + more) / STEP {
            return Ok(());
        }
        let files = groups::files_of(group);
        if fits(&files) {
            return Ok(());
        }
        // The next write has to look again.
        let undo = || _ = RESERVED.fetch_sub(more, Ordering::Relaxed);
        files.iter().try_for_each(|file| file.count_in_record()).inspect_err(|_| undo())?;
        self.in_record.fetch_add(more, Ordering::Relaxed);
        if fits(&files) {
            return Ok(());
        }
        self.in_record.fetch_sub(more, Ordering::Relaxed);
        undo();
        let what = "the files of its group have changed so much since the last SYNC that they could not be committed together: SYNC first";
        Err(self.named(Error::with(libc::ENOSPC, what)))
    }

    /// Counts what the record of a SYNC at this moment would have.
    fn count_in_record(&self) -> Result<()> {
        let count = |session: &Session| -> Result<u64> {
            let _closed = session.close_gate(&self.fds)?;
            let size = session.arena.shared().dirty.load(Ordering::Acquire).min(1); // it may be all that has changed
            let blocks = session.open_blocks(session.context(&self.fds))?.len() as u64;
            Ok((blocks + u64::from(size)) * PER_BLOCK)
        };
        let counted = self.with_session(count).unwrap_or(Ok(0))?;
        self.in_record.store(counted, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether a record has room for them. A single file needs none.
fn fits(files: &[Arc<AtomicFile>]) -> bool {
    let all = || files.iter().map(|file| file.in_record.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0);
    all().count() < 2 || all().count() <= MOST_PARTS as usize && all().fold(0, u64::saturating_add) <= ROOM
}
