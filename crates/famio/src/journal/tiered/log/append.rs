//! A commit: the records of its blocks, one after the other, a fence, and the slot.

use super::super::LINE;
use super::super::record::{Head, list_lines, put_list};
use super::TieredLog;
use crate::error::{Error, Result};
use crate::index::BLOCK;
use crate::journal::inplace::Commit;
use crate::journal::records::{Batch, Block, mask_runs};
use crate::rule::{Rule, holds};

/// Records of a longer journal do not stay in the processor's cache: in ordinary memory those of a short epoch are
/// stored past it. Measured with 1 MiB of L2: the SYNC of 4 KiB over 64 MiB takes 260 ns instead of 490; that of 64 KiB,
/// 10 % more.
const CACHED: u64 = 4 << 20;
const SHORT_EPOCH: usize = 4;

/// How the bytes of a record come to the journal.
#[derive(Clone, Copy)]
enum Data {
    ThroughCache,
    PastCache,
    /// They were stored early.
    IsThere,
}

impl TieredLog {
    /// Commits an epoch: durable on return.
    ///
    /// # Errors
    /// `ENOSPC` (less was reserved, and there is no more) and `EINVAL` come before any record is stored. After any
    /// other error, the log takes no more commits.
    pub fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.usable()?;
        self.check(batch)?;
        let granules = batch.blocks.iter().map(|block| u64::from(block.mask.count_ones())).sum();
        self.reserve(Self::cost(batch.blocks.len() as u64, granules))?;
        self.commit(batch).inspect_err(|_| self.suspect = true)?;
        (self.committed, self.size) = (batch.epoch, batch.size);
        Ok(())
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<()> {
        let last = self.records(batch)?;
        let mapped = self.area.mapped();
        let (slots, medium) = (mapped.slots(), mapped.medium());
        // Before the fence: what is stored after it waits until the records have left the processor.
        let slot = slots.encode(Commit { epoch: batch.epoch, size: batch.size }, last);
        self.area.store(|| {
            if holds(Rule::TieredDataBeforeSlot) {
                medium.order_past();
            }
            slots.put(&slot);
            medium.fence();
        })
    }

    fn check(&self, batch: &Batch<'_>) -> Result<()> {
        let ascending = batch.blocks.windows(2).all(|pair| pair[0].number < pair[1].number);
        let in_range =
            batch.blocks.iter().all(|block| block.mask != 0 && block.number < i64::MAX as u64 / BLOCK as u64);
        let sizes = batch.cut <= batch.size.min(self.size) && batch.size <= i64::MAX as u64;
        if batch.commit && batch.epoch == self.committed + 1 && ascending && in_range && sizes {
            return Ok(());
        }
        Err(Error::with(libc::EINVAL, format!("epoch {} with blocks or sizes out of order", batch.epoch)))
    }

    /// Stores the records of an epoch, one after the other, without a fence. Returns the number of the last.
    fn records(&mut self, batch: &Batch<'_>) -> Result<u64> {
        let mut next = Head { is_first: true, epoch: batch.epoch, size: batch.size, cut: batch.cut, ..Head::default() };
        let data = if self.is_past_cache(batch.blocks.len()) { Data::PastCache } else { Data::ThroughCache };
        let count = self.early.all().len();
        for i in 0..count {
            let early = self.early.all()[i];
            let place = early.place(batch.blocks)?;
            let data = if early.is_overwritten { data } else { Data::IsThere };
            self.record(&mut next, early.at, &batch.blocks[place..=place], data)?;
        }
        let last = match count {
            0 => self.records_of(&mut next, batch.blocks, data)?,
            all if all == batch.blocks.len() => self.record,
            _ => {
                let rest: Vec<_> = batch.blocks.iter().filter(|block| !self.early.has(block.number)).copied().collect();
                self.records_of(&mut next, &rest, data)?
            }
        };
        self.early.end();
        Ok(last)
    }

