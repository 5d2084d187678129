//! Which thread maps what: one bit per page table (2 MiB of addresses) of a map. The thread that sets it maps what
//! lies under the table, so that no two threads walk the same table.

use crate::map::huge::HUGE;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Offsets are relative to the map, chunks are by address: the first and the last may be smaller than a table.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Bytes of the first table's range before the map.
    lead: usize,
    len: usize,
    bits: Box<[AtomicU64]>,
}

impl Chunks {
    pub fn new(base: usize, len: usize) -> Self {
        let lead = base % HUGE;
        let words = (lead + len).div_ceil(HUGE).div_ceil(64);
        Self { lead, len, bits: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The chunk that holds `offset`.
    pub fn index(&self, offset: usize) -> usize {
        (self.lead + offset) / HUGE
    }

    pub fn start_of(&self, chunk: usize) -> usize {
        (chunk * HUGE).saturating_sub(self.lead)
    }

    /// The end of the chunk that holds `offset`.
    pub fn end_of(&self, offset: usize) -> usize {
        ((self.index(offset) + 1) * HUGE - self.lead).min(self.len)
    }

    fn word(&self, chunk: usize) -> Option<(&AtomicU64, u64)> {
        Some((self.bits.get(chunk / 64)?, 1 << (chunk % 64)))
    }

    /// Whether a thread maps it, or has. True beyond the end.
    pub fn is_taken(&self, chunk: usize) -> bool {
        self.word(chunk).is_none_or(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    /// Takes it for the caller to map; false if it was taken.
    pub fn take(&self, chunk: usize) -> bool {
        self.word(chunk)
            .is_some_and(|(word, bit)| word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0)
    }

    /// Whether a chunk of the range is not mapped yet.
    pub fn any_free(&self, range: Range<usize>) -> bool {
        !range.is_empty() && (self.index(range.start)..=self.index(range.end - 1)).any(|chunk| !self.is_taken(chunk))
    }

    /// The number of chunks taken.
    pub fn taken(&self) -> usize {
        self.bits.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }

    /// The chunks that the range touches are no longer mapped.
    pub fn forget(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        for chunk in self.index(range.start)..=self.index(range.end - 1) {
            if let Some((word, bit)) = self.word(chunk) {
                word.fetch_and(!bit, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_page_tables_by_address() {
        let chunks = Chunks::new(5 * HUGE + 4096, 3 * HUGE);
        assert_eq!(chunks.end_of(0), HUGE - 4096);
        assert_eq!((chunks.index(HUGE - 4097), chunks.index(HUGE - 4096)), (0, 1));
        assert_eq!((chunks.start_of(0), chunks.start_of(1)), (0, HUGE - 4096));
        assert_eq!(chunks.end_of(3 * HUGE - 1), 3 * HUGE);
        let aligned = Chunks::new(5 * HUGE, 3 * HUGE);
        assert_eq!((aligned.end_of(0), aligned.end_of(HUGE)), (HUGE, 2 * HUGE));
    }

    #[test]
    fn a_chunk_is_taken_once() {
        let chunks = Chunks::new(0, 130 * HUGE);
        assert!(chunks.take(129) && !chunks.take(129) && chunks.is_taken(129) && !chunks.is_taken(128));
        assert!(chunks.any_free(127 * HUGE..130 * HUGE) && !chunks.any_free(129 * HUGE..129 * HUGE + 1));
        chunks.forget(129 * HUGE + 5..130 * HUGE);
        assert!(chunks.take(129));
        assert_eq!(chunks.taken(), 1);
        assert!(chunks.is_taken(1000) && !chunks.take(1000), "beyond the end nothing is to be mapped");
    }
}
