//! The log to which epochs are appended: pages of a file, made durable by `fdatasync`, or memory that persists by
//! itself.

use crate::error::Result;
use crate::file::engine::context::{Words, put_list};
use crate::journal::records::{Batch, Preparation, RecordLog};
use crate::journal::tiered::{Area, Growth, TieredLog};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// See the module.
pub(super) enum EpochLog {
    /// A journal of records.
    Pages(RecordLog),
    /// A tiered journal.
    Memory(TieredLog),
}

/// A segment to be made in the background.
pub(super) enum Segment {
    Pages(Preparation),
    Memory(Growth),
}

impl Segment {
    /// Makes it.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: no room. Those of the journal's medium.
    pub fn run(self) -> Result<()> {
        match self {
            Segment::Pages(preparation) => preparation.run(),
            Segment::Memory(growth) => growth.run(),
        }
    }
}

impl EpochLog {
    /// The last committed epoch, as the journal counts.
    pub fn committed(&self) -> u64 {
        match self {
            EpochLog::Pages(log) => log.committed(),
            EpochLog::Memory(log) => log.committed(),
        }
    }

    /// Where blocks are stored early.
    pub fn area(&self) -> Option<Arc<Area>> {
        match self {
            EpochLog::Pages(_) => None,
            EpochLog::Memory(log) => Some(log.area().clone()),
        }
    }

    /// See [`TieredLog::forget_early`].
    pub fn forget_early(&mut self) {
        if let EpochLog::Memory(log) = self {
            log.forget_early();
        }
    }

    /// The bytes of the journal's file.
    pub fn len(&self) -> u64 {
        match self {
            EpochLog::Pages(log) => log.len(),
            EpochLog::Memory(log) => log.len(),
        }
    }

    /// The bytes appended since it was begun.
    pub fn written(&self) -> u64 {
        match self {
            EpochLog::Pages(log) => log.written(),
            EpochLog::Memory(log) => log.written(),
        }
    }

    /// See [`RecordLog::reserve`].
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        match self {
            EpochLog::Pages(log) => log.reserve(bytes),
            EpochLog::Memory(log) => log.reserve(bytes),
        }
    }

    /// Commits an epoch: durable on return. See [`RecordLog::append_for`].
    pub fn append(&mut self, batch: &Batch<'_>, file: Option<BorrowedFd<'_>>) -> Result<()> {
        match self {
            EpochLog::Pages(log) => log.append_for(batch, file),
            EpochLog::Memory(log) => log.append(batch),
        }
    }

    /// Everything up to `epoch` is durable in the file.
    pub fn release(&mut self, epoch: u64) {
        match self {
            EpochLog::Pages(log) => log.release(epoch),
            EpochLog::Memory(log) => log.release(epoch),
        }
    }

    /// Whether it is time to make segments in the background; at most once for each that is in use.
    pub fn wants_segment(&mut self) -> bool {
        match self {
            EpochLog::Pages(log) => log.wants_segment(),
            EpochLog::Memory(log) => log.wants_segment(),
        }
    }

    pub fn next_segment(&mut self) -> Option<Segment> {
        match self {
            EpochLog::Pages(log) => log.prepare_next().map(Segment::Pages),
            EpochLog::Memory(log) => log.next_growth().map(Segment::Memory),
        }
    }

    /// Frees the space of unneeded segments.
    pub fn shrink(&mut self) -> Result<()> {
        match self {
            EpochLog::Pages(log) => log.shrink(),
            EpochLog::Memory(log) => log.shrink(),
        }
    }

    /// Gives back space to the pool: see [`TieredLog::give_back`].
    pub fn give_back(&mut self, length: u64, reserved: u64) -> Result<()> {
        match self {
            EpochLog::Pages(log) => log.give_back(length, reserved),
            EpochLog::Memory(log) => log.give_back(length, reserved),
        }
    }

    /// The journal moves to another file: `change` replaces its descriptor.
    pub fn move_by(&mut self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            EpochLog::Pages(log) => log.move_by(change),
            EpochLog::Memory(log) => log.move_by(change),
        }
    }

    /// Adds to `words` what the next owner has to know. False: not now, since a segment is being made.
    pub fn leave_state(&mut self, words: &mut Vec<u64>) -> Result<bool> {
        match self {
            EpochLog::Pages(log) => log.leave_state(words),
            EpochLog::Memory(log) => {
                let Some((state, segments)) = log.leave_state()? else { return Ok(false) };
                words.extend(state);
                put_list(words, &segments);
                Ok(true)
            }
        }
    }

    /// Continues where the last owner left it.
    ///
    /// # Errors
    /// `EIO`: there is no such journal.
    pub fn take_state(&mut self, words: &mut Words<'_>) -> Result<()> {
        match self {
            EpochLog::Pages(log) => {
                let (first, second, third) = (words.next()?, words.next()?, words.next()?);
                log.take_state(first, second, third, &words.list()?)
            }
            EpochLog::Memory(log) => {
                let state = words.next()?;
                log.take_state(state, &words.list()?)
            }
        }
    }
}
