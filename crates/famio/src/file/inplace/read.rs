//! Reading part of one block.

use super::state::State;
use super::{InPlace, inconsistent};
use crate::error::Result;
use crate::file::bits::touched;
use crate::file::context::{Context, Part};
use crate::index::Cell;
use core::sync::atomic::Ordering;

impl InPlace {
    /// See [`Engine::copy_block`](crate::file::context::Engine::copy_block).
    ///
    /// # Safety
    /// The destination is the caller's buffer; it may be bad.
    pub(super) unsafe fn copy_from_homes(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        let shared = cx.shared();
        let physical = shared.physical.load(Ordering::Acquire);
        let aside = match State::of(cell, shared.committed()) {
            Some(state) if state.in_log() & touched(part.start, part.start + part.len) != 0 => {
                if state.entry >= self.log.entries() {
                    return Err(inconsistent("a cell names an entry that is not there"));
                }
                Some((state.in_log(), self.log.block(state.entry)))
            }
            _ => None,
        };
        // SAFETY: the caller's promise; a log block is a whole block.
        unsafe { cx.copy_merged(part, aside, physical) }
    }
}
