//! A number stored twice in one cache line. It counts the journal's segments: without it, a journal that was cut
//! after a segment would look complete. Tiered journals store their tail in the same way.

use super::Key;
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use core::sync::atomic::{AtomicU64, Ordering};

/// Where the line lies: in the slots' page, between the first two slots.
pub(crate) const OFFSET: u64 = 4096 + 64;
/// Words of one copy: the number, and its check.
const COPY: usize = 2;
/// Number used in the check: those of slots and entries are small, those of segments are multiples of 4096.
const NUMBER: u64 = u64::MAX - 1;
/// Number used in the check of the tail.
const TAIL_NUMBER: u64 = u64::MAX - 3;

/// The number on the medium, twice in one cache line. Its words are stored in order, so that one copy is always valid.
#[derive(Clone, Copy)]
pub(crate) struct Extent<'a> {
    line: &'a [AtomicU64; 8],
    medium: &'static dyn Medium,
    key: Key,
    number: u64,
}

impl<'a> Extent<'a> {
    pub fn new(line: &'a [AtomicU64; 8], medium: &'static dyn Medium, key: Key) -> Self {
        Self { line, medium, key, number: NUMBER }
    }

    /// The tail of a tiered journal, which only increases.
    pub fn of_tail(line: &'a [AtomicU64; 8], medium: &'static dyn Medium, key: Key) -> Self {
        Self { line, medium, key, number: TAIL_NUMBER }
    }

    /// Stores the number and starts its write-back. The headers of the segments that it counts are persistent
    /// already.
    pub fn store(&self, segments: u64) {
        for copy in 0..2 {
            let at = copy * COPY;
            self.medium.store(&self.line[at], segments);
            self.medium.store(&self.line[at + 1], self.key.check(self.number + copy as u64, &[segments]));
        }
        // SAFETY: the line is mapped: it is borrowed.
        unsafe { self.medium.flush(self.line.as_ptr().cast(), 64) }
    }

    /// The number in one copy, and whether the copy is valid.
    pub fn copy(&self, copy: usize) -> (u64, bool) {
        let word = |i: usize| self.line[i].load(Ordering::Acquire);
        let number = word(copy * COPY);
        let fits = word(copy * COPY + 1) == self.key.check(self.number + copy as u64, &[number]);
        (number, fits || !holds(Rule::CountOfSegmentsHasCheck))
    }

    /// The number of segments that may be in use; `None` if both copies are damaged.
    pub fn read(&self) -> Option<u64> {
        let copy = |copy: usize| Some(self.copy(copy)).filter(|(_, sound)| *sound).map(|(number, _)| number);
        copy(0).max(copy(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmem::{Domain, medium};

    #[test]
    fn a_torn_store_leaves_one_of_the_two_numbers_and_a_changed_byte_the_number() {
        let line: [AtomicU64; 8] = Default::default();
        let extent = Extent::new(&line, medium(Domain::Process, false), Key(9));
        assert_eq!(extent.read(), None);
        extent.store(3);
        let before: Vec<u64> = line.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        extent.store(4);
        let after: Vec<u64> = line.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        for stored in 0..=4 {
            for i in 0..4 {
                line[i].store(if i < stored { after[i] } else { before[i] }, Ordering::Relaxed);
            }
            assert_eq!(extent.read(), Some(if stored < 2 { 3 } else { 4 }), "{stored} words stored");
        }
        for byte in 0..64 {
            line[byte / 8].fetch_xor(0x11 << (byte % 8 * 8), Ordering::Relaxed);
            assert_eq!(extent.read(), Some(4), "byte {byte}");
            line[byte / 8].fetch_xor(0x11 << (byte % 8 * 8), Ordering::Relaxed);
        }
    }
}
