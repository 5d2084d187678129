//! The contents of a block's cell. Version 0: the granules in the buffer (committed or not), and the epoch from which
//! on they are needed. Version 1: those of them that the open epoch wrote.

use super::buffers;
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Cell, Version};
use crate::journal::records::Block;
use core::sync::atomic::Ordering;

const HELD: usize = 0;
const OPEN: usize = 1;

/// A cell as this engine reads it.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct State {
    /// The buffer, if there is one.
    pub buffer: Option<u32>,
    /// Granules that live in it.
    pub held: u64,
    /// Those written by the open epoch.
    pub open: u64,
    /// Epochs before this one are not needed for them.
    pub since: u64,
}

impl State {
    #[inline]
    pub fn of(cell: &Cell, committed: u64) -> Self {
        let buffer = cell.entry.load(Ordering::Relaxed).checked_sub(1);
        let (held, open) = (cell.version(HELD), cell.version(OPEN));
        Self {
            buffer,
            held: if buffer.is_some() { held.granules } else { 0 },
            since: held.epoch,
            open: if open.epoch == committed + 1 { open.granules } else { 0 },
        }
    }

    pub fn set(cell: &Cell, since: u64, (held, open): (u64, u64), committed: u64) {
        cell.set_version(HELD, Version { epoch: since.max(1), granules: held });
        cell.set_version(OPEN, Version { epoch: committed + 1, granules: open });
    }
}

impl State {
    /// The granules in the buffer are needed from this epoch on.
    pub fn set_since(cell: &Cell, since: u64) {
        cell.set_version(HELD, Version { epoch: since, ..cell.version(HELD) });
    }
}

/// A block of the epoch that is being committed; `whole`: with all granules in its buffer. The gate is closed, so
/// that the block does not change. `None`: a cut has removed it from the epoch.
pub(super) fn open_block<'a>(cx: Context<'a>, cell: &Cell, number: u64, whole: bool) -> Option<Block<'a>> {
    let state = State::of(cell, cx.shared().committed());
    let at = buffers::address(cx, state.buffer?).ok()?;
    // SAFETY: a buffer in the arena, which is mapped as long as the context lives; no thread writes to it while the
    // gate is closed.
    let data = unsafe { &*at.cast::<[u8; BLOCK]>() };
    let mask = if whole { state.held } else { state.open };
    (mask != 0).then_some(Block { number, mask, data })
}
