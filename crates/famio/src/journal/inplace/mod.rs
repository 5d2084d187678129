//! The journal in place: mapped, for files whose stores reach their medium by themselves or by cache-line
//! write-backs. `docs/format.md` describes every byte.
// Cycle: log, zone: a zone is a part of the log of its journal, which gives entries out by zones

mod entry;
mod extent;
mod free;
mod gather;
mod image;
mod log;
pub(crate) mod mapped;
mod segment;
mod slot;
mod view;
mod zone;

pub(crate) use entry::{Constants, Entry, Kind, Stored, Used};
pub(crate) use extent::{Extent, OFFSET as EXTENT_OFFSET};
pub(crate) use free::Free;
pub(crate) use image::Image;
pub(crate) use log::Log;
pub(crate) use segment::{Geometry, SEGMENTS_MAX, SEGMENTS_START};
pub(crate) use slot::{Commit, SLOTS, STRIDE, Slots, SlotsPage};
pub(crate) use view::View;

use super::JournalId;

/// Granules of a block: one bit each in a version.
pub(crate) const GRANULES: usize = 64;

/// Makes the check words of one journal differ from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub u64);

impl Key {
    /// Of the journal with this id.
    pub fn of(id: JournalId) -> Self {
        let [a, b] = [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|i| id.0[at + i])));
        Self(a ^ b.rotate_left(32))
    }

    /// A check over `words` for the object numbered `number`. Never 0, nor one changed byte away from 0: its top two
    /// bytes are fixed, since 0 means "not there". Inlined, since every caller knows the number of words: half the
    /// instructions.
    #[inline(always)]
    pub fn check(self, number: u64, words: &[u64]) -> u64 {
        let mut bytes = [0u8; 80];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.0, number].iter().chain(words)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let hash = xxhash_rust::xxh3::xxh3_64(&bytes[..16 + 8 * words.len()]);
        0xFA31 << 48 | hash >> 16
    }
}
