//! Blocks stored early: a thread in exclusive mode that writes a whole block copies it to the journal at once, behind
//! the last record, while its bytes are in the processor's cache, and goes on while they leave the processor. The commit
//! adds the head and the list of a record for each. Until then the bytes are part of nothing: a crash leaves them behind
//! the last record, where nothing is read.

use super::super::LINE;
use crate::error::{Error, Result};
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
pub(super) struct EarlyBlock {
    pub block: u64,
    /// Where its record begins.
    pub at: u64,
    /// Something else was written to it since: the commit has to store its bytes.
    pub is_overwritten: bool,
}

/// The blocks stored early, in the order of their records, which follow each other from the log's next byte on.
#[derive(Default)]
pub(super) struct EarlyBlocks {
    blocks: [EarlyBlock; MOST],
    count: usize,
    /// No more of the open epoch.
    over: bool,
}

impl EarlyBlocks {
    /// They do not count any more, and no block's bytes lie there: the commit stores all blocks.
    pub fn forget(&mut self) {
        (self.count, self.over) = (0, true);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn all(&self) -> &[EarlyBlock] {
        &self.blocks[..self.count]
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.all().iter().map(|early| early.block)
    }

    /// A place for one more block, of at most `most`: behind the others or, of the first, at `next`; before `end`.
    pub fn add(&mut self, block: u64, most: usize, next: u64, end: u64) -> Option<EarlyPlace> {
        let at = self.all().last().map_or(next, |last| last.at + LEN);
        let is_room = !self.over && self.count < most.min(MOST) && at + LEN <= end && !self.has(block);
        is_room.then(|| {
            self.blocks[self.count] = EarlyBlock { block, at, is_overwritten: false };
            self.count += 1;
            EarlyPlace { at }
        })
    }

    pub fn has(&self, block: u64) -> bool {
        self.all().iter().any(|early| early.block == block)
    }

    /// What is stored early of this block does not count, but its record stays: the commit stores its bytes there.
    pub fn overwrite(&mut self, block: u64) {
        let count = self.count;
        if let Some(early) = self.blocks[..count].iter_mut().find(|early| early.block == block) {
            early.is_overwritten = true;
        }
    }

    /// The commit is without this one, the last.
    pub fn give_up(&mut self, block: u64) {
        if self.all().last().is_some_and(|last| last.block == block) {
            self.count -= 1;
        }
    }

    /// Their records are part of a commit.
    pub fn end(&mut self) {
        (self.count, self.over) = (0, false);
    }
}

impl EarlyBlock {
    /// Its place among the `blocks` of the commit, which are in order.
    ///
    /// # Errors
    /// `EIO`: they lack it, or have not all of its bytes.
    pub fn place(&self, blocks: &[Block<'_>]) -> Result<usize> {
        let place = blocks.binary_search_by_key(&self.block, |block| block.number);
        place
            .ok()
            .filter(|&place| blocks[place].mask == u64::MAX)
            .ok_or_else(|| Error::with(libc::EIO, format!("block {} is not committed as it was stored", self.block)))
    }
}

/// Where a block is stored early.
#[derive(Clone, Copy)]
pub(crate) struct EarlyPlace {
    /// Of its record.
    pub(super) at: u64,
}

impl EarlyPlace {
    /// Where its bytes lie in the journal.
    pub fn bytes(self) -> u64 {
        self.at + BEFORE
    }
}
