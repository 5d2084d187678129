//! The contents of a block's cell. Version 0: the granules in the buffer (committed or not), and the epoch from which
//! on they are needed. Version 1: those of them that the open epoch wrote. The kind: where in the journal the block's
//! bytes lie, divided by `LINE`, if not in the buffer.

use super::Records;
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Cell, Version};
use crate::journal::records::Block;
use core::sync::atomic::{Ordering, compiler_fence};

/// The unit of places in a journal: enough for its most segments.
const LINE: u64 = 64;

const HELD: usize = 0;
const OPEN: usize = 1;

/// A cell as this engine reads it.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct State {
    /// The buffer, if there is one.
    pub buffer: Option<u32>,
    /// Where in the journal its bytes lie, if not there: see `in_journal`.
    pub in_journal: Option<u64>,
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
        let in_journal = match cell.kind.load(Ordering::Relaxed) {
            0 => None,
            line => Some(u64::from(line) * LINE),
        };
        Self {
            buffer,
            in_journal: in_journal.filter(|_| buffer.is_some()),
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
    /// The block's bytes lie at this byte of the journal; `None`: in its buffer. The caller has stored them there.
    #[inline]
    pub fn set_in_journal(cell: &Cell, at: Option<u64>) {
        compiler_fence(Ordering::Release);
        cell.kind.store(at.map_or(0, |at| (at / LINE) as u32), Ordering::Relaxed);
    }

    /// The granules in the buffer are needed from this epoch on.
    pub fn set_since(cell: &Cell, since: u64) {
        cell.set_version(HELD, Version { epoch: since, ..cell.version(HELD) });
    }
}

impl Records {
    /// A block of the epoch that is being committed; `whole`: with all granules that it holds. The gate is closed, so
    /// that the block does not change. `None`: a cut has removed it from the epoch.
    pub(super) fn open_block<'a>(
        &'a self,
        cx: Context<'a>,
        cell: &Cell,
        number: u64,
        whole: bool,
    ) -> Option<Block<'a>> {
        let state = State::of(cell, cx.shared().committed());
        let at = self.bytes(cx, state.buffer?, &state).ok()?;
        // SAFETY: a buffer in the arena, or a block of the journal, which are mapped as long as the context and the log
        // live; no thread writes to it while the gate is closed. Only guarded copies read it.
        let data = unsafe { &*at.cast::<[u8; BLOCK]>() };
        let mask = if whole { state.held } else { state.open };
        (mask != 0).then_some(Block { number, mask, data })
    }
}
