//! The first page of a record: describes the record, and has checks of every other page of it.
//!
//! For each page there are two checks: of the record's content, and of what lay there before. So a reader can tell a
//! page that was not written from one that was damaged.

use super::{BLOCK, GRANULE, PAGE};
use crate::error::{Error, Result};
use crate::journal::JournalId;
use crate::journal::bytes::{bytes_at, put, u32_at, u64_at, u128_at};
use crate::rule::{Rule, holds};
use xxhash_rust::xxh3::xxh3_128;

const MAGIC_BYTES: &[u8; 8] = b"FAMIOREC";

// On the medium.
const MAGIC: usize = 0;
const KIND: usize = MAGIC + 8;
const COUNT: usize = KIND + 4;
const JOURNAL_ID: usize = COUNT + 4;
const GENERATION: usize = JOURNAL_ID + 16;
const EPOCH: usize = GENERATION + 8;
const POSITION: usize = EPOCH + 8;
const COMMITTED: usize = POSITION + 8;
const TAIL: usize = COMMITTED + 8;
const SIZE: usize = TAIL + 8;
const CUT: usize = SIZE + 8;
const PAGES: usize = CUT + 8;
const PREVIOUS: usize = PAGES + 8;
const BEHIND: usize = PREVIOUS + 16;
const HASH: usize = BEHIND + 16;
const LIST: usize = HASH + 16;
const LIST_ENTRY: usize = 16;
const CHECKS_ENTRY: usize = 16;

/// Data begins at such a boundary.
const DATA_ALIGN: usize = 64;

/// The largest file that Linux has.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A piece of an epoch, which does not commit it.
    Part = 1,
    /// The last piece of an epoch.
    Commit = 2,
    /// Has no epoch: says up to which epoch everything is in the file.
    Note = 3,
}

/// The fixed fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub kind: Kind,
    pub journal_id: JournalId,
    /// The segment's generation.
    pub generation: u64,
    pub epoch: u64,
    /// Its position in the journal's file.
    pub position: u64,
    /// The last epoch that was durable when this was written.
    pub committed: u64,
    /// Up to this epoch everything is in the file, durably.
    pub tail: u64,
    /// The file's size after this record.
    pub size: u64,
    /// The lowest size since the previous record.
    pub cut: u64,
    /// The record's length.
    pub pages: u32,
    /// The hash of the previous record; for the first record of a segment, of the last one of the previous segment.
    pub previous: u128,
    /// The check of what lies in the page after the record; 0 at the end of a segment.
    pub behind: u64,
}

/// An entry of the list: the granules of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub block: u64,
    pub mask: u64,
}

/// Where data begins in a record of `count` blocks and `pages` pages; `None` if the head does not fit into its page.
pub(super) fn data_start(count: usize, pages: usize) -> Option<usize> {
    let end = LIST + count * LIST_ENTRY + pages.checked_sub(1)? * CHECKS_ENTRY;
    let start = end.next_multiple_of(DATA_ALIGN);
    (start <= PAGE).then_some(start)
}

/// The pages of a record of `count` blocks and `granules` granules; `None` if that is too much for one record.
pub(super) fn pages_for(count: usize, granules: usize) -> Option<usize> {
    let mut pages = 1;
    loop {
        let needed = (data_start(count, pages)? + granules * GRANULE).div_ceil(PAGE);
        if needed <= pages {
            return Some(pages);
        }
        pages = needed;
    }
}

impl Head {
    /// Writes the fields into a zeroed page. The caller adds the list, the checks and the [`seal`].
    pub fn put(&self, page: &mut [u8], list: impl ExactSizeIterator<Item = Listed>) {
        put(page, MAGIC, MAGIC_BYTES);
        put(page, KIND, &(self.kind as u32).to_le_bytes());
        put(page, COUNT, &(list.len() as u32).to_le_bytes());
        put(page, JOURNAL_ID, &self.journal_id.0);
        put(page, GENERATION, &self.generation.to_le_bytes());
        put(page, EPOCH, &self.epoch.to_le_bytes());
        put(page, POSITION, &self.position.to_le_bytes());
        put(page, COMMITTED, &self.committed.to_le_bytes());
        put(page, TAIL, &self.tail.to_le_bytes());
        put(page, SIZE, &self.size.to_le_bytes());
        put(page, CUT, &self.cut.to_le_bytes());
        put(page, PAGES, &u64::from(self.pages).to_le_bytes());
        put(page, PREVIOUS, &self.previous.to_le_bytes());
        put(page, BEHIND, &self.behind.to_le_bytes());
        for (i, listed) in list.enumerate() {
            put(page, LIST + i * LIST_ENTRY, &listed.block.to_le_bytes());
            put(page, LIST + i * LIST_ENTRY + 8, &listed.mask.to_le_bytes());
        }
    }
}

