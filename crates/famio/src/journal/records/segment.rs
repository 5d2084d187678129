//! The first page of a segment: how its records continue those of the previous segment.

use super::PAGE;
use crate::journal::JournalId;
use crate::journal::bytes::{bytes_at, put, u64_at, u128_at};
use crate::rule::{Rule, holds};
use xxhash_rust::xxh3::xxh3_128;

const MAGIC_BYTES: &[u8; 8] = b"FAMIOSEG";

// On the medium.
const MAGIC: usize = 0;
const POSITION: usize = MAGIC + 8;
const JOURNAL_ID: usize = POSITION + 8;
const GENERATION: usize = JOURNAL_ID + 16;
const COMMITTED: usize = GENERATION + 8;
const CONTINUES: usize = COMMITTED + 8;
const PREVIOUS: usize = CONTINUES + 8;
const BEHIND: usize = PREVIOUS + 16;
const HASH: usize = BEHIND + 8;
const END: usize = HASH + 16;

/// The content of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHead {
    pub journal_id: JournalId,
    /// The segment's position in the journal's file.
    pub position: u64,
    /// Counts the segments used so far.
    pub generation: u64,
    /// The last epoch that was durable when this was written.
    pub committed: u64,
    /// The epoch after `committed` began in an earlier segment.
    pub continues: bool,
    /// The hash of the previous record.
    pub previous: u128,
    /// The check of what lies in the segment's next page before its first record.
    pub behind: u64,
}

impl SegmentHead {
    /// The page.
    pub fn put(&self, page: &mut [u8]) {
        put(page, MAGIC, MAGIC_BYTES);
        put(page, POSITION, &self.position.to_le_bytes());
        put(page, JOURNAL_ID, &self.journal_id.0);
        put(page, GENERATION, &self.generation.to_le_bytes());
        put(page, COMMITTED, &self.committed.to_le_bytes());
        put(page, CONTINUES, &u64::from(self.continues).to_le_bytes());
        put(page, PREVIOUS, &self.previous.to_le_bytes());
        put(page, BEHIND, &self.behind.to_le_bytes());
        let hash = hash(page);
        put(page, HASH, &hash.to_le_bytes());
    }

    /// Parses the page: `None` if it is not one.
    pub fn get(page: &[u8]) -> Option<SegmentHead> {
        let known = page.len() == PAGE && page[..POSITION] == MAGIC_BYTES[..] && u64_at(page, CONTINUES) <= 1;
        if !known || u128_at(page, HASH) != hash(page) && holds(Rule::SegmentOfRecordsHasHash) {
            return None;
        }
        Some(SegmentHead {
            journal_id: JournalId(bytes_at(page, JOURNAL_ID)),
            position: u64_at(page, POSITION),
            generation: u64_at(page, GENERATION),
            committed: u64_at(page, COMMITTED),
            continues: u64_at(page, CONTINUES) == 1,
            previous: u128_at(page, PREVIOUS),
            behind: u64_at(page, BEHIND),
        })
    }
}

/// Covers the page except for the hash; the rest of the page is zero.
fn hash(page: &[u8]) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(&page[..HASH]);
    hasher.update(&xxh3_128(&page[END..]).to_le_bytes());
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!([MAGIC, POSITION, JOURNAL_ID, GENERATION, COMMITTED], [0, 8, 16, 32, 40]);
        assert_eq!([CONTINUES, PREVIOUS, BEHIND, HASH, END], [48, 56, 72, 80, 96]);
    }

    #[test]
    fn goes_to_the_medium_and_back() {
        let head = SegmentHead {
            journal_id: JournalId([3; 16]),
            position: 4096,
            generation: 5,
            committed: 6,
            continues: true,
            previous: 7,
            behind: 8,
        };
        let mut page = vec![0; PAGE];
        head.put(&mut page);
        assert_eq!(SegmentHead::get(&page), Some(head));
        for at in 0..PAGE {
            page[at] ^= 1;
            assert_eq!(SegmentHead::get(&page), None, "byte {at}");
            page[at] ^= 1;
        }
        assert_eq!(SegmentHead::get(&page[..PAGE - 1]), None);
    }
}
