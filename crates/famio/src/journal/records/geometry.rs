//! Where the segments of a journal lie. Four words of the header determine it, so that a reader needs no table.

use super::PAGE;
use crate::error::{Error, Result};
use crate::journal::header::{self, GEOMETRY_WORDS};
use crate::pmem::TestHooks;

/// The words of the header's geometry.
const FIRST: usize = 0;
const NEXT: usize = 1;
const MAX: usize = 2;
const COUNT: usize = 3;

/// Number of segments of one length before the length doubles.
const OF_ONE_LENGTH: usize = 4;

/// The shortest segment: its header, a note, and a record of one block whose head page is full.
const MIN_SEGMENT_LEN: u64 = 8 * PAGE as u64;
const MAX_SEGMENT_LEN: u64 = 1 << 30;

/// More segments than a journal of many terabytes has.
const MAX_SEGMENTS: u64 = 1 << 16;

/// The lengths of segments: one of `first` bytes, four of `next`, four of twice that, and so on up to `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Length of the first segment.
    pub first: u64,
    /// Length of the second.
    pub next: u64,
    /// Length of the longest.
    pub max: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry { first: 256 << 10, next: 1 << 20, max: 16 << 20 }
    }
}

impl Geometry {
    /// The geometry of a new journal.
    pub fn of_new() -> Self {
        Geometry::default().or_of_test()
    }

    /// The geometry of a new journal in memory. A write that is ahead of the background waits until a segment is made,
    /// which takes as long as the segment: about a millisecond for 2 MiB.
    pub fn of_new_in_memory() -> Self {
        Geometry { max: 2 << 20, ..Geometry::default() }.or_of_test()
    }

    fn or_of_test(self) -> Self {
        TestHooks::current().segments.map_or(self, |[first, next, max]| Geometry { first, next, max })
    }
}

/// Where one segment lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::journal) struct Place {
    pub offset: u64,
    pub len: u64,
}

impl Place {
    pub fn end(self) -> u64 {
        self.offset + self.len
    }
}

impl Geometry {
    /// The places of the segments of a journal of records.
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        self.places_from(header::LEN as u64)
    }

    /// The places of segments, the first of which begins at `offset`.
    pub(in crate::journal) fn places_from(self, mut offset: u64) -> impl Iterator<Item = Place> {
        (0..).map(move |index: usize| {
            let doublings = index.saturating_sub(1) / OF_ONE_LENGTH;
            let longer = self.next.checked_shl(doublings.min(32) as u32).unwrap_or(self.max);
            let len = if index == 0 { self.first } else { longer.min(self.max) };
            let place = Place { offset, len };
            offset += len;
            place
        })
    }

    /// Where a journal with `count` segments ends.
    pub(super) fn end(self, count: usize) -> u64 {
        self.places().nth(count).map_or(u64::MAX, |place| place.offset)
    }

    /// Stores it in the words of a header, with the number of segments.
    pub(crate) fn put(self, count: usize, words: &mut [u64; GEOMETRY_WORDS]) {
        words[FIRST] = self.first;
        words[NEXT] = self.next;
        words[MAX] = self.max;
        words[COUNT] = count as u64;
    }

    /// From the words of a header: the lengths, and the number of segments.
    pub(crate) fn get(words: &[u64; GEOMETRY_WORDS]) -> Result<(Geometry, usize)> {
        let geometry = Geometry { first: words[FIRST], next: words[NEXT], max: words[MAX] };
        geometry.check()?;
        if words[COUNT] > MAX_SEGMENTS {
            return Err(Error::with(libc::EIO, format!("the header tells of {} segments", words[COUNT])));
        }
        Ok((geometry, words[COUNT] as usize))
    }

    /// Whether segments can have these lengths.
    pub(in crate::journal) fn check(self) -> Result<()> {
        let sound = |len: u64| (MIN_SEGMENT_LEN..=MAX_SEGMENT_LEN).contains(&len) && len.is_multiple_of(PAGE as u64);
        if sound(self.first) && sound(self.next) && sound(self.max) && self.next <= self.max {
            return Ok(());
        }
        Err(Error::with(libc::EIO, format!("the header tells of segments of {} to {} bytes", self.first, self.max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_grow_to_a_limit() {
        let lengths: Vec<u64> = Geometry::default().places().take(30).map(|place| place.len >> 10).collect();
        assert_eq!(lengths[..10], [256, 1024, 1024, 1024, 1024, 2048, 2048, 2048, 2048, 4096]);
        assert_eq!((lengths[13], lengths[16], lengths[17], lengths[29]), (8192, 8192, 16384, 16384));
        let places: Vec<Place> = Geometry::default().places().take(5).collect();
        assert_eq!(places[0].offset, 4096);
        assert!(places.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        assert_eq!(Geometry::default().end(2), 4096 + (256 << 10) + (1 << 20));
    }

    #[test]
    fn words_are_checked() {
        let mut words = [0; GEOMETRY_WORDS];
        Geometry::default().put(7, &mut words);
        assert_eq!(Geometry::get(&words).unwrap(), (Geometry::default(), 7));
        for (word, bad) in [(0, 0), (0, 4097), (1, u64::MAX), (2, 1 << 16), (2, 1 << 40), (3, 1 << 40)] {
            let mut words = words;
            words[word] = bad;
            assert_eq!(Geometry::get(&words).unwrap_err().errno(), libc::EIO);
        }
    }
}