/// Writes the checks of a page other than the first.
pub(super) fn put_checks(head: &mut [u8], count: usize, page: usize, new: u64, old: u64) {
    let at = LIST + count * LIST_ENTRY + (page - 1) * CHECKS_ENTRY;
    put(head, at, &new.to_le_bytes());
    put(head, at + 8, &old.to_le_bytes());
}

/// Writes the hash over the whole page, and returns it.
pub(super) fn seal(page: &mut [u8]) -> u128 {
    put(page, HASH, &[0; 16]);
    let hash = xxh3_128(page);
    put(page, HASH, &hash.to_le_bytes());
    hash
}

/// A page that is a record's first, according to its hash.
#[derive(Clone, Copy)]
pub(super) struct Parsed<'a> {
    pub head: Head,
    pub hash: u128,
    count: usize,
    page: &'a [u8],
}

/// Whether a page may be a record's first; cheap.
pub(super) fn looks_like_head(page: &[u8]) -> bool {
    page[..MAGIC_BYTES.len()] == MAGIC_BYTES[..]
}

/// Parses a record's first page: `None` if it is not one; an error if it is, with fields that Famio never writes.
pub(super) fn parse(page: &[u8]) -> Result<Option<Parsed<'_>>> {
    if page.len() != PAGE || !looks_like_head(page) {
        return Ok(None);
    }
    let hash = u128_at(page, HASH);
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(&page[..HASH]);
    hasher.update(&[0; 16]);
    hasher.update(&page[HASH + 16..]);
    if hasher.digest128() != hash && holds(Rule::RecordHasHash) {
        return Ok(None);
    }
    let wrong = |what: &str| Err(Error::with(libc::EIO, format!("a record has {what}")));
    let kind = match u32_at(page, KIND) {
        1 => Kind::Part,
        2 => Kind::Commit,
        3 => Kind::Note,
        other => return wrong(&format!("an unknown kind, {other}")),
    };
    let (count, pages) = (u32_at(page, COUNT) as usize, u64_at(page, PAGES));
    if count > PAGE || pages > PAGE as u64 || data_start(count, pages as usize).is_none() {
        return wrong(&format!("{count} blocks in {pages} pages"));
    }
    let head = Head {
        kind,
        journal_id: JournalId(bytes_at(page, JOURNAL_ID)),
        generation: u64_at(page, GENERATION),
        epoch: u64_at(page, EPOCH),
        position: u64_at(page, POSITION),
        committed: u64_at(page, COMMITTED),
        tail: u64_at(page, TAIL),
        size: u64_at(page, SIZE),
        cut: u64_at(page, CUT),
        pages: pages as u32,
        previous: u128_at(page, PREVIOUS),
        behind: u64_at(page, BEHIND),
    };
    let parsed = Parsed { head, hash, count, page };
    let (mut granules, mut lowest) = (0, 0);
    for listed in parsed.list() {
        if listed.mask == 0 || listed.block < lowest || listed.block > SIZE_MAX / BLOCK as u64 - 1 {
            return wrong(&format!("block {} out of its place", listed.block));
        }
        lowest = listed.block + 1;
        granules += listed.mask.count_ones() as usize;
    }
    if pages_for(count, granules) != Some(pages as usize) {
        return wrong(&format!("{granules} granules in {pages} pages"));
    }
    if head.cut > head.size || head.size > SIZE_MAX {
        return wrong(&format!("size {} cut to {}", head.size, head.cut));
    }
    let before = if kind == Kind::Note { head.epoch } else { head.epoch.wrapping_sub(1) };
    if head.committed != before || head.tail > head.committed || (kind == Kind::Note && count != 0) {
        return wrong(&format!("epoch {} after {} with tail {}", head.epoch, head.committed, head.tail));
    }
    Ok(Some(parsed))
}

