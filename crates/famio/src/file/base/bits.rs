//! Granules of a block as bits of a word.

use crate::error::Result;
use crate::index::BLOCK;
use core::ops::Range;

/// The granule size of a 4 KiB block.
pub(in crate::file) const GRANULE: usize = BLOCK / 64;

/// The bits of granules that `start..end` of a block touches.
#[inline]
pub(in crate::file) fn touched(start: usize, end: usize) -> u64 {
    debug_assert!(start < end && end <= BLOCK);
    let (first, last) = (start / GRANULE, (end - 1) / GRANULE);
    (u64::MAX >> (63 - (last - first))) << first
}

/// The rest of the granules that `start..end` covers in part: before it, and behind it.
#[inline]
pub(in crate::file) fn rest_of_granules(start: usize, end: usize) -> impl Iterator<Item = Range<usize>> {
    let (first, last) = (start / GRANULE * GRANULE, end.next_multiple_of(GRANULE));
    [first..start, end..last].into_iter().filter(|edge| !edge.is_empty())
}

/// The bits of granules of a block that lie completely at or above `size`, and so have no committed byte.
#[inline]
pub(in crate::file) fn above(block: u64, size: u64) -> u64 {
    let start = block * BLOCK as u64;
    let granules = size.saturating_sub(start).div_ceil(GRANULE as u64);
    if granules >= 64 { 0 } else { u64::MAX << granules }
}

/// Calls `each(first, count)` for each run of set bits.
#[inline]
pub(in crate::file) fn runs(mut bits: u64, mut each: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    while bits != 0 {
        let first = bits.trailing_zeros();
        let count = (!(bits >> first)).trailing_zeros();
        each(first as usize, count as usize)?;
        bits &= if first + count == 64 { 0 } else { u64::MAX << (first + count) };
    }
    Ok(())
}

/// The bits of granules of a block that begin below `size`.
#[inline]
pub(in crate::file) fn below(block: u64, size: u64) -> u64 {
    !above(block, size)
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
        assert_eq!(rest_of_granules(64, 128).count(), 0);
        assert_eq!(rest_of_granules(70, 100).collect::<Vec<_>>(), [64..70, 100..128]);
        assert!(rest_of_granules(0, 4095).eq(core::iter::once(4095..4096)));
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
