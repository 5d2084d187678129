//! The gap between the file's old end and the beginning of new bytes. It reads as zeros, but old bytes may lie there,
//! which in the journal could not be told from bytes written since: zeros are written over them. In a sparse file the
//! gap may be terabytes; what certainly reads as zeros already is skipped.

use super::Session;
use super::zero::BLOCKS_AT_ONCE;
use crate::error::Result;
use crate::file::engine::context::Context;
use crate::index::BLOCK;
use crate::rule::{Rule, holds};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Bytes of a gap that are rather zeroed than looked at, which moves the kernel's file position for a moment.
const FEW: u64 = 1 << 20;

impl Session {
    /// Writes zeros to a gap, as far as old bytes may lie there.
    pub(in crate::file) fn zero_gap(&self, cx: Context<'_>, from: u64, to: u64) -> Result<()> {
        let stale_end = cx.shared().stale_end.load(Ordering::Acquire);
        self.each_stale(cx, from..to.min(stale_end), |mut stale| self.write_zeros(cx, &mut stale.start, stale.end))
    }

    /// Calls `work` for the parts of a gap in which old bytes may lie, in order.
    #[cold]
    pub(in crate::file) fn each_stale(
        &self,
        cx: Context<'_>,
        gap: Range<u64>,
        mut work: impl FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        if gap.is_empty() || !holds(Rule::ZerosWhenGrown) {
            return Ok(());
        }
        if gap.end - gap.start <= FEW {
            return work(gap);
        }
        // `work` makes room ahead, which may look like data, but is all zeros.
        let readable = self.engine.readable(cx);
        let next_data = |cx: Context<'_>, at| {
            if at < readable { cx.fds.next_data_if_unshared(at) } else { Some(u64::MAX) }
        };
        let mut at = gap.start;
        loop {
            at = self.hole_end(cx, at, gap.end, next_data);
            if at >= gap.end {
                return Ok(());
            }
            let end = gap.end.min((at / BLOCK as u64 + BLOCKS_AT_ONCE) * BLOCK as u64);
            work(at..end)?;
            at = end;
        }
    }
}
