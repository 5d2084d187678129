//! Lines that were stored but not yet written back. A flush with its fence costs more than a small write itself, so a
//! thread's last block stays dirty until the thread turns to another, or until SYNC writes it back. A large write to a block
//! that the thread comes to from another is flushed at once: the word then says that nothing is left.
//!
//! Invariant: a block with unflushed lines is named by one of the `pending` words, or is held by a thread inside the gate
//! that will flush it before it leaves.

use super::InPlace;
use super::state::State;
use crate::error::{Error, Result};
use crate::file::base::bits::{GRANULE, runs};
use crate::file::engine::context::Context;
use crate::index::alone::stripe;
use crate::index::{BLOCK, Cell, PENDING};
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

/// A thread that has the file alone turns from a block that is clean to another.
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
        let block = core::ptr::from_ref(crate::thread::current()) as u64;
        &cx.shared().pending[stripe(block) % PENDING]
    }

    /// Whether the thread's last write was to `block`, too.
    #[inline]
    pub(super) fn is_at(&self, cx: &Context<'_>, block: u64) -> bool {
        self.pending(cx).load(Ordering::Relaxed) & !CLEAN == block + 1
    }

    /// The thread turns to `block` from another: what it left dirty of that one, to be flushed. No lock is held.
    #[inline]
    pub(super) fn turn_to(&self, cx: &Context<'_>, block: u64) -> Result<Option<Dirty>> {
        let pending = self.pending(cx);
        let before = if cx.solo {
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

    /// The same, for a thread that has the file alone and left nothing dirty. `None`: it did, or was at `block` last.
    #[inline]
    pub(super) fn turn_from_clean<'a>(&self, cx: &Context<'a>, block: u64) -> Option<Turn<'a>> {
        let pending = self.pending(cx);
        let before = pending.load(Ordering::Relaxed);
        let clean = before == 0 || before & CLEAN != 0 && before & !CLEAN != block + 1;
        clean.then_some(Turn { pending, block })
    }

    fn take_over(&self, cx: &Context<'_>, block: u64) -> Result<Option<Dirty>> {
        let Some(cell) = cx.index().lookup(block) else { return Ok(None) };
        // Nothing names the block's dirty lines any more: if they can't be had, no SYNC may count on them.
        let _locked = cx.lock(cell).inspect_err(|_| cx.shared().poisoned.store(1, Ordering::Release))?;
        self.take_dirty(cx, cell, block).map(Some)
    }

    /// Takes over what is dirty of a block: its granules, where they live, and its entry. The lock is held.
    #[inline]
    fn take_dirty(&self, cx: &Context<'_>, cell: &Cell, block: u64) -> Result<Dirty> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        cell.unflushed.store(0, Ordering::Relaxed);
        let state = State::of(cell, cx.shared().committed());
        let in_log = state.map_or(0, |s| s.in_log());
        Ok(Dirty {
            entry: state.map(|s| s.entry),
            in_log: unflushed & in_log,
            in_file: unflushed & !in_log,
            home: cx.home.ptr(block * BLOCK as u64, BLOCK)?,
        })
    }

    /// Starts the write-back of what was taken over. No lock of that block is needed: it has stores of the open epoch, so
    /// that its homes stay what they are until the gate is closed, and that waits for this thread.
    /// A file that somebody else has cut takes stored bytes with it: no more writes then, and `EIO`.
    #[inline]
    pub(super) fn flush_dirty(&self, cx: &Context<'_>, dirty: &Dirty) -> Result<()> {
        let flush = |bits: u64, at: *mut u8| {
            runs(bits, |first, count| {
                let (medium, at) = (self.medium, at.wrapping_add(first * GRANULE));
                // SAFETY: lines of a mapped block that were just stored to; a fault is the guard's. The closure owns nothing.
                unsafe { guard::run(|| medium.flush(at, count * GRANULE)) }.map_err(|_| {
                    cx.shared().poisoned.store(1, Ordering::Release);
                    Error::with(libc::EIO, "another program cut the file while it was written")
                })
            })
        };
        if let Some(entry) = dirty.entry {
            flush(dirty.in_log, self.log.block(entry))?;
            self.on_journal(cx, || self.log.entry(entry).flush())?;
        }
        flush(dirty.in_file, dirty.home)
    }

    /// A write to `block` stored `granules` by ordinary stores, or changed its entry: they stay dirty, if the thread's
    /// pending word still names the block. Whether a fence is owed. The lock is held.
    #[inline]
    pub(super) fn leave_dirty(&self, cx: &Context<'_>, cell: &Cell, block: u64, granules: u64) -> Result<bool> {
        let unflushed = cell.unflushed.load(Ordering::Relaxed);
        cell.unflushed.store(unflushed | granules, Ordering::Relaxed);
        let pending = self.pending(cx);
        let word = pending.load(Ordering::Acquire);
        let named = word == block + 1 || word == ((block + 1) | CLEAN) && change(cx, pending, word, block + 1);
        if named {
            // Whoever replaces the word from here on waits for the lock, and flushes.
            return Ok(false);
        }
        let dirty = self.take_dirty(cx, cell, block)?;
        self.flush_dirty(cx, &dirty)?;
        Ok(true)
    }

    /// A write to `block` has flushed all that it stored, and its entry. The lock is held.
    #[inline]
    pub(super) fn leave_clean(&self, cx: &Context<'_>, cell: &Cell, block: u64) {
        // Else another thread that shares the word has left something, and the word is to stay as it is.
        if cell.unflushed.load(Ordering::Relaxed) == 0 {
            change(cx, self.pending(cx), block + 1, (block + 1) | CLEAN);
        }
    }

    /// SYNC: everything still dirty is written back; the caller fences. The gate is closed.
    pub(super) fn flush_pending(&self, cx: &Context<'_>) -> Result<()> {
        for pending in &cx.shared().pending {
            if pending.load(Ordering::Acquire) != 0 {
                let word = pending.swap(0, Ordering::AcqRel);
                if word != 0
                    && word & CLEAN == 0
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
    if cx.solo {
        let is = pending.load(Ordering::Relaxed) == from;
        if is {
            pending.store(to, Ordering::Relaxed);
        }
        return is;
    }
    pending.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}
