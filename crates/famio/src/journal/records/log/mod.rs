//! The writer: appends epochs, and recycles segments.

mod hand_over;
mod space;

use super::PAGE;
use super::gather::{Batch, Block, Gather, fitting};
use super::geometry::{Geometry, Place};
use super::head::{Head, Kind};
use super::segment::SegmentHead;
use super::shared::{Keeper, Shared, zero};
use super::{GRANULE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::pools::shares::Limit;
use crate::journal::{Header, JournalId, State};
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A value in [`Segment::checks`].
const UNKNOWN: u64 = 0;

/// Segments that are kept when nothing is pending.
const RESTING: usize = 2;

/// Pages of a segment that [`RecordLog::reserve`] does not count on: a block that does not fit at the end, and the
/// head page and rounding of a record that is split at the end of a segment.
const SLACK: u64 = 4;

/// Pages at the end of a segment reserved for a note: if everything else is full, it says what can be reused.
const FOR_NOTE: u64 = 1;

/// No part of the first segment has to be filled with zeros any more.
const EVERYWHERE: u64 = u64::MAX;

/// A segment, as its writer knows it.
struct Segment {
    place: Place,
    /// 0: never used.
    generation: u64,
    /// The highest epoch of its records.
    last_epoch: u64,
    /// A check of every page as it lies on the medium; 0: unknown, since another process may have written it.
    checks: Vec<u64>,
}

/// The journal of one file, open for appending. One writer at a time.
pub struct RecordLog {
    shared: Arc<Shared>,
    journal_id: JournalId,
    segments: Vec<Segment>,
    /// The segment appended to, and its next page.
    current: Option<(usize, u64)>,
    /// The segment with the last durable commit or note, which says what is committed, and the tail.
    anchor: Option<usize>,
    generation: u64,
    /// The hash of the last record.
    previous: u128,
    committed: u64,
    /// Records of the epoch after `committed` have been written.
    begun: bool,
    size: u64,
    /// The file's size as of the last commit, for notes.
    committed_size: u64,
    /// The lowest size since the last record.
    cut: u64,
    /// Up to this epoch, everything is in the file; and up to this one, a durable record says so.
    checkpointed: u64,
    tail: u64,
    suspect: bool,
    /// Bytes written so far.
    written: u64,
    /// The generation of the segment for which another one was requested.
    asked: u64,
    /// Up to where a new journal's first segment was written, with records or with zeros; behind that, it only has its
    /// space. `EVERYWHERE` once another process may have written there.
    zeroed: u64,
    buffer: Vec<u8>,
}

impl RecordLog {
    /// Begins the records of a journal in state *creating*, durably. `size`: the file's. `limit`: to how many bytes
    /// the journal may grow.
    pub fn create(
        keeper: Arc<dyn Keeper>,
        size: u64,
        geometry: Geometry,
        limit: impl Into<Limit>,
        medium: &'static dyn Medium,
    ) -> Result<RecordLog> {
        let journal_id = keeper.header().journal_id;
        let (shared, zeroed) = Shared::create(keeper, geometry, limit.into(), medium)?;
        let mut log = Self::new(shared, journal_id, size);
        log.zeroed = zeroed;
        log.adopt();
        Ok(log)
    }

    /// The log of a session that another process began. [`take_state`](Self::take_state) continues it.
    pub fn attach(
        keeper: Arc<dyn Keeper>,
        geometry: Geometry,
        limit: impl Into<Limit>,
        medium: &'static dyn Medium,
    ) -> Self {
        let journal_id = keeper.header().journal_id;
        Self::new(Shared::attach(keeper, geometry, limit.into(), medium), journal_id, 0)
    }

    fn new(shared: Shared, journal_id: JournalId, size: u64) -> Self {
        Self {
            shared: Arc::new(shared),
            journal_id,
            segments: Vec::new(),
            current: None,
            anchor: None,
            generation: 0,
            previous: 0,
            committed: 0,
            begun: false,
            size,
            committed_size: size,
            cut: size,
            checkpointed: 0,
            tail: 0,
            suspect: false,
            written: 0,
            asked: 0,
            zeroed: EVERYWHERE,
            buffer: Vec::new(),
        }
    }

    /// The last committed epoch; 0 in a new journal.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether a write or a flush failed: nothing is appended any more.
    pub fn is_suspect(&self) -> bool {
        (self.suspect || self.shared.has_failed()) && holds(Rule::FailedFlushIsForGood)
    }

    /// Size of the journal's file.
    pub fn len(&self) -> u64 {
        self.shared.geometry.end(self.segments.len())
    }

    /// Bytes of the journal that are allocated on the disk.
    #[cfg(test)]
    pub(super) fn space(&self) -> u64 {
        self.shared.geometry.end(self.shared.booked())
    }

    /// Whether nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.current.is_none()
    }

    /// Moves the journal to another file, by what `change` does to its descriptor.
    pub fn move_by(&mut self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.shared.move_by(change)
    }

    /// Bytes appended since it was opened.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The header as it was last stored.
    pub fn header(&self) -> Header {
        self.shared.header()
    }

    /// Changes the header, durably. After an error the log is suspect.
    #[cfg(test)]
    pub fn change_header(&self, mut change: impl FnMut(&mut Header)) -> Result<()> {
        self.shared.change_header(&mut change)
    }

    /// The most bytes of journal that an epoch takes with this many changed blocks and, in all, changed granules.
    pub const fn cost(blocks: u64, granules: u64) -> u64 {
        // A record holds at least 121 blocks, unless it ends with its epoch or its segment.
        let records = blocks / 121 + 1;
        (2 * records + (granules * GRANULE as u64).div_ceil(PAGE as u64)) * PAGE as u64
    }

    /// Appends a piece of the open epoch. With `commit`, the epoch is durable on return. What was appended of the
    /// epoch before must stay valid: a block that is appended again replaces its former content, granule by granule.
    ///
    /// `ENOSPC` (less was reserved, and there is no more) and `EINVAL` come before anything is written. After any
    /// other error, the log is suspect.
    #[cfg(test)]
    pub fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.append_for(batch, None)
    }

    /// As [`append`](Self::append). `file`: the file, whose mark may have to become durable with the commit.
    pub fn append_for(&mut self, batch: &Batch<'_>, file: Option<BorrowedFd<'_>>) -> Result<()> {
        self.usable()?;
        self.check(batch)?;
        self.adopt();
        let granules = batch.blocks.iter().map(|block| u64::from(block.mask.count_ones())).sum();
        if !batch.blocks.is_empty() || !self.has_page() {
            self.reserve(Self::cost(batch.blocks.len() as u64, granules))?;
        }
        self.cut = self.cut.min(batch.cut);
        let mut blocks = batch.blocks;
        let mut done = blocks.is_empty() && !batch.commit;
        while !done {
            done = self.extent(batch, &mut blocks)?;
        }
        if batch.commit {
            self.flush_for(self.checkpointed, file)?;
            self.committed = batch.epoch;
            self.committed_size = batch.size;
            self.begun = false;
        }
        self.size = batch.size;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn journal_for_test(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(self.shared.journal())
    }

    /// Takes over segments that were prepared.
    fn adopt(&mut self) {
        let have = self.segments.len();
        for place in self.shared.geometry.places().take(self.shared.prepared()).skip(have) {
            let checks = vec![xxh3_64(&ZERO_PAGE); (place.len / PAGE as u64) as usize];
            self.segments.push(Segment { place, generation: 0, last_epoch: 0, checks });
        }
    }

    fn usable(&self) -> Result<()> {
        if self.is_suspect() {
            return Err(Error::with(libc::EIO, "a flush of the journal failed earlier: it takes no more commits"));
        }
        Ok(())
    }

    fn check(&self, batch: &Batch<'_>) -> Result<()> {
        let ascending = batch.blocks.windows(2).all(|pair| pair[0].number < pair[1].number);
        let in_range = batch.blocks.iter().all(|block| block.mask != 0 && block.number < i64::MAX as u64 / PAGE as u64);
        let sizes = batch.cut <= batch.size.min(self.size) && batch.size <= i64::MAX as u64;
        if batch.epoch == self.committed + 1 && ascending && in_range && sizes {
            return Ok(());
        }
        Err(Error::with(libc::EINVAL, format!("epoch {} with blocks or sizes out of order", batch.epoch)))
    }

    /// Appends as much as fits into the current segment, or into the next if that is full. Returns whether everything
    /// was appended.
    fn extent<'a>(&mut self, batch: &Batch<'a>, blocks: &mut &'a [Block<'a>]) -> Result<bool> {
        // A commit without blocks serves as a note.
        let keep = if blocks.is_empty() && self.free().is_none() { 0 } else { FOR_NOTE };
        let here = self.current.filter(|&(index, page)| fitting(blocks, self.room_in(index, page, keep)).is_some());
        let mut gather = Gather::new(core::mem::take(&mut self.buffer));
        let (index, mut page) = match here {
            Some(here) => here,
            None => (self.enter(&mut gather)?, 1),
        };
        let first = if here.is_some() { page } else { 0 };
        let mut done = false;
        while let Some((count, pages)) = fitting(blocks, self.room_in(index, page, keep)).filter(|_| !done) {
            self.know(index, page..page + pages as u64 + 1)?;
            let (these, rest) = blocks.split_at(count);
            done = rest.is_empty();
            let kind = if done && batch.commit { Kind::Commit } else { Kind::Part };
            self.record(&mut gather, (index, page), kind, (batch.epoch, batch.size, self.cut), these, pages);
            (*blocks, self.cut) = (rest, batch.size);
            page += pages as u64;
            self.begun = true;
        }
        self.write(gather, index, first)?;
        self.written += (page - first) * PAGE as u64;
        self.current = Some((index, page));
        Ok(done)
    }

    /// The pages from `page` to the end of a segment, except those that are reserved.
    fn room_in(&self, index: usize, page: u64, keep: u64) -> usize {
        (self.segments[index].checks.len() as u64 - keep).saturating_sub(page) as usize
    }

    /// Whether a record of one page certainly fits, even if only in the page for a note.
    fn has_page(&self) -> bool {
        self.current.is_some_and(|(index, page)| self.room_in(index, page, 0) > 0) || self.free().is_some()
    }

    /// Begins the first free segment.
    fn enter(&mut self, gather: &mut Gather<'_>) -> Result<usize> {
        if self.free().is_none() {
            self.shared.count_booked()?;
            self.adopt();
        }
        let index = self.free().ok_or(Error::new(libc::ENOSPC))?;
        self.know(index, 0..3)?;
        self.generation += 1;
        let segment = &mut self.segments[index];
        segment.generation = self.generation;
        let head = SegmentHead {
            journal_id: self.journal_id,
            position: segment.place.offset,
            generation: self.generation,
            committed: self.committed,
            continues: self.begun,
            previous: self.previous,
            behind: segment.checks[1],
        };
        gather.segment(&head, &mut segment.checks);
        Ok(index)
    }

    /// Adds a record at a page of a segment.
    fn record<'a>(
        &mut self,
        gather: &mut Gather<'a>,
        (index, page): (usize, u64),
        kind: Kind,
        (epoch, size, cut): (u64, u64, u64),
        blocks: &[Block<'a>],
        pages: usize,
    ) {
        let segment = &mut self.segments[index];
        segment.last_epoch = segment.last_epoch.max(epoch);
        let head = Head {
            kind,
            journal_id: self.journal_id,
            generation: segment.generation,
            epoch,
            position: segment.place.offset + page * PAGE as u64,
            committed: self.committed,
            tail: self.checkpointed,
            size,
            cut,
            pages: pages as u32,
            previous: self.previous,
            behind: segment.checks.get(page as usize + pages).copied().unwrap_or(0),
        };
        self.previous = gather.record(&head, blocks, &mut segment.checks[page as usize..]);
    }

    fn write(&mut self, gather: Gather<'_>, index: usize, page: u64) -> Result<()> {
        let offset = self.segments[index].place.offset + page * PAGE as u64;
        let written = self.shared.journal().run(|journal| gather.write(journal, self.shared.medium, offset));
        let end = offset + gather.len();
        self.buffer = gather.into_buffer();
        written.map_err(|e| self.fail(e))?;
        self.zero_ahead(index, end);
        Ok(())
    }

    /// A record that ends here has reached what is only allocated of the first segment: each flush would make the disk's
    /// own journal note that a page is written. So as much again gets its zeros with this one; or not, as after an error.
    fn zero_ahead(&mut self, index: usize, end: u64) {
        if index != 0 || end <= self.zeroed {
            return;
        }
        let place = self.segments[index].place;
        self.zeroed = place.end().min(end + (end - place.offset));
        let _ = self.shared.journal().run(|journal| zero(journal, self.shared.medium, end..self.zeroed));
    }

    /// Makes what was written durable; `tail` is the tail in its last record.
    fn flush(&mut self, tail: u64) -> Result<()> {
        self.flush_for(tail, None)
    }

    fn flush_for(&mut self, tail: u64, file: Option<BorrowedFd<'_>>) -> Result<()> {
        let flushed = self.shared.flush(file);
        flushed.map_err(|e| self.fail(e))?;
        // Another thread's flush may have received an error that concerns this one.
        self.usable()?;
        self.tail = tail;
        self.anchor = self.current.map(|(index, _)| index);
        Ok(())
    }

    /// The kernel may have dropped what it could not write: no later success counts (`Rule::FailedFlushIsForGood`).
    fn fail(&mut self, error: Error) -> Error {
        self.suspect = true;
        // If this fails too, recovery treats the last epoch as if its flush had succeeded.
        if self.header().state.can_become_suspect() {
            let _ = self.shared.change_header(&mut |header| header.state = State::Suspect);
        }
        Error::with(libc::EIO, format!("the journal could not be written ({error}); it takes no more commits"))
    }
}
