//! The lines of a segment that describe its content: its own head, and the heads and lists of records.

use super::LINE;
use crate::journal::bytes::{put, u64_at};
use crate::journal::inplace::Key;
use crate::rule::{Rule, holds};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a granule.
const GRANULE: usize = crate::journal::records::GRANULE;
/// Size of a list's entry.
const ENTRY: usize = 16;
/// Flag in the word of the epoch: the record is the first of its epoch.
const FIRST: u64 = 1 << 63;
/// The largest file that Linux has.
const SIZE_MAX: u64 = i64::MAX as u64;

// Words of a record's head.
const CHECK: usize = 0;
const NUMBER: usize = 1;
const EPOCH: usize = 2;
const SIZE: usize = 3;
const CUT: usize = 4;
const GENERATION: usize = 5;
const COUNTS: usize = 6;
const LIST_HASH: usize = 7;

/// The content of a record's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Counts the records of the journal, from 1.
    pub number: u64,
    pub epoch: u64,
    /// Whether it is the first record of its epoch.
    pub is_first: bool,
    /// The file's size after it.
    pub size: u64,
    /// The lowest size since the previous record.
    pub cut: u64,
    /// The segment's generation.
    pub generation: u64,
    /// Number of blocks, and of all their granules.
    pub count: u32,
    pub granules: u32,
    /// The hash of the list, with its padding.
    pub list: u64,
}

/// The lines that a list of `count` blocks takes.
pub(super) const fn list_lines(count: u64) -> u64 {
    (count * ENTRY as u64).div_ceil(LINE as u64)
}

impl Head {
    /// The bytes of the whole record.
    pub fn len(&self) -> u64 {
        self.data() + u64::from(self.granules) * GRANULE as u64
    }

    /// Where its data begins.
    pub fn data(&self) -> u64 {
        (1 + list_lines(self.count.into())) * LINE as u64
    }

    fn words(&self, key: Key, position: u64) -> [u64; 8] {
        let mut words = [0; 8];
        words[NUMBER] = self.number;
        words[EPOCH] = self.epoch | if self.is_first { FIRST } else { 0 };
        words[SIZE] = self.size;
        words[CUT] = self.cut;
        words[GENERATION] = self.generation;
        words[COUNTS] = u64::from(self.count) | u64::from(self.granules) << 32;
        words[LIST_HASH] = self.list;
        words[CHECK] = key.check(position | 1, &words[NUMBER..]);
        words
    }

    /// Encodes the line for byte `position` of the journal.
    pub fn put(&self, key: Key, position: u64, to: &mut [u8]) {
        put_line(&self.words(key, position), to);
    }

    /// Decodes the line at `position`; `None` if it is not a record's.
    pub fn get(key: Key, position: u64, line: &[u8]) -> Option<Self> {
        let words = line_of(line);
        if words[CHECK] != key.check(position | 1, &words[NUMBER..]) && holds(Rule::TieredRecordHasCheck) {
            return None;
        }
        let head = Self {
            number: words[NUMBER],
            epoch: words[EPOCH] & !FIRST,
            is_first: words[EPOCH] & FIRST != 0,
            size: words[SIZE],
            cut: words[CUT],
            generation: words[GENERATION],
            count: words[COUNTS] as u32,
            granules: (words[COUNTS] >> 32) as u32,
            list: words[LIST_HASH],
        };
        (head.cut <= head.size && head.size <= SIZE_MAX).then_some(head)
    }
}

/// Encodes the list of a record into `to`, zeros of its length, and returns its hash.
pub(super) fn put_list(to: &mut [u8], blocks: impl Iterator<Item = (u64, u64)>) -> u64 {
    for (to, (block, granules)) in to.chunks_exact_mut(ENTRY).zip(blocks) {
        to[..8].copy_from_slice(&block.to_le_bytes());
        to[8..].copy_from_slice(&granules.to_le_bytes());
    }
    xxh3_64(to)
}

