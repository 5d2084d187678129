//! Bringing a file to what records say, of whatever kind of journal they are.

use super::gather::mask_runs;
use super::{BLOCK, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::pmem::Medium;
use std::os::fd::BorrowedFd;

/// Blocks of the file in a stripe: threads write stripes by turns.
const STRIPE: u64 = 256;

/// Where records are read from.
pub(in crate::journal) trait Source: Sync {
    /// One record, as it was found.
    type Record: Sync;

    /// The lowest size since the record before, and the size after it.
    fn sizes(&self, record: &Self::Record) -> (u64, u64);

    /// Reads a record into `buffer`, if `mine` says of any of its blocks that it is wanted: its blocks with their granules, ascending, and
    /// where in the buffer the granules begin, which lie behind one another.
    ///
    /// # Errors
    /// `EIO`: it is not what was found.
    fn read(&self, record: &Self::Record, mine: &dyn Fn(u64) -> bool, buffer: &mut Vec<u8>) -> Result<Option<Content>>;
}

/// What a record writes.
pub(in crate::journal) struct Content {
    /// Blocks, and their granules.
    pub list: Vec<(u64, u64)>,
    /// Where the granules begin.
    pub data: usize,
}

/// What brings records to a file.
pub(in crate::journal) struct Apply<'a, S: Source> {
    pub source: &'a S,
    pub file: BorrowedFd<'a>,
    pub medium: &'a dyn Medium,
    pub threads: usize,
    pub progress: &'a (dyn Fn(u64) + Sync),
}

impl<S: Source> Apply<'_, S> {
    /// Everything, in order, and the file's size at the end, if that is known. The file's size afterwards.
    pub fn all(&self, records: &[S::Record], last: Option<u64>) -> Result<u64> {
        let sizes = |record: &S::Record| self.source.sizes(record);
        let mut size = rustix::fs::fstat(self.file)?.st_size as u64;
        let mut rest = records;
        while let Some(first) = rest.first() {
            // Bytes above the cut are of no epoch any more, or of a later one that comes again.
            let (cut, _) = sizes(first);
            if cut < size {
                self.medium.ftruncate(self.file, cut)?;
                size = cut;
            }
            // Up to the next cut, records can be applied in any order that keeps each block's own.
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
            // Also where it has that size: by a flush that failed, what is visible may be forgotten.
            Some(last) => self.resize(size, last).map(|()| last),
            None => Ok(size),
        }
    }

    /// Sets the size. Where the file grows, the rest of its last block is written: when it was cut, the kernel cleared that in
    /// memory, and by a flush that failed may have forgotten to on the medium.
    fn resize(&self, from: u64, to: u64) -> Result<()> {
        self.medium.ftruncate(self.file, to)?;
        let rest = from.next_multiple_of(BLOCK as u64).min(to).saturating_sub(from) as usize;
        if rest > 0 { self.medium.pwritev(self.file, &[&ZERO_PAGE[..rest]], from) } else { Ok(()) }
    }

    /// Records without a cut among them.
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

    /// The blocks of one thread.
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
        // Neighbours in the file are neighbours in the record.
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

    /// Writes to the file what lies below the record's size.
    fn put(&self, size: u64, buffer: &[u8], run: &Run) -> Result<()> {
        let end = run.end().min(size);
        if end <= run.offset {
            return Ok(());
        }
        let length = (end - run.offset) as usize;
        self.medium.pwritev(self.file, &[&buffer[run.from..run.from + length]], run.offset)
    }
}

/// Contiguous bytes of a record, and where they go.
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
