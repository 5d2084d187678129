//! Which granules a write changes. Programs write whole pages of which little is new; unchanged granules need no
//! journal.

use super::Records;
use super::state::State;
use crate::error::Result;
use crate::file::base::bits::{GRANULE, touched};
use crate::file::engine::context::{BlockBuf, Context};
use crate::index::BLOCK;
use crate::pmem::prefetch;
use core::sync::atomic::Ordering;

/// Words that are compared first, by their offsets in the block: if all differ, the whole block counts as new.
const SAMPLE: [usize; 8] = [64, 584, 1104, 1624, 2144, 2664, 3184, 4024];

/// After this many whole blocks that were new all over, one in so many is compared.
const ALL_NEW: u32 = 16;

impl Records {
    /// Whether a write of a whole block is compared with what the block has. In a tiered journal, few of those of a
    /// program that writes blocks that are new all over: granules that did not change cost their bytes there, and no
    /// write to a disk.
    #[inline]
    fn compares(&self) -> bool {
        let in_a_row = self.new_in_a_row.load(Ordering::Relaxed);
        self.area.is_none() || in_a_row < ALL_NEW || in_a_row.is_multiple_of(ALL_NEW)
    }

    /// Whether whole blocks that a thread in exclusive mode writes are most likely stored early, uncompared.
    #[inline]
    pub(super) fn stores_uncompared(&self) -> bool {
        self.area.is_some() && !self.compares() && self.early_pause.load(Ordering::Relaxed) == 0
    }

    /// All granules of a block, which are taken for new.
    #[inline]
    pub(super) fn all_new(&self) -> u64 {
        self.found_new(true);
        u64::MAX
    }

    /// Another block was new all over, or was not.
    #[inline]
    fn found_new(&self, is_new: bool) {
        // Threads may count for each other: it is an estimate.
        let in_a_row = if is_new { self.new_in_a_row.load(Ordering::Relaxed).wrapping_add(1) } else { 0 };
        self.new_in_a_row.store(in_a_row, Ordering::Relaxed);
    }

    /// Prefetches what [`changed`](Self::changed) compares first.
    #[inline]
    pub(super) fn prefetch_sample(&self, cx: &Context<'_>, block: u64) {
        if self.compares()
            && let Some(cell) = cx.index().lookup(block)
            && let state = State::of(cell, 0)
            && let Some(number) = state.buffer
            && let Ok(buffer) = self.bytes(*cx, number, &state)
        {
            SAMPLE.into_iter().for_each(|offset| prefetch(buffer.wrapping_add(offset)));
        }
    }

    /// The granules that the write changes. Compares only what is in memory.
    pub(super) fn changed(
        &self,
        cx: Context<'_>,
        block: u64,
        start: usize,
        end: usize,
        buf: *mut u8,
        state: &State,
    ) -> Result<u64> {
        let bits = touched(start, end);
        if self.tier.is_some() && state.held & bits == 0 {
            self.found_new(end - start == BLOCK);
            return Ok(bits); // comparing would need a read of the file; the next write finds the block in the buffer
        }
        // On the heap: the stack, which may be small, already has a block of the caller's bytes.
        let mut room = (bits & !state.held != 0).then(Box::<BlockBuf>::new_uninit);
        let live = room.as_mut().map_or(core::ptr::null_mut(), |room| room.as_mut_ptr().cast::<u8>());
        if !live.is_null() {
            // SAFETY: within our buffer.
            unsafe {
                cx.read_home(block * BLOCK as u64 + start as u64, live.add(start), end - start, self.valid_end(cx))?;
            }
        }
        let held = match state.buffer {
            Some(number) => self.bytes(cx, number, state)?,
            None => live,
        };
        if bits & state.held == u64::MAX && end - start == BLOCK {
            // If the whole block is new, that is found out without reading all of the old one, or taken for granted.
            let is_new = !self.compares() || self.guarded(state, || differs_all_over(buf, held))?;
            self.found_new(is_new);
            if is_new {
                return Ok(u64::MAX);
            }
        }
        let size = cx.shared().size();
        self.guarded(state, || {
            let mut changed = 0;
            for granule in start / GRANULE..=(end - 1) / GRANULE {
                let (from, until) = ((granule * GRANULE).max(start), ((granule + 1) * GRANULE).min(end));
                let source = if state.held >> granule & 1 == 1 { held } else { live };
                // SAFETY: both are blocks of ours; no thread writes to them while the block's lock is held.
                let same = unsafe { is_same(buf.wrapping_add(from), source.wrapping_add(from), until - from) };
                // Above the size nothing is unchanged: zeros written there belong to the file from now on.
                let above = block * BLOCK as u64 + until as u64 > size;
                changed |= u64::from(!same || above) << granule;
            }
            changed
        })
    }

    /// Runs `compare`, which reads what a block holds, and owns nothing.
    ///
    /// # Errors
    /// `EIO`: the block lies in the journal, which has a fault.
    #[inline]
    fn guarded<R: Copy>(&self, state: &State, compare: impl FnOnce() -> R) -> Result<R> {
        match &self.area {
            Some(area) if state.in_journal.is_some() => area.guarded(compare),
            _ => Ok(compare()),
        }
    }
}

/// Whether all words of the sample differ. Both are whole blocks that nothing writes to meanwhile.
#[inline]
fn differs_all_over(new: *const u8, old: *const u8) -> bool {
    // SAFETY: the caller's promise.
    let sample = |block: *const u8| SAMPLE.map(|at| unsafe { block.wrapping_add(at).cast::<u64>().read_unaligned() });
    // All loads are under way at once.
    let (new, old) = (sample(new), sample(old));
    new.iter().zip(old).fold(true, |differ, (new, old)| differ & (*new != old))
}

/// Compares at most a granule. Whole ones by vectors: a comparison of slices or arrays of this length is a call of
/// libc's.
///
/// # Safety
/// Both may be read for `len` bytes, which nothing writes to meanwhile.
#[inline]
unsafe fn is_same(a: *const u8, b: *const u8, len: usize) -> bool {
    const WORDS: usize = GRANULE / size_of::<u64>();
    if len < GRANULE {
        // SAFETY: the caller's promise.
        return unsafe { core::slice::from_raw_parts(a, len) == core::slice::from_raw_parts(b, len) };
    }
    // SAFETY: the caller's promise.
    let (a, b) = unsafe { (a.cast::<[u64; WORDS]>().read_unaligned(), b.cast::<[u64; WORDS]>().read_unaligned()) };
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
