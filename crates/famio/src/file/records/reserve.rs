//! Room in the journal for the open epoch, reserved by its writes so that the commit finds it.

use super::{Records, full};
use crate::error::Result;
use crate::file::engine::context::Context;
use crate::journal::records::RecordLog;
use crate::journal::tiered::TieredLog;
use crate::pmem::TestHooks;
use core::sync::atomic::{AtomicU64, Ordering};

/// Journal is reserved in steps of this many bytes.
const RESERVE_STEP: u64 = 64 << 10;

/// Returns the sum. In exclusive mode by ordinary instructions, as no other thread adds.
#[inline]
pub(super) fn add(cx: Context<'_>, counter: &AtomicU64, more: u64) -> u64 {
    if !cx.exclusive {
        return counter.fetch_add(more, Ordering::Relaxed) + more;
    }
    let sum = counter.load(Ordering::Relaxed) + more;
    counter.store(sum, Ordering::Relaxed);
    sum
}

impl Records {
    /// The most bytes of journal for this many blocks with this many granules in all.
    pub(super) fn cost(&self, blocks: u64, granules: u64) -> u64 {
        if self.tier.is_some() { TieredLog::cost(blocks, granules) } else { RecordLog::cost(blocks, granules) }
    }

    /// Reserves journal for `granules` more granules of the open epoch and, if `block`, one more block; with neither,
    /// for the commit of a size.
    pub(super) fn reserve(&self, cx: Context<'_>, block: bool, granules: u64) -> Result<()> {
        let block = u64::from(block);
        let blocks = add(cx, &self.blocks, block);
        let all = add(cx, &self.granules, granules);
        let reserved = self.reserve_for(cx, self.cost(blocks, all));
        if reserved.is_err() {
            self.unreserve(block, granules);
        }
        reserved
    }

    /// What was reserved for a write that failed is not needed.
    pub(super) fn unreserve(&self, blocks: u64, granules: u64) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
        self.granules.fetch_sub(granules, Ordering::Relaxed);
    }

    pub(super) fn reserve_for(&self, cx: Context<'_>, cost: u64) -> Result<()> {
        if cost <= self.reserved.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut log = self.log.lock(cx);
        // With the small segments of tests, none in advance: they are to be reused.
        let want = cost + if TestHooks::current().segments.is_some() { 0 } else { RESERVE_STEP };
        let reserved = match log.reserve(want) {
            Ok(()) => want,
            Err(e) if e.errno() == libc::ENOSPC => {
                log.reserve(cost).map_err(full)?;
                cost
            }
            Err(e) => return Err(e),
        };
        self.reserved.store(reserved, Ordering::Relaxed);
        Ok(())
    }
}
