//! Blocks that their write stores in a tiered journal, so that the commit need not: see
//! [`TieredLog::place_early`](crate::journal::tiered::TieredLog::place_early).

use super::Records;
use super::epochs::EpochLog;
use crate::file::engine::context::Context;
use crate::journal::tiered::{EarlyPlace, MOST_EARLY};
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
    /// Where a write is stored early: if it is of the whole block and all of that is new, by a thread in exclusive mode,
    /// which is alone inside and fences at its SYNC; once in an epoch.
    #[inline]
    pub(super) fn place_early(&self, cx: Context<'_>, block: u64, whole: bool) -> Option<EarlyPlace> {
        if !whole || !cx.exclusive || self.area.is_none() || self.early_pause.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let EpochLog::Memory(log) = &mut *self.log.lock(cx) else { return None };
        if self.has_early.load(Ordering::Relaxed) && log.is_early(block) {
            self.early_pause.store(PAUSE, Ordering::Relaxed);
            return None;
        }
        let most = if is_past_cache(cx) { MOST_EARLY } else { 1 };
        let place = log.place_early(block, most)?;
        self.has_early.store(true, Ordering::Relaxed);
        Some(place)
    }

    /// Stores a block at its place in the journal. Returns where its bytes lie there; `None`: the journal has a fault,
    /// or the source.
    ///
    /// # Safety
    /// `bytes` is a whole block that nothing writes to meanwhile, or the caller's. Nothing was done with the log since the
    /// place was found.
    pub(super) unsafe fn store_early(
        &self,
        cx: Context<'_>,
        block: u64,
        place: EarlyPlace,
        bytes: *const u8,
    ) -> Option<u64> {
        let area = self.area.as_ref()?;
        // SAFETY: the caller's promise. In exclusive mode no other thread stores, and only those that are inside make
        // the log forget places. What goes past the cache is seen in order by this thread alone: the end of exclusive
        // mode is a fence.
        let stored = unsafe { area.store_early(place, bytes) };
        if stored.is_err()
            && let EpochLog::Memory(log) = &mut *self.log.lock(cx)
        {
            log.give_up_early(block);
        }
        stored.is_ok().then(|| place.bytes())
    }

    /// A block that lay in the journal was written again: if it is stored early, that does not count.
    #[inline]
    pub(super) fn overwrite_early(&self, cx: Context<'_>, block: u64) {
        if self.has_early.load(Ordering::Relaxed)
            && let EpochLog::Memory(log) = &mut *self.log.lock(cx)
            && log.is_early(block)
        {
            if holds(Rule::EarlyIsOverwritten) {
                log.overwrite_early(block);
            }
            self.early_pause.store(PAUSE, Ordering::Relaxed);
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
