//! Reading part of one block.

use super::state::State;
use super::{InPlace, inconsistent};
use crate::error::Result;
use crate::file::bits::{GRANULE, runs, touched};
use crate::file::context::Context;
use crate::file::home::copy_out;
use crate::index::{BLOCK, Cell};
use core::sync::atomic::Ordering;

impl InPlace {
    /// See [`Engine::copy_block`](crate::file::context::Engine::copy_block).
    ///
    /// # Safety
    /// `dst` is the caller's buffer; it may be bad.
    pub(super) unsafe fn copy_from_homes(
        &self,
        cx: Context<'_>,
        cell: &Cell,
        block: u64,
        start: usize,
        dst: *mut u8,
        len: usize,
    ) -> Result<()> {
        let shared = cx.shared();
        let physical = shared.physical.load(Ordering::Acquire);
        let offset = block * BLOCK as u64 + start as u64;
        let wanted = touched(start, start + len);
        let state = State::of(cell, shared.committed());
        let in_log = state.map_or(0, |s| s.in_log()) & wanted;
        if in_log == 0 {
            // SAFETY: the caller's promise.
            return unsafe { cx.read_home(offset, dst, len, physical) };
        }
        let entry = state.map_or(0, |s| s.entry);
        if entry >= self.log.entries() {
            return Err(inconsistent("a cell names an entry that is not there"));
        }
        let log = self.log.block(entry);
        let end = start + len;
        let piece = |first: usize, count: usize| {
            let from = (first * GRANULE).max(start);
            let to = ((first + count) * GRANULE).min(end);
            (from, to, dst.wrapping_add(from - start))
        };
        runs(in_log, |first, count| {
            let (from, to, at) = piece(first, count);
            // SAFETY: the source is our log block; `at` is in the caller's buffer.
            unsafe { copy_out(at, log.wrapping_add(from), to - from) }
        })?;
        runs(wanted & !in_log, |first, count| {
            let (from, to, at) = piece(first, count);
            // SAFETY: `at` is in the caller's buffer.
            unsafe { cx.read_home(block * BLOCK as u64 + from as u64, at, to - from, physical) }
        })
    }
}
