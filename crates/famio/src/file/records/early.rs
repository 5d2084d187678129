//! Blocks that their write stores in a tiered journal, so that the commit need not: see
//! [`TieredLog::place_early`](crate::journal::tiered::TieredLog::place_early).

use super::Records;
use super::epochs::EpochLog;
use crate::file::engine::context::Context;
use crate::index::BLOCK;
use crate::journal::tiered::{EarlyPlace, MOST_EARLY};
use crate::pmem::copy_past;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;

/// With more buffers, these do not stay in the processor's cache, nor does the journal: both are stored past it. Otherwise
/// the buffers of an epoch's further blocks would wait for what went past it, and only the first block is stored early.
/// Measured with 1 MiB of L2, emulated, write and SYNC: over 64 MiB 1.19 µs instead of 1.38 of 4 KiB, 9.3 instead of 11.7
/// of 64 KiB; over 1 MiB as long; with all blocks early, 64 KiB took 9.9 there instead of 8.0.
const CACHED: u64 = 1024;
/// Epochs that store nothing early, after one that has written over what it had stored early.
const PAUSE: u32 = 16;

/// See `CACHED`.
pub(super) fn is_past_cache(cx: Context<'_>) -> bool {
    cx.shared().used.load(Ordering::Relaxed) > CACHED
}

impl Records {
    /// Where a write is stored early: if it is of the whole block and all of that is new, the first of the epoch, by a
    /// thread in exclusive mode, which is alone inside and fences at its SYNC. What is written over does not count any
    /// more.
    #[inline]
    pub(super) fn place_early(&self, cx: Context<'_>, block: u64, whole: bool) -> Option<EarlyPlace> {
        let goes_early = whole && cx.exclusive && self.area.is_some() && self.early_pause.load(Ordering::Relaxed) == 0;
        let has_early = self.has_early.load(Ordering::Relaxed);
        if !goes_early && !has_early {
            return None;
        }
        let EpochLog::Memory(log) = &mut *self.log.lock(cx) else { return None };
        if has_early && log.is_early(block) {
            if holds(Rule::EarlyIsForgottenByWrites) {
                log.forget_early();
                self.has_early.store(false, Ordering::Relaxed);
            }
            self.early_pause.store(PAUSE, Ordering::Relaxed);
            return None;
        }
        if !goes_early {
            return None;
        }
        let most = if is_past_cache(cx) { MOST_EARLY } else { 1 };
        let place = log.place_early(block, most)?;
        self.has_early.store(true, Ordering::Relaxed);
        Some(place)
    }

    /// Stores a block at its place in the journal, and in its buffer.
    ///
    /// # Safety
    /// `to` is a buffer, `bytes` a whole block that nothing writes to meanwhile. Nothing was done with the log since the
    /// place was found.
    pub(super) unsafe fn store_early(&self, cx: Context<'_>, place: EarlyPlace, to: *mut u8, bytes: *const u8) {
        let Some(area) = &self.area else { return };
        let past = is_past_cache(cx);
        // SAFETY: the caller's promise. In exclusive mode no other thread stores, and only those that are inside make
        // the log forget places. What goes past the cache is seen in order by this thread alone: the end of exclusive
        // mode is a fence.
        let stored = unsafe {
            if past {
                copy_past(to, bytes, BLOCK);
            } else {
                to.copy_from_nonoverlapping(bytes, BLOCK); // first: stores behind those past the cache would wait
            }
            area.store_early(place, bytes, past)
        };
        if stored.is_err() {
            self.forget_early(cx); // the commit meets the fault itself
        }
    }

    /// What is stored early does not count any more.
    pub(super) fn forget_early(&self, cx: Context<'_>) {
        if self.has_early.load(Ordering::Relaxed)
            && let EpochLog::Memory(log) = &mut *self.log.lock(cx)
        {
            log.forget_early();
            self.has_early.store(false, Ordering::Relaxed);
        }
    }

    /// An epoch was committed: the log has used what was stored early, or forgotten it.
    pub(super) fn end_early(&self) {
        if self.has_early.load(Ordering::Relaxed) {
            self.has_early.store(false, Ordering::Relaxed);
        }
        let pause = self.early_pause.load(Ordering::Relaxed);
        if pause != 0 {
            self.early_pause.store(pause - 1, Ordering::Relaxed);
        }
    }
}