impl<'a> Parsed<'a> {
    /// The blocks that it writes, ascending.
    pub fn list(self) -> impl Iterator<Item = Listed> + 'a {
        let list = &self.page[LIST..LIST + self.count * LIST_ENTRY];
        list.chunks_exact(LIST_ENTRY).map(|entry| Listed { block: u64_at(entry, 0), mask: u64_at(entry, 8) })
    }

    /// The checks of page `page`, not the first: of the record, and of what was there before.
    pub fn checks(self, page: usize) -> (u64, u64) {
        let at = LIST + self.count * LIST_ENTRY + (page - 1) * CHECKS_ENTRY;
        (u64_at(self.page, at), u64_at(self.page, at + 8))
    }

    /// Where its data begins.
    pub fn data_start(self) -> usize {
        data_start(self.count, self.head.pages as usize).unwrap_or(PAGE) // parse() has checked that it fits
    }

    /// The bytes of data.
    pub fn data_len(self) -> u64 {
        self.list().map(|listed| u64::from(listed.mask.count_ones()) * GRANULE as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Head {
        Head {
            kind: Kind::Commit,
            journal_id: JournalId([9; 16]),
            generation: 2,
            epoch: 3,
            position: 4,
            committed: 2,
            tail: 1,
            size: 7000,
            cut: 6000,
            pages: 2,
            previous: 10,
            behind: 11,
        }
    }

    fn page(head: &Head, list: &[Listed]) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        head.put(&mut page, list.iter().copied());
        seal(&mut page);
        page
    }

    const FULL: Listed = Listed { block: 5, mask: u64::MAX };

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!([MAGIC, KIND, COUNT, JOURNAL_ID, GENERATION, EPOCH, POSITION], [0, 8, 12, 16, 32, 40, 48]);
        assert_eq!([COMMITTED, TAIL, SIZE, CUT, PAGES, PREVIOUS, BEHIND, HASH], [56, 64, 72, 80, 88, 96, 112, 128]);
        assert_eq!([LIST, LIST_ENTRY, CHECKS_ENTRY], [144, 16, 16]);
        assert_eq!([data_start(0, 1), data_start(1, 2), data_start(247, 1)], [Some(192), Some(192), Some(4096)]);
        assert_eq!([data_start(248, 1), data_start(124, 125), data_start(0, 0)], [None, None, None]);
    }

    #[test]
    fn records_fill_their_head_page() {
        assert_eq!(
            [pages_for(0, 0), pages_for(1, 1), pages_for(1, 61), pages_for(1, 62)],
            [Some(1), Some(1), Some(1), Some(2)]
        );
        assert_eq!([pages_for(1, 64), pages_for(122, 122 * 64), pages_for(124, 124 * 64)], [Some(2), Some(123), None]);
    }

    #[test]
    fn goes_to_the_medium_and_back() {
        let mut bytes = page(&sample(), &[FULL]);
        put_checks(&mut bytes, 1, 1, 77, 78);
        let hash = seal(&mut bytes);
        let parsed = parse(&bytes).unwrap().unwrap();
        assert_eq!((parsed.head, parsed.hash, parsed.checks(1)), (sample(), hash, (77, 78)));
        assert_eq!(parsed.list().collect::<Vec<_>>(), [FULL]);
        assert_eq!((parsed.data_start(), parsed.data_len()), (192, 4096));
    }

    #[test]
    fn a_flipped_byte_is_no_record() {
        let good = page(&sample(), &[FULL]);
        for at in 0..PAGE {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(parse(&bad).unwrap().is_none(), "byte {at}");
        }
        assert!(parse(&good[..100]).unwrap().is_none());
    }

    #[test]
    fn wrong_values_under_a_right_hash_are_told() {
        let last = SIZE_MAX / BLOCK as u64;
        let lists: [&[Listed]; 4] =
            [&[], &[Listed { mask: 0, ..FULL }], &[FULL, FULL], &[Listed { block: last, mask: u64::MAX }]];
        for list in lists {
            assert!(parse(&page(&sample(), list)).is_err(), "{list:?}");
        }
        let heads = [
            Head { pages: 3, ..sample() },
            Head { pages: u32::MAX, ..sample() },
            Head { pages: 0, ..sample() },
            Head { cut: 7001, ..sample() },
            Head { size: u64::MAX, ..sample() },
            Head { epoch: 0, ..sample() },
            Head { committed: 3, ..sample() },
            Head { tail: 3, ..sample() },
            Head { kind: Kind::Note, committed: 3, ..sample() },
        ];
        for head in heads {
            assert_eq!(parse(&page(&head, &[FULL])).err().map(|e| e.errno()), Some(libc::EIO), "{head:?}");
        }
        let mut bytes = page(&sample(), &[FULL]);
        for (at, value) in [(KIND, 4u32), (COUNT, u32::MAX), (COUNT, 200)] {
            put(&mut bytes, at, &value.to_le_bytes());
            seal(&mut bytes);
            assert!(parse(&bytes).is_err());
        }
    }
}
