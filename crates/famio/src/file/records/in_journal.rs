//! Blocks whose bytes lie in a tiered journal instead of their buffers, because their last write was of the whole block
//! and stored it early: see [`early`](super::early). A second copy would take as long as the first.
//!
//! Invariant: such a block has a buffer, whose bytes mean nothing; all of its granules are held; and the journal needs
//! the record, since it is of the epoch from which on the block is needed (`State::since`): the open one, or one that
//! was not released yet. Whoever writes a part of the block, or releases its epoch without writing it to the file,
//! moves it to its buffer before.

use super::epochs::EpochLog;
use super::state::State;
use super::{Records, buffers};
use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::file::engine::home::copy_out;
use crate::index::{BLOCK, Cell};
use core::sync::atomic::Ordering;

impl Records {
    /// The address of the bytes of a block at byte `at` of the journal, for guarded copies.
    ///
    /// # Errors
    /// `EIO`: the journal has no such place.
    #[inline]
    pub(super) fn block_in_journal(&self, at: u64) -> Result<*mut u8> {
        self.area.as_ref().and_then(|area| area.block(at)).ok_or_else(no_such_place)
    }

    /// The address of the bytes that a block holds; for guarded copies, if they lie in the journal.
    pub(super) fn bytes(&self, cx: Context<'_>, buffer: u32, state: &State) -> Result<*mut u8> {
        match state.in_journal {
            Some(at) => self.block_in_journal(at),
            None => buffers::address(cx, buffer),
        }
    }

    /// Copies a block from byte `at` of the journal to its buffer. The cell still names the journal.
    pub(super) fn copy_from_journal(&self, cx: Context<'_>, buffer: u32, at: u64) -> Result<()> {
        let from = self.block_in_journal(at)?;
        // SAFETY: the journal's mapping, and our buffer, which no reader reads.
        unsafe { copy_out(buffers::address(cx, buffer)?, from, BLOCK) }
            .map_err(|e| e.context("the journal was truncated by an outsider, or its medium is bad"))
    }

    /// If the block's bytes lie in the journal, they lie in its buffer from now on. The caller has the block's lock, or
    /// no other thread is inside.
    pub(super) fn move_to_buffer(&self, cx: Context<'_>, cell: &Cell) -> Result<()> {
        let state = State::of(cell, cx.shared().committed());
        if let (Some(buffer), Some(at)) = (state.buffer, state.in_journal) {
            self.copy_from_journal(cx, buffer, at)?;
            let _changing = cell.changing();
            State::set_in_journal(cell, None);
        }
        Ok(())
    }

    /// What the open epoch has stored early does not count any more, and all of it lies in buffers: the room behind the
    /// last record is free. The caller is inside the gate, or it is closed, and has the lock of no block.
    pub(super) fn settle_early(&self, cx: Context<'_>) -> Result<()> {
        if !self.has_early.load(Ordering::Relaxed) {
            return Ok(());
        }
        let early: Vec<u64> = match &*self.log.lock(cx) {
            EpochLog::Memory(log) => log.early().collect(),
            EpochLog::Pages(_) => return Ok(()),
        };
        for cell in early.into_iter().filter_map(|block| cx.index().lookup(block)) {
            let _locked = cx.lock(cell)?;
            self.move_to_buffer(cx, cell)?;
        }
        // Nothing was added meanwhile: for that, a thread would have had to get exclusive mode, or is this one.
        self.log.lock(cx).forget_early();
        self.has_early.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Moves all blocks to their buffers that lie in the journal with an epoch up to `epoch`. As
    /// [`settle_early`](Self::settle_early).
    pub(super) fn move_all_to_buffers(&self, cx: Context<'_>, epoch: u64) -> Result<()> {
        if self.area.is_none() {
            return Ok(());
        }
        cx.index().for_each(0, u64::MAX, |_, cell| {
            let _locked = cx.lock(cell)?;
            let state = State::of(cell, cx.shared().committed());
            if state.in_journal.is_some() && state.since <= epoch { self.move_to_buffer(cx, cell) } else { Ok(()) }
        })
    }
}

#[cold]
pub(super) fn no_such_place() -> Error {
    Error::with(libc::EIO, "the shared index is damaged: the journal has no such place")
}

#[cfg(test)]
mod tests;
