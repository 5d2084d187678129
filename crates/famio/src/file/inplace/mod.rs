//! The engine for journals in place: undo, redo and alternate over a mapped file and a mapped log.

mod pending;
mod read;
mod settle;
mod state;
mod write;

use super::context::{Context, Engine, Sealed, restore_times};
use crate::error::{Error, Result};
use crate::index::{BLOCK, Cell};
use crate::journal::inplace::{Commit, Log};
use crate::journal::live::Live;
use crate::pmem::Medium;
use core::sync::atomic::{AtomicU32, Ordering};

/// A journal in place and the file that it protects.
pub(crate) struct InPlace {
    log: Log,
    journal: Live,
    /// The medium of the file's mapping; the journal's is of the same domain.
    medium: &'static dyn Medium,
    /// Where the background looks next for blocks to settle.
    hand: AtomicU32,
}

/// The granule size of a 4 KiB block.
const GRANULE: usize = BLOCK / crate::journal::inplace::GRANULES;

/// Bits of the granules that `start..end` of a block touches.
#[inline]
fn touched(start: usize, end: usize) -> u64 {
    debug_assert!(start < end && end <= BLOCK);
    let (first, last) = (start / GRANULE, (end - 1) / GRANULE);
    (u64::MAX >> (63 - (last - first))) << first
}

/// Bits of the granules of a block that lie wholly at or above `size`: no committed byte is there.
#[inline]
fn above(block: u64, size: u64) -> u64 {
    let start = block * BLOCK as u64;
    let granules = size.saturating_sub(start).div_ceil(GRANULE as u64);
    if granules >= 64 { 0 } else { u64::MAX << granules }
}

/// Calls `each(first, count)` for each run of set bits.
#[inline]
fn runs(mut bits: u64, mut each: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    while bits != 0 {
        let first = bits.trailing_zeros();
        let count = (!(bits >> first)).trailing_zeros();
        each(first as usize, count as usize)?;
        bits &= if first + count == 64 { 0 } else { u64::MAX << (first + count) };
    }
    Ok(())
}

impl InPlace {
    pub fn new(log: Log, journal: Live, medium: &'static dyn Medium) -> Self {
        Self { log, journal, medium, hand: AtomicU32::new(0) }
    }
}

impl Engine for InPlace {
    fn readable(&self, cx: Context<'_>) -> u64 {
        cx.shared().physical.load(Ordering::Acquire)
    }

    unsafe fn read_block(
        &self,
        cx: Context<'_>,
        cell: &Cell,
        block: u64,
        start: usize,
        dst: *mut u8,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.read(cx, cell, block, start, dst, len) }
    }

    fn write_block(&self, cx: Context<'_>, block: u64, start: usize, end: usize, buf: *mut u8) -> Result<()> {
        self.write(cx, block, start, end, buf)
    }

    /// Nothing moves: bytes above the size are not read, and growing again writes zeros over them.
    fn cut(&self, _cx: Context<'_>, _size: u64) -> Result<()> {
        Ok(())
    }

    /// Two fences, one cache line, and the last block of each thread: no walk over what was written.
    fn commit(&self, cx: Context<'_>, sealed: Sealed) -> Result<()> {
        // Writers fenced what they stored non-temporally or flushed; what they left dirty is flushed here.
        self.flush_pending(cx)?;
        self.log.medium().fence();
        self.log.slots().store(Commit { epoch: sealed.epoch, size: sealed.size });
        self.log.medium().fence();
        Ok(())
    }

    fn settle_some(&self, cx: Context<'_>) -> Result<bool> {
        self.settle_round(cx)
    }

    fn retire(&self, cx: Context<'_>) -> Result<()> {
        self.settle_all(cx)?;
        let size = cx.shared().committed_size.load(Ordering::Acquire);
        cx.fds.with(true, |fd| {
            if rustix::fs::fstat(fd)?.st_size as u64 != size {
                self.medium.ftruncate(fd, size)?;
            }
            restore_times(cx.shared(), fd);
            self.medium.fdatasync(fd)?;
            self.journal.retire(fd)
        })
    }

    fn is_waiting(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) > 0
    }

    fn is_pressed(&self, cx: Context<'_>) -> bool {
        cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64 > self.log.limit() / 2
    }
}

/// An offset or a number from shared memory that can't be right.
fn inconsistent(what: &str) -> Error {
    Error::with(libc::EIO, format!("the shared index is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(touched(0, 1), 1);
        assert_eq!(touched(63, 65), 0b11);
        assert_eq!(touched(0, 4096), u64::MAX);
        assert_eq!(touched(4032, 4096), 1 << 63);
        assert_eq!(above(0, 0), u64::MAX);
        assert_eq!(above(0, 1), u64::MAX << 1);
        assert_eq!(above(0, 4096), 0);
        assert_eq!(above(1, 4096), u64::MAX);
        assert_eq!(above(1, 4096 + 4033), 0);
        let mut seen = Vec::new();
        runs(0b1110_0101 | 1 << 63, |first, count| {
            seen.push((first, count));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [(0, 1), (2, 1), (5, 3), (63, 1)]);
        seen.clear();
        runs(u64::MAX, |first, count| {
            seen.push((first, count));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [(0, 64)]);
    }
}
