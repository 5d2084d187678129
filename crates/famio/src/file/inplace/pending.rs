//! Lines that were stored but not written back yet. A flush with its fence costs more than a small write, so a
//! thread's last block stays dirty until the thread turns to another block, or a SYNC writes it back. A large write
//! to a block to which the thread has just turned is flushed at once.
//!
//! Invariant: a block with unflushed lines is named by one of the `pending` words, or belongs to a thread inside the
//! gate that will flush it before it leaves.

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, runs};
use crate::file::engine::context::Context;
use crate::index::{BLOCK, Cell, OwnLine, PENDING};
use crate::map::guard;
use core::sync::atomic::{AtomicU64, Ordering};

/// Dirty lines of one block, taken over to be flushed.
#[derive(Clone, Copy)]
pub(super) struct Dirty {
    entry: Option<u32>,
    in_log: u64,
    in_file: u64,
    home: *mut u8,
}

/// In a pending word: nothing of the block is dirty.
const CLEAN: u64 = 1 << 63;

/// A thread in exclusive mode turns from a clean block to another one.
pub(super) struct Turn<'a> {
    pending: &'a AtomicU64,
    block: u64,
}

impl Turn<'_> {
    /// The other block is flushed, too.
    #[inline]
    pub fn leave_clean(&self) {
        self.pending.store((self.block + 1) | CLEAN, Ordering::Relaxed);
    }
}

