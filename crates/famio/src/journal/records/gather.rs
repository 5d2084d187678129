//! Records assembled for writing: heads and small pieces in a buffer of this module, the rest where the caller has
//! it.

use super::head::{Head, Listed, data_start, pages_for, put_checks, seal};
use super::segment::SegmentHead;
use super::{BLOCK, GRANULE, PAGE, ZERO_PAGE};
use crate::error::Result;
use crate::pmem::Medium;
use core::ops::Range;
use std::os::fd::AsFd;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Runs of granules shorter than this are copied: another buffer costs the kernel about as much.
const COPIED: usize = 512;

/// The buffers of one write. Fewer than a [`Medium`] passes to one system call, so that no call ends within a page.
const SLICES: usize = 56;

/// The most buffers of one page: runs that are not copied, each followed by a copied one, and the padding.
const SLICES_OF_PAGE: usize = 2 * (PAGE / COPIED) + 2;

/// Changed granules of one block of the file.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The block: its offset in the file, divided by [`BLOCK`].
    pub number: u64,
    /// Bit `i`: granule `i` was changed.
    pub mask: u64,
    /// The block's contents; only granules in `mask` are read. They must not change during the call.
    pub data: &'a [u8; BLOCK],
}

/// What is appended in one call.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The open epoch: one more than the last committed.
    pub epoch: u64,
    /// The file's size after it.
    pub size: u64,
    /// The lowest size since the last batch: replay cuts the file to it first. `size` of the last batch if none was
    /// lower.
    pub cut: u64,
    /// Whether the epoch ends here, or continues.
    pub commit: bool,
    /// In ascending order, each once, with a mask that is not 0.
    pub blocks: &'a [Block<'a>],
}

/// A piece of the write.
enum Piece<'a> {
    /// From this module's buffer.
    Own(Range<usize>),
    /// From a block.
    Source(&'a [u8; BLOCK], Range<usize>),
}

impl Piece<'_> {
    fn range(&self) -> &Range<usize> {
        match self {
            Piece::Own(range) | Piece::Source(_, range) => range,
        }
    }
}

/// Contiguous pages.
pub(super) struct Gather<'a> {
    own: Vec<u8>,
    pieces: Vec<Piece<'a>>,
    /// The pieces at which a write may begin: page boundaries.
    writes: Vec<usize>,
}

