//! Reads part of one block.

use super::state::State;
use super::{InPlace, inconsistent};
use crate::error::Result;
use crate::file::base::bits::touched;
use crate::file::engine::context::{Context, Part};
use crate::index::Cell;
use core::sync::atomic::Ordering;

impl InPlace {
    /// See [`Engine::copy_block`](crate::file::engine::context::Engine::copy_block).
    ///
    /// # Safety
    /// The destination is the caller's buffer, which may be bad.
    pub(super) unsafe fn copy_from_homes(&self, cx: &Context<'_>, cell: &Cell, part: Part) -> Result<()> {
        let block = |entry| {
            if entry >= self.log.entries() {
                return Err(inconsistent("a cell names an entry that is not there"));
            }
            Ok(self.log.block(entry))
        };
        // SAFETY: the caller's promise.
        unsafe { copy_block(cx, cell, part, block) }
    }
}

/// Bytes of the file that are valid in the file itself.
#[inline]
pub(in crate::file) fn readable(cx: &Context<'_>) -> u64 {
    cx.shared().physical.load(Ordering::Acquire)
}

/// As [`Engine::copy_block`](crate::file::engine::context::Engine::copy_block); `log_block` returns the address of an
/// entry's log block.
///
/// # Safety
/// The destination is the caller's buffer, which may be bad. `log_block` returns a block of our mapping.
#[inline]
pub(in crate::file) unsafe fn copy_block(
    cx: &Context<'_>,
    cell: &Cell,
    part: Part,
    log_block: impl FnOnce(u32) -> Result<*mut u8>,
) -> Result<()> {
    let readable = readable(cx);
    let aside = match State::of(cell, cx.shared().committed()) {
        Some(state) if state.in_log() & touched(part.start, part.start + part.len) != 0 => {
            Some((state.in_log(), log_block(state.entry)?))
        }
        _ => None,
    };
    // SAFETY: the caller's promise; a log block is a whole block.
    unsafe { cx.copy_merged(part, aside, readable) }
}
