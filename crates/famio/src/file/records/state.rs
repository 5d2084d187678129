//! What a block's cell says: version 0, which granules the buffer holds (committed or not), and since when; and version 1, which of
//! them the open epoch wrote.

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
    /// Those that the open epoch wrote.
    pub open: u64,
    /// No epoch before this one is needed for them.
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
    /// What is held is needed from this epoch on.
    pub fn set_since(cell: &Cell, since: u64) {
        cell.set_version(HELD, Version { epoch: since, ..cell.version(HELD) });
    }
}

/// A block of the epoch that is being committed, `whole`: with all that is held of it; the gate is closed, so that it does not change as long as that is. `None`: a cut took
/// it out of the epoch again.
pub(super) fn open_block<'a>(cx: Context<'a>, cell: &Cell, number: u64, whole: bool) -> Option<Block<'a>> {
    let state = State::of(cell, cx.shared().committed());
    let at = buffers::address(cx, state.buffer?).ok()?;
    // SAFETY: a buffer in the arena, which is mapped as long as the context lives; nobody writes to it while the gate is closed.
    let data = unsafe { &*at.cast::<[u8; BLOCK]>() };
    let mask = if whole { state.held } else { state.open };
    (mask != 0).then_some(Block { number, mask, data })
}
