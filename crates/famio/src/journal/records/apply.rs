//! Brings a file to the state described by records, of any kind of journal.

use super::gather::mask_runs;
use super::{BLOCK, GRANULE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use std::os::fd::BorrowedFd;

/// Blocks of the file in a stripe: stripes are dealt out to the threads in turn.
const STRIPE: u64 = 256;

/// Where records are read from.
pub(in crate::journal) trait Source: Sync {
    /// One record, as found.
    type Record: Sync;

    /// The lowest size since the previous record, and the size after this one.
    fn sizes(&self, record: &Self::Record) -> (u64, u64);

    /// Reads a record into `buffer` if `mine` is true for any of its blocks. Returns its blocks with their granules,
    /// ascending, and where in the buffer the granules begin, which lie one after the other.
    ///
    /// # Errors
    /// `EIO`: it has changed since it was found.
    fn read(&self, record: &Self::Record, mine: &dyn Fn(u64) -> bool, buffer: &mut Vec<u8>) -> Result<Option<Content>>;
}

/// The changes of a record.
pub(in crate::journal) struct Content {
    /// Blocks, and their granules.
    pub list: Vec<(u64, u64)>,
    /// Where the granules begin.
    pub data: usize,
}

/// Applies records to a file.
pub(in crate::journal) struct Apply<'a, S: Source> {
    pub source: &'a S,
    pub file: BorrowedFd<'a>,
    pub medium: &'a dyn Medium,
    pub threads: usize,
    pub progress: &'a (dyn Fn(u64) + Sync),
}

impl<S: Source> Apply<'_, S> {
    /// Applies all records, in order, and then sets the file's size, if it is known. Returns the file's size.
    pub fn all(&self, records: &[S::Record], last: Option<u64>) -> Result<u64> {
        let sizes = |record: &S::Record| self.source.sizes(record);
        let mut size = rustix::fs::fstat(self.file)?.st_size as u64;
        let mut rest = records;
        while let Some(first) = rest.first() {
            // Bytes above the cut belong to no epoch any more, or to a later one that is applied again.
            let (cut, _) = sizes(first);
            if cut < size {
                self.medium.ftruncate(self.file, cut)?;
                size = cut;
            }
            // Up to the next cut, records may be applied in any order that keeps the order within each block.
            let uncut = rest.windows(2).take_while(|pair| sizes(&pair[1]).0 >= sizes(&pair[0]).1).count() + 1;
            let (these, later) = rest.split_at(uncut);
            let (_, grown) = sizes(&these[uncut - 1]);
            if grown != size {
                self.resize(size, grown)?;
                size = grown;
            }
            self.uncut(these)?;
            rest = later;
        }
        match last {
            // Even if the size is right already: after a failed flush, the visible size may not be the durable one.
            Some(last) => self.resize(size, last).map(|()| last),
            None => Ok(size),
        }
    }

    /// Sets the size. If the file grows, writes the rest of its last block: the kernel cleared it in memory when the
    /// file was cut, but after a failed flush may not have done so on the medium.
    fn resize(&self, from: u64, to: u64) -> Result<()> {
        self.medium.ftruncate(self.file, to)?;
        let rest = from.next_multiple_of(BLOCK as u64).min(to).saturating_sub(from) as usize;
        if rest > 0 { self.medium.pwritev(self.file, &[&ZERO_PAGE[..rest]], from) } else { Ok(()) }
    }

    /// Applies records without a cut among them.
    fn uncut(&self, records: &[S::Record]) -> Result<()> {
        if self.threads == 1 {
            return self.stripes(records, 0);
        }
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.threads).map(|turn| scope.spawn(move || self.stripes(records, turn))).collect();
            let mine = self.stripes(records, 0);
            let joined = others.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::new(libc::EIO))));
            joined.fold(mine, Result::and)
        })
    }

    /// Applies the stripes of one thread.
    fn stripes(&self, records: &[S::Record], turn: usize) -> Result<()> {
        let mut buffer = Vec::new();
        for record in records {
            self.one(record, turn, &mut buffer)?;
        }
        Ok(())
    }

    fn one(&self, record: &S::Record, turn: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let mine = |block: u64| self.threads == 1 || (block / STRIPE) as usize % self.threads == turn;
        let Some(Content { list, data }) = self.source.read(record, &mine, buffer)? else { return Ok(()) };
        let (_, size) = self.source.sizes(record);
        let mut at = data;
        // Granules adjacent in the file are adjacent in the record.
        let mut pending = Run { offset: 0, from: 0, to: 0 };
        let mut written = 0;
        for (block, granules) in list {
            for run in mask_runs(granules) {
                let offset = block * BLOCK as u64 + run.start as u64;
                let (from, to) = (at, at + run.len());
                at = to;
                if !mine(block) {
                    continue;
                }
                written += run.len() as u64;
                if pending.to != from || pending.end() != offset {
                    self.put(size, buffer, &pending)?;
                    pending = Run { offset, from, to };
                }
                pending.to = to;
            }
        }
        self.put(size, buffer, &pending)?;
        (self.progress)(written);
        Ok(())
    }

    /// Writes the part below the record's size to the file.
    fn put(&self, size: u64, buffer: &[u8], run: &Run) -> Result<()> {
        let end = run.end().min(size);
        if end <= run.offset {
            return Ok(());
        }
        let length = (end - run.offset) as usize;
        self.medium.pwritev(self.file, &[&buffer[run.from..run.from + length]], run.offset)
    }
}

/// Gives what the epochs of these records have written to the granules that are `wanted` of a block, in their order: where
/// it comes in the file, and the bytes, less what a later epoch has cut off.
///
/// # Errors
/// `EIO`: the journal is not what was read. Those of `give`.
pub(in crate::journal) fn each_run<S: Source>(
    source: &S,
    records: &[S::Record],
    wanted: &dyn Fn(u64) -> u64,
    give: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = Vec::new();
    for (record, end) in records.iter().zip(ends(source, records)) {
        let Some(Content { list, data }) = source.read(record, &|block| wanted(block) != 0, &mut buffer)? else {
            continue;
        };
        let mut at = data;
        for (block, granules) in list {
            let wanted = wanted(block) & granules;
            for run in mask_runs(wanted) {
                let before = granules & !(u64::MAX << (run.start / GRANULE));
                let from = at + before.count_ones() as usize * GRANULE;
                let offset = block * BLOCK as u64 + run.start as u64;
                let len = (run.len() as u64).min(end.saturating_sub(offset)) as usize;
                if len > 0 {
                    give(offset, &buffer[from..from + len])?;
                }
            }
            at += granules.count_ones() as usize * GRANULE;
        }
    }
    Ok(())
}

/// Where what each record has written ends in the file: at its size, or where a later one has cut it.
fn ends<S: Source>(source: &S, records: &[S::Record]) -> Vec<u64> {
    let mut later = u64::MAX;
    let end = |record: &S::Record| {
        let (cut, size) = source.sizes(record);
        let end = size.min(later);
        if holds(Rule::ForcedHeedsCuts) {
            later = later.min(cut);
        }
        end
    };
    let mut ends: Vec<u64> = records.iter().rev().map(end).collect();
    ends.reverse();
    ends
}

/// Contiguous bytes of a record, and their position in the file.
struct Run {
    offset: u64,
    from: usize,
    to: usize,
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + (self.to - self.from) as u64
    }
}