impl InPlace {
    /// The pending word of this thread; threads may share one.
    #[inline]
    fn pending<'a>(&self, cx: &Context<'a>) -> &'a AtomicU64 {
        &cx.shared().pending[crate::thread::current().group() % PENDING].0
    }

    /// Whether the thread's last write was to `block`, too.
    #[inline]
    pub(super) fn is_at(&self, cx: &Context<'_>, block: u64) -> bool {
        self.pending(cx).load(Ordering::Relaxed) & !CLEAN == block + 1
    }

    /// The thread turns from another block to `block`: returns the dirty lines of the other block, which the caller
    /// flushes. No lock is held.
    #[inline]
    pub(super) fn turn_to(&self, cx: &Context<'_>, block: u64) -> Result<Option<Dirty>> {
        let pending = self.pending(cx);
        let before = if cx.exclusive {
            let before = pending.load(Ordering::Relaxed);
            pending.store(block + 1, Ordering::Relaxed);
            before
        } else {
            pending.swap(block + 1, Ordering::AcqRel)
        };
        match before {
            0 => Ok(None),
            before if before & CLEAN != 0 => Ok(None),
            before => self.take_over(cx, before - 1),
        }
    }

    /// As [`turn_to`](Self::turn_to), for a thread in exclusive mode that left nothing dirty. `None`: it did, or its
    /// last block was `block`.
    #[inline]
    pub(super) fn own_from_clean<'a>(&self, cx: &Context<'a>, block: u64) -> Option<Turn<'a>> {
        let pending = self.pending(cx);
        let before = pending.load(Ordering::Relaxed);
        let clean = before == 0 || before & CLEAN != 0 && before & !CLEAN != block + 1;
        clean.then_some(Turn { pending, block })
    }

    fn take_over(&self, cx: &Context<'_>, block: u64) -> Result<Option<Dirty>> {
        let Some(cell) = cx.index().lookup(block) else { return Ok(None) };
        // The block's dirty lines are not recorded any more: if they cannot be had, no SYNC may count on them.
        let _locked = cx.lock(cell).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))?;
        self.take_dirty(cx, cell, block).map(Some)
    }

    /// Takes over the dirty lines of a block: its granules, where they live, and its entry. The lock is held.
    #[inline]
    fn take_dirty(&self, cx: &Context<'_>, cell: &Cell, block: u64) -> Result<Dirty> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        cell.unflushed.store(0, Ordering::Relaxed);
        let state = State::of(cell, cx.shared().committed());
        let in_log = state.map_or(0, |s| s.in_log());
        let in_file = unflushed & !in_log;
        // After a write that failed, the file may have no room for the block.
        let home = if in_file == 0 { core::ptr::null_mut() } else { cx.home.ptr(block * BLOCK as u64, BLOCK)? };
        Ok(Dirty { entry: state.map(|s| s.entry), in_log: unflushed & in_log, in_file, home })
    }

    /// Starts the write-back of lines that were taken over. This needs no block lock: the block has stores of the
    /// open epoch, so its homes do not change until the gate is closed, which waits for this thread. If an outsider
    /// has cut the file, stored bytes are lost: no more writes, and `EIO`.
    #[inline]
    pub(super) fn flush_dirty(&self, cx: &Context<'_>, dirty: &Dirty) -> Result<()> {
        let flush = |bits: u64, at: *mut u8| {
            runs(bits, |first, count| {
                let (medium, at) = (self.medium, at.wrapping_add(first * GRANULE));
                // SAFETY: lines of a mapped block that were just stored to; a fault is the guard's. The closure owns
                // nothing.
                unsafe { guard::run(|| medium.flush(at, count * GRANULE)) }.map_err(|_| {
                    cx.shared().poisoned.store(1, Ordering::Release);
                    Error::with(libc::EIO, "another program truncated the file while it was written")
                })
            })
        };
        if let Some(entry) = dirty.entry {
            flush(dirty.in_log, self.log.block(entry))?;
            self.on_journal(cx, || self.log.entry(entry).flush())?;
        }
        flush(dirty.in_file, dirty.home)
    }

    /// A write to `block` stored `granules` by ordinary stores, or changed its entry: they stay dirty if the thread's
    /// pending word still names the block. Returns whether a fence is owed. The lock is held.
    #[inline]
    pub(super) fn leave_dirty(&self, cx: &Context<'_>, cell: &Cell, block: u64, granules: u64) -> Result<bool> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        cell.unflushed.store(unflushed | granules, Ordering::Relaxed);
        let pending = self.pending(cx);
        let word = pending.load(Ordering::Acquire);
        let named = word == block + 1 || word == ((block + 1) | CLEAN) && change(cx, pending, word, block + 1);
        if named {
            // A thread that replaces the word from here on waits for the lock, and flushes.
            return Ok(false);
        }
        let dirty = self.take_dirty(cx, cell, block)?;
        self.flush_dirty(cx, &dirty)?;
        Ok(true)
    }

    /// A write to `block` has flushed all its stores and the entry. The lock is held.
    #[inline]
    pub(super) fn leave_clean(&self, cx: &Context<'_>, cell: &Cell, block: u64) {
        // Otherwise another thread with the same word has left something dirty, and the word stays.
        if cell.unflushed.load(Ordering::Relaxed) == 0 {
            change(cx, self.pending(cx), block + 1, (block + 1) | CLEAN);
        }
    }

    /// For a SYNC: writes back everything that is still dirty; the caller fences. The gate is closed, or this thread is in
    /// exclusive mode: no other changes the words, and a locked instruction would wait for all that the epoch has stored.
    pub(super) fn flush_pending(&self, cx: &Context<'_>) -> Result<()> {
        for OwnLine(pending) in &cx.shared().pending {
            let word = pending.load(Ordering::Acquire);
            if word != 0 {
                pending.store(0, Ordering::Release);
                if word & CLEAN == 0
                    && let Some(dirty) = self.take_over(cx, word - 1)?
                {
                    self.flush_dirty(cx, &dirty)?;
                }
            }
        }
        Ok(())
    }
}

/// Changes a pending word from one value to another, if it has the first.
#[inline]
fn change(cx: &Context<'_>, pending: &AtomicU64, from: u64, to: u64) -> bool {
    if cx.exclusive {
        let is = pending.load(Ordering::Relaxed) == from;
        if is {
            pending.store(to, Ordering::Relaxed);
        }
        return is;
    }
    pending.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}
