//! Places in the log for blocks stored early (`early`).

use super::super::area::Area;
use super::TieredLog;
use super::early::EarlyPlace;
use crate::error::Result;
use crate::index::BLOCK;
use std::sync::Arc;

impl TieredLog {
    /// A place for a whole block of the open epoch, which the caller stores there by [`Area::store_early`] before
    /// anything else is done with the log, or by another thread inside the gate. `None`: there are `most` already, or there
    /// is no room: the commit stores it.
    pub fn place_early(&mut self, block: u64, most: usize) -> Option<EarlyPlace> {
        let (index, next) = self.current.filter(|_| !self.suspect)?;
        self.early.add(block, most, next, self.segments[index].place.end())
    }

    /// Whether this block of the open epoch is stored early.
    pub fn is_early(&self, block: u64) -> bool {
        self.early.has(block)
    }

    /// The blocks of the open epoch that are stored early.
    pub fn early(&self) -> impl Iterator<Item = u64> {
        self.early.numbers()
    }

    /// This block, if it is stored early, is written again: the commit stores its bytes.
    pub fn overwrite_early(&mut self, block: u64) {
        self.early.overwrite(block);
    }

    /// This block, the last that was given a place, is not stored there.
    pub fn give_up_early(&mut self, block: u64) {
        self.early.give_up(block);
    }

    /// What was stored early does not count, and no more of the open epoch is. No block's bytes lie there.
    pub fn forget_early(&mut self) {
        self.early.forget();
    }

    /// Where blocks are stored early.
    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }
}

impl Area {
    /// Stores a block at its place, past the cache; a fence of this thread follows.
    ///
    /// # Errors
    /// As [`store`](Self::store), also if the source has a fault.
    ///
    /// # Safety
    /// `bytes` is a whole block, which nothing writes to meanwhile, or the caller's. The place is the open epoch's; no
    /// other thread stores there, and the log is not told to forget it meanwhile.
    pub unsafe fn store_early(&self, place: EarlyPlace, bytes: *const u8) -> Result<()> {
        let (medium, to) = (self.mapped().medium(), self.mapped().base().wrapping_add(place.bytes() as usize));
        self.store(|| {
            // SAFETY: within a segment, which is mapped, behind the last record: the caller's promise. So is that about
            // the source.
            unsafe { medium.copy_past(to, bytes, BLOCK) };
        })
    }
}