/// The blocks of a list, all of whose lines are in `bytes`; `None` if it is not the list that its head describes.
pub(super) fn list(head: &Head, bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    if xxh3_64(bytes) != head.list && holds(Rule::TieredListHasHash) {
        return None;
    }
    let entry = |entry: &[u8]| (u64_at(entry, 0), u64_at(entry, 8));
    let list: Vec<_> = bytes.chunks_exact(ENTRY).take(head.count as usize).map(entry).collect();
    let granules: u64 = list.iter().map(|(_, granules)| u64::from(granules.count_ones())).sum();
    let in_order = list.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let last = SIZE_MAX / crate::index::BLOCK as u64;
    let in_range = list.iter().all(|&(block, granules)| block < last && granules != 0);
    (granules == u64::from(head.granules) && in_order && in_range).then_some(list)
}

/// Encodes the first line of a segment, at byte `position`.
pub(super) fn put_segment(key: Key, position: u64, generation: u64, to: &mut [u8]) {
    let mut words = [0; 8];
    words[1] = generation;
    words[0] = key.check(position, &words[1..]);
    put_line(&words, to);
}

/// The generation in the first line of a segment; `None`: not such a line, or torn.
pub(super) fn generation_of(key: Key, position: u64, line: &[u8]) -> Option<u64> {
    let words = line_of(line);
    (words[0] == key.check(position, &words[1..])).then_some(words[1])
}

fn put_line(words: &[u64; 8], to: &mut [u8]) {
    words.iter().enumerate().for_each(|(i, word)| put(to, 8 * i, &word.to_le_bytes()));
}

fn line_of(line: &[u8]) -> [u64; 8] {
    core::array::from_fn(|i| u64_at(line, 8 * i))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key(5);

    fn sample() -> Head {
        Head {
            number: 9,
            epoch: 4,
            is_first: true,
            size: 7000,
            cut: 6000,
            generation: 3,
            count: 5,
            granules: 70,
            list: 11,
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!([CHECK, NUMBER, EPOCH, SIZE, CUT, GENERATION, COUNTS, LIST_HASH], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((sample().data(), sample().len()), (64 + 128, 64 + 128 + 70 * 64));
        assert_eq!([list_lines(0), list_lines(1), list_lines(4), list_lines(5)], [0, 1, 1, 2]);
    }

    #[test]
    fn goes_to_the_medium_and_back_and_every_changed_byte_shows() {
        let mut line = [0; LINE];
        sample().put(KEY, 8256, &mut line);
        assert_eq!(Head::get(KEY, 8256, &line), Some(sample()));
        assert_eq!([Head::get(KEY, 8320, &line), Head::get(Key(6), 8256, &line)], [None, None]);
        for byte in 0..LINE {
            line[byte] ^= 0x21;
            assert_eq!(Head::get(KEY, 8256, &line), None, "byte {byte}");
            line[byte] ^= 0x21;
        }
        assert_eq!(Head::get(KEY, 8256, &[0; LINE]), None);
        put_segment(KEY, 8192, 7, &mut line);
        assert_eq!(generation_of(KEY, 8192, &line), Some(7));
        for byte in 0..LINE {
            line[byte] ^= 0x40;
            assert_eq!(generation_of(KEY, 8192, &line), None, "byte {byte}");
            line[byte] ^= 0x40;
        }
    }

    #[test]
    fn lists_are_checked() {
        let blocks = [(1, u64::MAX), (2, 1), (4, 3), (7, 1), (8, 3)];
        let head = |list, granules| Head { list, granules, ..sample() };
        assert_eq!((list_lines(4), list_lines(5)), (1, 2));
        let mut bytes = [0; 2 * LINE];
        let hash = put_list(&mut bytes, blocks.into_iter());
        assert_eq!(list(&head(hash, 70), &bytes), Some(blocks.to_vec()));
        assert_eq!([list(&head(hash, 71), &bytes), list(&head(hash ^ 1, 70), &bytes)], [None, None]);
        for wrong in [[(2, 1), (1, 1)], [(1, 1), (1, 1)], [(1, 1), (2, 0)], [(1, 1), (u64::MAX, 1)]] {
            let mut bytes = [0; LINE];
            let hash = put_list(&mut bytes, wrong.into_iter());
            let granules = wrong.iter().map(|(_, granules)| granules.count_ones()).sum();
            let head = Head { count: 2, granules, list: hash, ..sample() };
            assert_eq!(list(&head, &bytes), None, "{wrong:?}");
        }
    }
}
