//! Lines that were stored but not yet written back. A flush with its fence costs more than a small write itself, so a
//! thread's last block stays dirty until the thread turns to another, or until SYNC writes it back.
//!
//! Invariant: a block with unflushed lines is named by one of the `pending` words, or is held by a thread inside the gate
//! that will flush it before it leaves.

use super::state::State;
use super::{GRANULE, InPlace, runs};
use crate::error::Result;
use crate::file::context::Context;
use crate::index::{BLOCK, Cell, PENDING};
use core::sync::atomic::{AtomicU64, Ordering};

impl InPlace {
    /// The pending word of this thread; threads may share one.
    #[inline]
    fn pending<'a>(&self, cx: Context<'a>) -> &'a AtomicU64 {
        let block = core::ptr::from_ref(crate::thread::current()) as usize;
        // Blocks of thread state lie a stack apart: the bits above a page tell threads apart.
        let stripe = (block >> 6) ^ (block >> 12) ^ (block >> 23);
        &cx.shared().pending[stripe % PENDING]
    }

    /// The thread turns to `block`: the one before is written back. Whether a fence is owed for that. No lock is held.
    #[inline]
    pub(super) fn turn_to(&self, cx: Context<'_>, block: u64) -> Result<bool> {
        let pending = self.pending(cx);
        if pending.load(Ordering::Relaxed) == block + 1 {
            return Ok(false);
        }
        match pending.swap(block + 1, Ordering::AcqRel) {
            0 => Ok(false),
            before => self.write_back(cx, before - 1),
        }
    }

    fn write_back(&self, cx: Context<'_>, block: u64) -> Result<bool> {
        let Some(cell) = cx.index().lookup(block) else { return Ok(false) };
        let _locked = cell.lock.lock(cx.me)?;
        self.flush_block(cx, cell, block)?;
        Ok(true)
    }

    /// Starts the write-back of what is dirty of a block: its granules, where they live, and its entry. The lock is held.
    fn flush_block(&self, cx: Context<'_>, cell: &Cell, block: u64) -> Result<()> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        let state = State::of(cell, cx.shared().committed());
        if unflushed != 0 {
            let in_log = state.map_or(0, |s| s.in_log());
            let home = cx.home.ptr(block * BLOCK as u64, BLOCK)?;
            let flush = |bits: u64, at: *mut u8| {
                runs(bits, |first, count| {
                    // SAFETY: lines of a mapped block that were just stored to.
                    unsafe { self.medium.flush(at.wrapping_add(first * GRANULE), count * GRANULE) };
                    Ok(())
                })
            };
            if let Some(s) = state {
                flush(unflushed & in_log, self.log.block(s.entry))?;
            }
            flush(unflushed & !in_log, home)?;
            cell.unflushed.store(0, Ordering::Relaxed);
        }
        if let Some(s) = state {
            self.log.entry(s.entry).flush();
        }
        Ok(())
    }

    /// A write to `block` stored `granules` by ordinary stores, or changed its entry: they stay dirty, if the thread's
    /// pending word still names the block. Whether a fence is owed. The lock is held.
    #[inline]
    pub(super) fn leave_dirty(&self, cx: Context<'_>, cell: &Cell, block: u64, granules: u64) -> Result<bool> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        cell.unflushed.store(unflushed | granules, Ordering::Relaxed);
        if self.pending(cx).load(Ordering::Acquire) == block + 1 {
            // Whoever replaces the word from here on waits for the lock, and flushes.
            return Ok(false);
        }
        self.flush_block(cx, cell, block)?;
        Ok(true)
    }

    /// SYNC: everything still dirty is written back; the caller fences. The gate is closed.
    pub(super) fn flush_pending(&self, cx: Context<'_>) -> Result<()> {
        for pending in &cx.shared().pending {
            if pending.load(Ordering::Acquire) != 0 {
                match pending.swap(0, Ordering::AcqRel) {
                    0 => {}
                    block => {
                        self.write_back(cx, block - 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}
