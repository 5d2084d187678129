//! A journal in place as it lies in its file, for recovery and checks. It is read piece by piece and never mapped:
//! its owner, who may be any user, can cut it or change it at any moment.

use super::segment::{CLASS, Geometry, SEGMENTS_MAX, SEGMENTS_START};
use super::slot::{SLOTS, STRIDE};
use super::{Commit, Entry, Extent, GRANULES, Key, Slots, Stored, extent};
use crate::error::{Error, Result};
use crate::journal::header::LEN as HEADER_LEN;
use crate::pmem::Medium;
use crate::sys::read_at;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

/// A cache line of words.
type Line = [AtomicU64; 8];

const LINE: usize = size_of::<Line>();
const GRANULE: usize = (1 << CLASS) / GRANULES;

/// The parts of a journal read so far; the rest is read on demand.
pub(crate) struct Image<'a> {
    file: BorrowedFd<'a>,
    medium: &'static dyn Medium,
    key: Key,
    length: u64,
    /// The page of the slots.
    page: Vec<Line>,
    /// The segments known to be valid.
    segments: Vec<Geometry>,
}

impl<'a> Image<'a> {
    /// Opens the journal in `file`, `length` bytes long, whose header is valid, and reads its slots.
    pub fn open(file: BorrowedFd<'a>, length: u64, key: Key, medium: &'static dyn Medium) -> Result<Self> {
        if length < SEGMENTS_START {
            let what =
                format!("the journal is {length} bytes long, its slots end at {SEGMENTS_START}: it was cut short");
            return Err(Error::with(libc::EIO, what));
        }
        let page = lines(file, HEADER_LEN as u64, SEGMENTS_START as usize - HEADER_LEN)?;
        Ok(Self { file, medium, key, length, page, segments: Vec::new() })
    }

    /// The commit slots.
    pub fn slots(&self) -> Slots<'_> {
        Slots::new(self.page[..].first_chunk().expect("the page has all slots"), self.medium, self.key)
    }

    /// The number of segments.
    pub fn extent(&self) -> Extent<'_> {
        Extent::new(&self.page[(extent::OFFSET as usize - HEADER_LEN) / LINE], self.medium, self.key)
    }

    /// Writes the slot of a commit that was read once more, since it may only be in a cache. Durable after the next
    /// `fdatasync`.
    pub fn write_again(&self, commit: Commit) -> Result<()> {
        let at = (commit.epoch % SLOTS as u64) as usize * STRIDE;
        let words = self.page[at / LINE].iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let bytes: Vec<u8> = words.flatten().collect();
        self.medium.pwritev(self.file, &[&bytes], (HEADER_LEN + at) as u64)
    }

    /// Finds the segments. An error names what is wrong; nothing is changed.
    pub fn find_segments(&mut self) -> Result<()> {
        let damaged = |what: String| Err(Error::with(libc::EIO, what));
        let length = self.length;
        let Some(count) = self.extent().read().filter(|&count| count <= SEGMENTS_MAX as u64) else {
            return damaged("the number of its segments is damaged".into());
        };
        for index in 0..count as usize {
            let geometry = Geometry::of(index);
            if geometry.end() > length {
                let end = geometry.end();
                return damaged(format!(
                    "the journal is {length} bytes long, segment {index} ends at {end}: it was cut short"
                ));
            }
            if !self.find_segment(geometry)? {
                return damaged(format!("segment {index}, at byte {}: its header is damaged", geometry.start));
            }
        }
        Ok(())
    }

    /// Whether the next segment, which lies within the journal, has a valid header; if so, it is known from now on.
    pub fn find_segment(&mut self, geometry: Geometry) -> Result<bool> {
        let line = lines(self.file, geometry.start, LINE)?;
        let sound = geometry.check_header(&line[0], self.key);
        if sound {
            self.segments.push(geometry);
        }
        Ok(sound)
    }

    /// Calls `act` with every entry of the known segments, and its number, in order.
    pub fn each_entry(&self, mut act: impl FnMut(u32, Stored) -> Result<()>) -> Result<()> {
        for segment in &self.segments {
            let table = lines(self.file, segment.start + LINE as u64, segment.count as usize * LINE)?;
            for (words, number) in table.iter().zip(segment.first as u32..) {
                act(number, Entry::new(words, self.medium).read(self.key, number))?;
            }
        }
        Ok(())
    }

    /// Writes all entries of the known segments once more, with mirrors that match their granules. Durable after the
    /// next `fdatasync`.
    pub fn write_entries_again(&self) -> Result<()> {
        for segment in &self.segments {
            let at = segment.start + LINE as u64;
            let table = lines(self.file, at, segment.count as usize * LINE)?;
            let entries = table.iter().map(|words| Entry::new(words, self.medium));
            let bytes: Vec<u8> = entries.flat_map(|entry| entry.with_mirrors()).collect();
            self.medium.pwritev(self.file, &[&bytes], at)?;
        }
        Ok(())
    }

    /// Reads the log block of an entry, beginning with `granule`.
    pub fn read_block(&self, entry: u32, granule: usize, to: &mut [u8]) -> Result<()> {
        debug_assert!(granule * GRANULE + to.len() <= 1 << CLASS);
        let (segment, i) = Geometry::place(entry);
        let Some(segment) = self.segments.get(segment) else { return Err(Error::new(libc::EIO)) };
        read_exactly(self.file, segment.block(i) + (granule * GRANULE) as u64, to)
    }
}

/// Cache lines of the journal.
fn lines(file: BorrowedFd<'_>, at: u64, length: usize) -> Result<Vec<Line>> {
    let mut bytes = vec![0; length];
    read_exactly(file, at, &mut bytes)?;
    let word = |bytes: &[u8], i: usize| u64::from_ne_bytes(core::array::from_fn(|b| bytes[8 * i + b]));
    Ok(bytes.chunks_exact(LINE).map(|line| core::array::from_fn(|i| AtomicU64::new(word(line, i)))).collect())
}

fn read_exactly(file: BorrowedFd<'_>, at: u64, to: &mut [u8]) -> Result<()> {
    let done = read_at(file, at, to).map_err(|e| e.context("reading the journal"))?;
    if done < to.len() {
        return Err(Error::with(libc::EIO, format!("the journal ends at byte {}: it was cut short", at + done as u64)));
    }
    Ok(())
}