/// How many of `blocks` fit into a record of at most `room` pages, and how many pages they take.
pub(super) fn fitting(blocks: &[Block<'_>], room: usize) -> Option<(usize, usize)> {
    let mut best = if blocks.is_empty() { Some((0, 1)) } else { None };
    let mut granules = 0;
    for (i, block) in blocks.iter().enumerate() {
        granules += block.mask.count_ones() as usize;
        match pages_for(i + 1, granules) {
            Some(pages) if pages <= room => best = Some((i + 1, pages)),
            _ => break,
        }
    }
    best.filter(|&(_, pages)| pages <= room)
}

impl<'a> Gather<'a> {
    /// An empty one, reusing a buffer.
    pub fn new(mut own: Vec<u8>) -> Self {
        own.clear();
        Gather { own, pieces: Vec::new(), writes: Vec::new() }
    }

    /// Returns the buffer for reuse.
    pub fn into_buffer(self) -> Vec<u8> {
        self.own
    }

    /// Adds the head page of a segment. `checks`: of the segment's pages as they lie on the medium; updated.
    pub fn segment(&mut self, head: &SegmentHead, checks: &mut [u64]) {
        let start = self.page();
        head.put(&mut self.own[start..start + PAGE]);
        checks[0] = xxh3_64(&self.own[start..start + PAGE]);
    }

    /// Adds a record; returns its hash. `checks`: of the segment's pages from the record on; updated.
    pub fn record(&mut self, head: &Head, blocks: &[Block<'a>], checks: &mut [u64]) -> u128 {
        let start = self.page();
        let list = blocks.iter().map(|block| Listed { block: block.number, mask: block.mask });
        head.put(&mut self.own[start..start + PAGE], list);
        let mut page = 0;
        let mut at = data_start(blocks.len(), head.pages as usize).unwrap_or(PAGE);
        let mut hasher = Xxh3::new();
        let padding = blocks.iter().map(|block| block.mask.count_ones() as usize * GRANULE).sum::<usize>() + at;
        let padding = (&ZERO_PAGE, 0..padding.next_multiple_of(PAGE) - padding);
        for (data, mut run) in blocks.iter().flat_map(runs).chain([padding]) {
            while !run.is_empty() {
                if at == PAGE {
                    (page, at) = (page + 1, 0);
                    self.may_begin_write();
                }
                let here = run.start..run.end.min(run.start + PAGE - at);
                if page == 0 {
                    self.own[start + at..start + at + here.len()].copy_from_slice(&data[here.clone()]);
                } else {
                    hasher.update(&data[here.clone()]);
                    self.push(data, here.clone());
                }
                at += here.len();
                run.start = here.end;
                if page > 0 && at == PAGE {
                    let new = hasher.digest();
                    put_checks(&mut self.own[start..start + PAGE], blocks.len(), page, new, checks[page]);
                    checks[page] = new;
                    hasher.reset();
                }
            }
        }
        let hash = seal(&mut self.own[start..start + PAGE]);
        checks[0] = xxh3_64(&self.own[start..start + PAGE]);
        hash
    }

    /// Adds a page of zeros to the buffer.
    fn page(&mut self) -> usize {
        self.may_begin_write();
        let start = self.own.len();
        self.own.resize(start + PAGE, 0);
        self.push_own(start..start + PAGE);
        start
    }

    fn push(&mut self, data: &'a [u8; BLOCK], range: Range<usize>) {
        if range.len() < COPIED {
            let start = self.own.len();
            self.own.extend_from_slice(&data[range]);
            self.push_own(start..self.own.len());
            return;
        }
        if self.may_extend()
            && let Some(Piece::Source(last, before)) = self.pieces.last_mut()
            && core::ptr::eq(*last, data)
            && before.end == range.start
        {
            before.end = range.end;
        } else {
            self.pieces.push(Piece::Source(data, range));
        }
    }

    fn push_own(&mut self, range: Range<usize>) {
        if self.may_extend()
            && let Some(Piece::Own(before)) = self.pieces.last_mut()
            && before.end == range.start
        {
            before.end = range.end;
        } else {
            self.pieces.push(Piece::Own(range));
        }
    }

    /// At a page boundary: whether the next page begins a new write.
    fn may_begin_write(&mut self) {
        let since = self.writes.last().copied().unwrap_or(0);
        if self.pieces.is_empty() || self.pieces.len() - since + SLICES_OF_PAGE > SLICES {
            self.writes.push(self.pieces.len());
        }
    }

    /// Whether the last piece and the next one belong to the same write.
    fn may_extend(&self) -> bool {
        self.writes.last() != Some(&self.pieces.len())
    }

    /// The bytes of everything.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.range().len() as u64).sum()
    }

    /// Writes everything to `offset`.
    pub fn write(&self, journal: impl AsFd, medium: &dyn Medium, mut offset: u64) -> Result<()> {
        let ends = self.writes.iter().copied().skip(1).chain([self.pieces.len()]);
        for (from, to) in self.writes.iter().copied().zip(ends) {
            let bufs: Vec<&[u8]> = self.pieces[from..to]
                .iter()
                .map(|piece| match piece {
                    Piece::Own(range) => &self.own[range.clone()],
                    Piece::Source(data, range) => &data[range.clone()],
                })
                .collect();
            medium.pwritev(journal.as_fd(), &bufs, offset)?;
            offset += self.pieces[from..to].iter().map(|piece| piece.range().len() as u64).sum::<u64>();
        }
        Ok(())
    }
}

/// The runs of changed bytes of a block.
fn runs<'a>(block: &Block<'a>) -> impl Iterator<Item = (&'a [u8; BLOCK], Range<usize>)> + use<'a> {
    let data = block.data;
    mask_runs(block.mask).map(move |run| (data, run))
}

/// The runs of a mask, in bytes of the block.
pub(in crate::journal) fn mask_runs(mut mask: u64) -> impl Iterator<Item = Range<usize>> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let start = mask.trailing_zeros();
        let length = (mask >> start).trailing_ones();
        mask = if start + length == 64 { 0 } else { mask >> (start + length) << (start + length) };
        Some(start as usize * GRANULE..(start + length) as usize * GRANULE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_masks() {
        let all = |mask| mask_runs(mask).map(|r| (r.start / GRANULE, r.end / GRANULE)).collect::<Vec<_>>();
        assert_eq!(all(0), []);
        assert_eq!(all(u64::MAX), [(0, 64)]);
        assert_eq!(all(1 << 63 | 0b1101), [(0, 1), (2, 4), (63, 64)]);
    }

    #[test]
    fn records_take_what_fits() {
        let data = [0; BLOCK];
        let blocks: Vec<_> = (0..300).map(|number| Block { number, mask: u64::MAX, data: &data }).collect();
        assert_eq!(fitting(&[], 1), Some((0, 1)));
        assert_eq!(fitting(&[], 0), None);
        assert_eq!(fitting(&blocks, 1), None);
        assert_eq!(fitting(&blocks, 2), Some((1, 2)));
        let (count, pages) = fitting(&blocks, 1000).unwrap();
        assert!(count >= 121 && pages <= count + 2, "{count} {pages}");
        let thin: Vec<_> = (0..300).map(|number| Block { number, mask: 1, data: &data }).collect();
        assert!(fitting(&thin, 1000).unwrap().0 > 200);
    }
}
