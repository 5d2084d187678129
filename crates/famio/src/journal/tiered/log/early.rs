//! Blocks stored early: a thread in exclusive mode that writes a whole block copies it to the journal at once, behind
//! the last record, while its bytes are in the processor's cache, and goes on while they leave the processor. The commit
//! adds the head and the list of a record for each. Until then the bytes are part of nothing: a crash leaves them behind
//! the last record, where nothing is read.

use super::super::LINE;
use super::super::area::Area;
use super::TieredLog;
use crate::error::Result;
use crate::index::BLOCK;
use crate::journal::records::Block;
use std::sync::Arc;

/// The most of an epoch: its commit is short with them, and a long epoch's is long anyway.
pub(crate) const MOST: usize = 16;

/// The bytes of such a record before its block: head and list.
const BEFORE: u64 = 2 * LINE as u64;
const LEN: u64 = BEFORE + BLOCK as u64;

/// The lines that an epoch of this many blocks may have more because of blocks stored early.
pub(super) const fn more_lines(blocks: u64) -> u64 {
    2 * if blocks < MOST as u64 { blocks } else { MOST as u64 }
}

/// A block stored early.
#[derive(Clone, Copy, Default)]
struct EarlyBlock {
    block: u64,
    /// Where its record begins.
    at: u64,
}

/// The blocks stored early, in the order of their records, which follow each other from the log's next byte on.
#[derive(Default)]
pub(super) struct EarlyBlocks {
    blocks: [EarlyBlock; MOST],
    count: usize,
    /// No more of the open epoch.
    over: bool,
}

/// Those of a commit: the place of each in the commit's blocks, and where its record begins.
#[derive(Default)]
pub(super) struct EarlyRecords {
    records: [(usize, u64); MOST],
    count: usize,
}

impl EarlyRecords {
    pub fn all(&self) -> &[(usize, u64)] {
        &self.records[..self.count]
    }

    pub fn has(&self, place: usize) -> bool {
        self.all().iter().any(|&(early, _)| early == place)
    }
}

impl EarlyBlocks {
    /// They do not count any more: the commit stores them with all others.
    pub fn forget(&mut self) {
        (self.count, self.over) = (0, true);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn all(&self) -> &[EarlyBlock] {
        &self.blocks[..self.count]
    }

    fn has(&self, block: u64) -> bool {
        self.all().iter().any(|early| early.block == block)
    }

    /// The records of the commit of `blocks`, which are in order: none, if these have not all of them, and whole.
    pub fn take(&mut self, blocks: &[Block<'_>]) -> EarlyRecords {
        let mut found = EarlyRecords::default();
        for early in self.all() {
            match blocks.binary_search_by_key(&early.block, |block| block.number) {
                Ok(place) if blocks[place].mask == u64::MAX => found.records[found.count] = (place, early.at),
                _ => {
                    found.count = 0;
                    break;
                }
            }
            found.count += 1;
        }
        (self.count, self.over) = (0, false);
        found
    }
}

impl TieredLog {
    /// A place for a whole block of the open epoch, which the caller stores there by [`Area::store_early`] before
    /// anything else is done with the log, or by another thread inside the gate. `None`: there are `most` already, or there
    /// is no room: the commit stores it.
    pub fn place_early(&mut self, block: u64, most: usize) -> Option<EarlyPlace> {
        let (index, next) = self.current.filter(|_| !self.suspect && !self.early.over)?;
        let at = self.early.all().last().map_or(next, |last| last.at + LEN);
        let is_room = self.early.count < most.min(MOST) && at + LEN <= self.segments[index].place.end();
        is_room.then(|| {
            self.early.blocks[self.early.count] = EarlyBlock { block, at };
            self.early.count += 1;
            EarlyPlace { at }
        })
    }

    /// Whether this block of the open epoch is stored early.
    pub fn is_early(&self, block: u64) -> bool {
        self.early.has(block)
    }

    /// What was stored early does not count, and no more of the open epoch is.
    pub fn forget_early(&mut self) {
        self.early.forget();
    }

    /// Where blocks are stored early.
    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }
}

/// Where a block is stored early.
#[derive(Clone, Copy)]
pub(crate) struct EarlyPlace {
    /// Of its record.
    at: u64,
}

impl Area {
    /// Stores a block at its place; a fence of this thread follows. `past`: past the cache.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    ///
    /// # Safety
    /// `bytes` is a whole block, which nothing writes to meanwhile. The place is the open epoch's; no other thread
    /// stores there, and the log is not told to forget it meanwhile.
    pub unsafe fn store_early(&self, place: EarlyPlace, bytes: *const u8, past: bool) -> Result<()> {
        let (medium, to) = (self.mapped().medium(), self.mapped().base().wrapping_add((place.at + BEFORE) as usize));
        self.store(|| {
            // SAFETY: within a segment, which is mapped, behind the last record: the caller's promise. So is that about
            // the source.
            unsafe { if past { medium.copy_past(to, bytes, BLOCK) } else { medium.copy(to, bytes, BLOCK) } };
        })
    }
}
