//! Commit slots: a ring; the highest valid one is *C*.

use super::Key;
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use core::sync::atomic::{AtomicU64, Ordering};

/// Slots of the ring.
pub(crate) const SLOTS: usize = 8;
/// Bytes from one slot to the next: a prefetch of adjacent lines does not touch the previous slot.
pub(crate) const STRIDE: usize = 256;
/// Words of one copy: epoch, size, a word of the format, check.
const COPY: usize = 4;

/// A commit, as stored in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The epoch that it makes durable.
    pub epoch: u64,
    /// The file's size at that time.
    pub size: u64,
}

/// The lines that contain the slots; the first line of each stride is a slot.
pub(crate) type SlotsPage = [[AtomicU64; 8]; SLOTS * STRIDE / 64];

/// The ring of slots of one journal. Each slot holds its commit twice in one cache line: a torn slot has no valid
/// copy or only the first; a slot damaged later still has one.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    page: &'a SlotsPage,
    medium: &'static dyn Medium,
    key: Key,
}

impl<'a> Slots<'a> {
    pub fn new(page: &'a SlotsPage, medium: &'static dyn Medium, key: Key) -> Self {
        Self { page, medium, key }
    }

    #[inline]
    fn line(&self, slot: usize) -> &'a [AtomicU64; 8] {
        &self.page[slot * STRIDE / 64]
    }

    fn number(slot: usize, copy: usize) -> u64 {
        (slot * 2 + copy) as u64
    }

    /// Stores a commit into its slot and starts its write-back; durable after a fence. The slot of the previous epoch
    /// is never used.
    pub fn store(&self, commit: Commit) {
        self.put(&self.encode_sized(commit));
    }

    /// As [`store`](Self::store), with a word of the format.
    #[inline]
    pub fn store_with(&self, commit: Commit, word: u64) {
        self.put(&self.encode(commit, word));
    }

    /// A commit of a journal in place, to be [`put`](Self::put) into its slot.
    #[inline]
    pub fn encode_sized(&self, commit: Commit) -> [u64; 2 * COPY] {
        self.encode(commit, commit.size) // the low-water size: growing writes zeros, see format.md
    }

    /// A commit with a word of the format, to be [`put`](Self::put) into its slot.
    #[inline]
    pub fn encode(&self, commit: Commit, word: u64) -> [u64; 2 * COPY] {
        let slot = (commit.epoch % SLOTS as u64) as usize;
        let words = [commit.epoch, commit.size, word];
        let [first, second] = [0, 1].map(|copy| self.key.check(Self::number(slot, copy), &words));
        let [epoch, size, word] = words;
        [epoch, size, word, first, epoch, size, word, second]
    }

    /// Stores an [encoded](Self::encode) commit into its slot and starts its write-back: see [`store`](Self::store).
    #[inline]
    pub fn put(&self, words: &[u64; 2 * COPY]) {
        let slot = (words[0] % SLOTS as u64) as usize;
        self.medium.store_line(self.line(slot), words);
        self.flush(slot);
    }

    fn flush(&self, slot: usize) {
        // SAFETY: the line is mapped: it is borrowed.
        unsafe { self.medium.flush(self.line(slot).as_ptr().cast(), 64) }
    }

    /// The words of one copy, and its commit if they are valid.
    pub fn copy(&self, slot: usize, copy: usize) -> ([u64; COPY], Option<Commit>) {
        let words: [u64; COPY] = core::array::from_fn(|i| self.line(slot)[copy * COPY + i].load(Ordering::Acquire));
        let [epoch, size, _, check] = words;
        let fits = check == self.key.check(Self::number(slot, copy), &words[..3]) || !holds(Rule::SlotHasCheck);
        let sound = fits && epoch % SLOTS as u64 == slot as u64;
        (words, sound.then_some(Commit { epoch, size }))
    }

    /// The last commit, if any slot is valid.
    pub fn last(&self) -> Option<Commit> {
        self.last_with().map(|(commit, _)| commit)
    }

    /// The same, with its word of the format.
    pub fn last_with(&self) -> Option<(Commit, u64)> {
        let copies = (0..SLOTS).flat_map(|slot| [self.copy(slot, 0), self.copy(slot, 1)]);
        let sound = copies.filter_map(|(words, commit)| Some((commit?, words[2])));
        sound.max_by_key(|(commit, _)| commit.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmem::{Domain, medium};

    #[test]
    fn the_highest_commit_holds_whatever_byte_changes() {
        let page: SlotsPage = Default::default();
        let slots = Slots::new(&page, medium(Domain::Process, false), Key(3));
        assert_eq!(slots.last(), None);
        for epoch in 1..=20 {
            slots.store(Commit { epoch, size: epoch * 100 });
            assert_eq!(slots.last(), Some(Commit { epoch, size: epoch * 100 }));
        }
        for line in &page {
            for byte in 0..64 {
                line[byte / 8].fetch_xor(0x41 << (byte % 8 * 8), Ordering::Relaxed);
                assert_eq!(slots.last(), Some(Commit { epoch: 20, size: 2000 }), "byte {byte}");
                line[byte / 8].fetch_xor(0x41 << (byte % 8 * 8), Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let page: SlotsPage = Default::default();
        let slots = Slots::new(&page, medium(Domain::Process, false), Key(3));
        (1..=9).for_each(|epoch| slots.store(Commit { epoch, size: epoch }));
        // Epoch 17 goes to the slot of 9 and 1. Its first three words are there, the check is not.
        (10..=16).for_each(|epoch| slots.store(Commit { epoch, size: epoch }));
        for (i, word) in [17, 17, 17].into_iter().enumerate() {
            page[STRIDE / 64][i].store(word, Ordering::Relaxed);
            assert_eq!(slots.last(), Some(Commit { epoch: 16, size: 16 }));
        }
    }
}
