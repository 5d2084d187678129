//! Blocks stored early: a thread in exclusive mode that writes a whole block copies it to the journal at once, behind
//! the last record, while its bytes are in the processor's cache, and goes on while they leave the processor. The commit
//! adds the head and the list of a record for each. Until then the bytes are part of nothing: a crash leaves them behind
//! the last record, where nothing is read.

use super::super::LINE;
use crate::index::BLOCK;
use crate::journal::records::Block;

/// The most of an epoch: its commit is short with them, and a long epoch's is long anyway.
pub(crate) const MOST: usize = 16;

/// The bytes of such a record before its block: head and list.
pub(super) const BEFORE: u64 = 2 * LINE as u64;
pub(super) const LEN: u64 = BEFORE + BLOCK as u64;

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

    /// A place for one more block, of at most `most`: behind the others or, of the first, at `next`; before `end`.
    pub fn add(&mut self, block: u64, most: usize, next: u64, end: u64) -> Option<EarlyPlace> {
        let at = self.all().last().map_or(next, |last| last.at + LEN);
        let is_room = !self.over && self.count < most.min(MOST) && at + LEN <= end;
        is_room.then(|| {
            self.blocks[self.count] = EarlyBlock { block, at };
            self.count += 1;
            EarlyPlace { at }
        })
    }

    pub fn has(&self, block: u64) -> bool {
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

/// Where a block is stored early.
#[derive(Clone, Copy)]
pub(crate) struct EarlyPlace {
    /// Of its record.
    pub(super) at: u64,
}
