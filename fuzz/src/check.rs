//! The checks of `docs/format.md`, written from that text and not from the library's code: a fuzzer that cannot get
//! past them would only reach the first line of every reader.

use famio::journal::JournalId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The key of a journal in place.
pub fn key(id: JournalId) -> u64 {
    let half = |at: usize| u64::from_le_bytes(id.0[at..at + 8].try_into().expect("8 bytes"));
    half(0) ^ half(8).rotate_left(32)
}

/// The check of some words.
pub fn check(key: u64, number: u64, words: &[u64]) -> u64 {
    let mut bytes = Vec::new();
    for word in [key, number].iter().chain(words) {
        bytes.extend(word.to_le_bytes());
    }
    xxh3_64(&bytes) >> 16 | 0xFA31 << 48
}

/// An epoch word with its top byte.
pub fn epoch_word(epoch: u64, kind: u64) -> u64 {
    let payload = (epoch & ((1 << 54) - 1)) | (kind & 3) << 54;
    let fold = payload.to_le_bytes()[..7].iter().fold(0xA5, |sum, byte| sum ^ byte);
    payload | u64::from(fold) << 56
}

/// The hash of a record's first page.
pub fn seal_record(page: &mut [u8]) {
    page[128..144].fill(0);
    let hash = xxh3_128(page);
    page[128..144].copy_from_slice(&hash.to_le_bytes());
}

/// The hash of a segment's head page.
pub fn seal_segment(page: &mut [u8]) {
    let mut bytes = page[..80].to_vec();
    bytes.extend(xxh3_128(&page[96..]).to_le_bytes());
    let hash = xxh3_128(&bytes);
    page[80..96].copy_from_slice(&hash.to_le_bytes());
}

/// The checksum of the mark of a file without a journal.
pub fn seal_growing_mark(mark: &mut [u8]) {
    let sum = xxh3_64(&[&mark[..56], &mark[64..]].concat());
    mark[56..64].copy_from_slice(&sum.to_le_bytes());
}