    /// The records of blocks that have yet to be stored.
    fn records_of(&mut self, next: &mut Head, mut blocks: &[Block<'_>], data: Data) -> Result<u64> {
        loop {
            let needed = 1 + u64::from(!blocks.is_empty()) + blocks.first().map_or(0, |b| b.mask.count_ones().into());
            let room = |&(index, at): &(usize, u64)| self.segments[index].place.end() - at;
            let here = self.current.filter(|here| room(here) >= needed * LINE as u64);
            let (index, at) = match here {
                Some(here) => here,
                None => self.enter()?,
            };
            let (these, rest) = blocks.split_at(fitting(blocks, self.segments[index].place.end() - at));
            self.record(next, at, these, data)?;
            blocks = rest;
            if blocks.is_empty() {
                return Ok(self.record);
            }
        }
    }

    /// Stores the epoch's next record at `at`, in the current segment.
    fn record(&mut self, next: &mut Head, at: u64, blocks: &[Block<'_>], data: Data) -> Result<()> {
        let (index, _) = self.current.ok_or(Error::new(libc::ENOSPC))?;
        let segment = &mut self.segments[index];
        segment.last_epoch = next.epoch;
        let head = Head {
            number: self.record + 1,
            generation: segment.generation,
            count: blocks.len() as u32,
            granules: blocks.iter().map(|block| block.mask.count_ones()).sum(),
            ..*next
        };
        let len = self.write_record(head, at, blocks, data)?;
        self.record += 1;
        self.written += len;
        self.sure = self.sure.saturating_sub(len);
        self.current = Some((index, at + len));
        (next.is_first, next.cut) = (false, next.size);
        Ok(())
    }

    /// Whether the blocks of an epoch are stored past the cache.
    fn is_past_cache(&self, blocks: usize) -> bool {
        blocks <= SHORT_EPOCH && self.segments.last().is_some_and(|last| last.place.end() > CACHED)
    }

    /// Stores one record. Returns its length.
    fn write_record(&mut self, mut head: Head, at: u64, blocks: &[Block<'_>], data: Data) -> Result<u64> {
        let mapped = self.area.mapped();
        let (mut few, lines) = ([0; 2 * LINE], 1 + list_lines(blocks.len() as u64));
        let buffer = if lines <= 2 {
            &mut few[..lines as usize * LINE]
        } else {
            self.buffer.clear();
            self.buffer.resize(lines as usize * LINE, 0);
            &mut self.buffer[..]
        };
        let (line, list) = buffer.split_at_mut(LINE);
        head.list = put_list(list, blocks.iter().map(|block| (block.number, block.mask)));
        head.put(mapped.key(), at, line);
        let (buffer, medium) = (&*buffer, mapped.medium());
        let to = mapped.base().wrapping_add(at as usize);
        self.area.store(|| {
            // SAFETY: the record lies within its segment, which is mapped, and where no other thread writes; the
            // sources are the buffer and blocks that are borrowed.
            unsafe { medium.copy(to, buffer.as_ptr(), buffer.len()) };
            let mut to = to.wrapping_add(buffer.len());
            for run in blocks.iter().flat_map(|block| mask_runs(block.mask).map(move |run| (block, run))) {
                let (block, run) = run;
                let from = block.data.as_ptr().wrapping_add(run.start);
                // SAFETY: as above.
                unsafe {
                    match data {
                        Data::ThroughCache => medium.copy(to, from, run.len()),
                        Data::PastCache => medium.copy_past(to, from, run.len()),
                        Data::IsThere => {}
                    }
                }
                to = to.wrapping_add(run.len());
            }
        })?;
        Ok(head.len())
    }

    /// Begins the first free segment. Returns where its first record goes.
    fn enter(&mut self) -> Result<(usize, u64)> {
        let index = self.free().ok_or(Error::new(libc::ENOSPC))?;
        self.generation += 1;
        let segment = &mut self.segments[index];
        (segment.generation, segment.last_epoch) = (self.generation, 0);
        let line = self.area.segment_line(segment.place, self.generation);
        let (medium, base) = (self.area.mapped().medium(), self.area.mapped().base());
        let (to, at) = (base.wrapping_add(segment.place.offset as usize), segment.place.offset + LINE as u64);
        self.current = Some((index, at));
        self.count_used();
        // SAFETY: the first line of a segment, which is mapped and free.
        self.area.store(|| unsafe { medium.copy(to, line.as_ptr(), LINE) })?;
        Ok((index, at))
    }
}

/// How many of `blocks` fit into a record of at most `room` bytes.
fn fitting(blocks: &[Block<'_>], room: u64) -> usize {
    let mut granules = 0;
    let fits = |(i, block): (usize, &Block<'_>)| {
        granules += u64::from(block.mask.count_ones());
        (1 + list_lines(i as u64 + 1) + granules) * LINE as u64 <= room
    };
    blocks.iter().enumerate().map(fits).take_while(|&fits| fits).count()
}
