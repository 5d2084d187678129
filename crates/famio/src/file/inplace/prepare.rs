//! Reserves everything for a write that must not fail later: the block's entry, and room in the file.

use super::InPlace;
use super::state::State;
use crate::error::Result;
use crate::file::base::bits::{above, touched};
use crate::file::engine::context::Context;
use crate::file::engine::policy::Policy;
use crate::index::{BLOCK, Cell};
use crate::journal::inplace::Kind;
use core::sync::atomic::Ordering;

impl InPlace {
    /// See [`Engine::is_prepared`](crate::file::engine::context::Engine::is_prepared).
    #[inline]
    pub(super) fn has_all_for_block(&self, cx: &Context<'_>, block: u64) -> bool {
        let shared = cx.shared();
        let is_map = Policy::from_number(shared.policy.load(Ordering::Relaxed)).kind() == Kind::Map;
        if !is_map || !cx.home.has_room(shared, (block + 1) * BLOCK as u64) || !cx.index().has_entry(block) {
            return false;
        }
        cx.arena.prefetch_cell(block, !cx.exclusive);
        true
    }

    /// See [`Engine::prepare_block`](crate::file::engine::context::Engine::prepare_block). It decides as a write would.
    #[inline]
    pub(super) fn prepare(&self, cx: &Context<'_>, cell: &Cell, block: u64, start: usize, end: usize) -> Result<()> {
        let shared = cx.shared();
        let bits = touched(start, end);
        let fresh = above(block, shared.committed_size.load(Ordering::Relaxed));
        let kind = Policy::from_number(shared.policy.load(Ordering::Relaxed)).kind();
        let _locked = cx.lock(cell)?;
        let mut state = State::of(cell, shared.committed());
        if let Some(s) = state
            && s.kind != kind
            && s.open.is_none()
            && bits & !fresh != 0
        {
            self.checkpoint_block(cx, cell, block, s)?;
            state = None;
        }
        if state.is_none() && bits & !fresh != 0 {
            self.give_free_entry(cx, cell, block, kind)?;
        }
        cx.room_for(block, end)
    }
}
