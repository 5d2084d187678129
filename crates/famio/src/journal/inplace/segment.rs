//! Segments: the layout of a journal's entries and log blocks.

use super::Key;
use crate::pmem::Medium;
use crate::sync::{AtomicU64, Ordering};

/// The first segment starts here: after the header's page and the slots' page.
pub(crate) const SEGMENTS_START: u64 = 8192;
/// The most segments of a journal: with the counts below, about 32 GiB.
pub(crate) const SEGMENTS_MAX: usize = 512;
/// Log blocks of the first segment; each later one has twice as many, up to `COUNT_MAX`.
const COUNT_FIRST: u64 = 64;
const DOUBLINGS: u64 = 8;
const COUNT_MAX: u64 = COUNT_FIRST << DOUBLINGS;
/// Entries in the segments that double.
const DOUBLING_ENTRIES: u64 = COUNT_FIRST * ((1 << DOUBLINGS) - 1);
/// The one size class in use: log blocks of 4 KiB.
pub(crate) const CLASS: u8 = 12;
/// "FAMIOSEG".
const MAGIC: u64 = u64::from_le_bytes(*b"FAMIOSEG");

/// Where segment `index` and its parts lie. A segment consists of a one-line header, its entries, and from the next
/// multiple of 4096 on its log blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Number of the segment.
    pub index: usize,
    /// Offset of its header in the journal.
    pub start: u64,
    /// Number of its first entry.
    pub first: u64,
    /// Number of its entries, and of its log blocks.
    pub count: u64,
}

impl Geometry {
    /// Segment `index`.
    pub fn of(index: usize) -> Self {
        let k = index as u64;
        let doubled = k.min(DOUBLINGS);
        let first = COUNT_FIRST * ((1 << doubled) - 1) + (k - doubled) * COUNT_MAX;
        let count = COUNT_FIRST << doubled;
        let doubling = (0..doubled).fold(SEGMENTS_START, |start, i| start + Self::length_of(COUNT_FIRST << i));
        let start = doubling + (k - doubled) * Self::length_of(COUNT_MAX);
        Self { index, start, first, count }
    }

    fn length_of(count: u64) -> u64 {
        Self::blocks_from(count) + (count << CLASS)
    }

    fn blocks_from(count: u64) -> u64 {
        (64 + 64 * count).next_multiple_of(4096)
    }

    /// Offset of the first byte after the segment.
    pub fn end(&self) -> u64 {
        self.start + Self::length_of(self.count)
    }

    /// Offset of entry `i` of the segment.
    #[cfg(test)]
    pub fn entry(&self, i: u64) -> u64 {
        self.start + 64 + 64 * i
    }

    /// Offset of log block `i` of the segment.
    pub fn block(&self, i: u64) -> u64 {
        self.start + Self::blocks_from(self.count) + (i << CLASS)
    }

    /// The segment of entry `number`, and the entry's index in it.
    #[inline]
    pub fn place(number: u32) -> (usize, u64) {
        let n = u64::from(number);
        if n < DOUBLING_ENTRIES {
            let k = (n / COUNT_FIRST + 1).ilog2();
            (k as usize, n - COUNT_FIRST * ((1 << k) - 1))
        } else {
            let beyond = n - DOUBLING_ENTRIES;
            ((DOUBLINGS + beyond / COUNT_MAX) as usize, beyond % COUNT_MAX)
        }
    }

    /// Offset of entry `number` in the journal.
    pub fn entry_at(number: u32) -> u64 {
        let (segment, i) = Self::place(number);
        Self::of(segment).start + 64 + 64 * i
    }

    fn words(&self) -> [u64; 4] {
        [MAGIC, self.index as u64 | u64::from(CLASS) << 32, self.first, self.count]
    }

    /// Writes the segment's header, with its check last, and starts its write-back.
    pub fn store_header(&self, line: &[AtomicU64; 8], medium: &dyn Medium, key: Key) {
        let words = self.words();
        for (to, word) in line.iter().zip(words) {
            medium.store(to, word);
        }
        medium.store(&line[4], key.check(self.start, &words));
        // SAFETY: the line is mapped: it is borrowed.
        unsafe { medium.flush(line.as_ptr().cast(), 64) };
    }

    /// Whether the segment's header is there and valid.
    pub fn check_header(&self, line: &[AtomicU64; 8], key: Key) -> bool {
        let stored: [u64; 4] = core::array::from_fn(|i| line[i].load(Ordering::Acquire));
        stored == self.words() && line[4].load(Ordering::Acquire) == key.check(self.start, &stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_and_hold_their_entries() {
        let (mut start, mut first) = (SEGMENTS_START, 0);
        for index in 0..40 {
            let g = Geometry::of(index);
            assert_eq!((g.start, g.first), (start, first));
            assert_eq!(g.block(0) % 4096, 0);
            assert!(g.entry(g.count - 1) + 64 <= g.block(0));
            assert_eq!(g.block(g.count), g.end());
            for i in [0, 1, g.count - 1] {
                assert_eq!(Geometry::place((g.first + i) as u32), (index, i));
            }
            (start, first) = (g.end(), g.first + g.count);
        }
    }
}
