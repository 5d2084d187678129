//! Room for writes that must not fail later: in the file, in the journal, and buffers in the arena.

use super::state::State;
use super::{Records, buffers};
use crate::error::Result;
use crate::file::base::bits::touched;
use crate::file::engine::context::{Context, Needs};
use crate::index::{BLOCK, Cell};
use core::sync::atomic::Ordering;

impl Records {
    /// See [`Engine::prepare_block`](crate::file::engine::context::Engine::prepare_block).
    pub(super) fn prepare_one(
        &self,
        cx: Context<'_>,
        cell: &Cell,
        block: u64,
        start: usize,
        end: usize,
        needs: &mut Needs,
    ) -> Result<()> {
        let _locked = cx.lock(cell)?;
        cx.home.reserve(cx.fds, block * BLOCK as u64, block * BLOCK as u64 + end as u64)?;
        let state = State::of(cell, cx.shared().committed());
        needs.blocks += u64::from(state.open == 0);
        needs.granules += u64::from((touched(start, end) & !state.open).count_ones());
        needs.buffers += usize::from(state.buffer.is_none());
        Ok(())
    }

    /// See [`Engine::prepare_rest`](crate::file::engine::context::Engine::prepare_rest). Writes that find their journal
    /// reserved take no more.
    pub(super) fn prepare_together(&self, cx: Context<'_>, needs: &Needs) -> Result<()> {
        let blocks = self.blocks.load(Ordering::Relaxed) + needs.blocks;
        let granules = self.granules.load(Ordering::Relaxed) + needs.granules;
        self.reserve_for(cx, self.cost(blocks, granules))?;
        // They go to the free list, from which no other thread takes any before the writes do.
        let mut taken = Vec::new();
        let mut result = taken.try_reserve_exact(needs.buffers).map_err(|_| crate::Error::new(libc::ENOMEM));
        while result.is_ok() && taken.len() < needs.buffers {
            result = buffers::take(cx).map(|number| taken.push(number));
        }
        taken.into_iter().for_each(|number| buffers::give_back(cx, number));
        result
    }
}
