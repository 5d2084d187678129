//! The writer: epochs are appended, segments recycled.

use super::LINE;
use super::area::{Area, Growth};
use super::record::{Head, list_lines, put_list};
use crate::error::{Error, Result};
use crate::index::BLOCK;
use crate::journal::inplace::Commit;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::records::{Batch, Block, GRANULE, Geometry, Place, mask_runs};
use crate::map::guard;
use crate::rule::{Rule, holds};
use std::sync::Arc;

/// The epoch of the first slot, which has the file's initial size.
pub(crate) const FOUND: u64 = 1;

/// Bytes of a segment that [`TieredLog::reserve`] does not count on: a block that does not fit at the end, its list,
/// and the head of a record that is split at the end of a segment.
const SLACK: u64 = (2 * LINE + BLOCK + LINE) as u64;

/// One segment, as its writer knows it.
struct Segment {
    place: Place,
    /// 0: never entered.
    generation: u64,
    /// The highest epoch of its records.
    last_epoch: u64,
}

/// The log of one file, open for appending. One writer at a time.
pub(crate) struct TieredLog {
    area: Arc<Area>,
    segments: Vec<Segment>,
    /// The segment appended to, and the journal's next byte.
    current: Option<(usize, u64)>,
    generation: u64,
    /// The number of the last record.
    record: u64,
    committed: u64,
    size: u64,
    /// Up to this epoch everything is in the file, and the journal says so durably.
    tail: u64,
    suspect: bool,
    used: u64,
    /// Bytes that can surely be appended, as far as that was counted.
    sure: u64,
    /// Bytes appended so far.
    written: u64,
    /// The generation of the segment for which another was asked for.
    asked: u64,
    /// The head line and list of a record that is being written.
    buffer: Vec<u8>,
}

/// What the next owner of a session has to know, in words.
pub(crate) type State = [u64; 9];

impl TieredLog {
    /// Begins the log of a journal in state *creating*: its first segment, and a slot with the file's initial size.
    /// Durable before the journal is active.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: no space.
    pub fn create(mapped: Mapped, size: u64, geometry: Geometry) -> Result<Self> {
        geometry.check()?;
        guard::install()?;
        let mut log = Self::new(Area::new(mapped, geometry), size);
        log.area.make(1)?;
        log.adopt();
        let area = &log.area;
        area.store(|| {
            area.tail().store(FOUND);
            area.mapped().slots().store_with(Commit { epoch: FOUND, size }, 0);
            area.mapped().medium().fence();
        })?;
        Ok(log)
    }

    /// The log of a session that another process began. [`take_state`](Self::take_state) continues it.
    ///
    /// # Errors
    /// Those of the guard.
    pub fn attach(mapped: Mapped, geometry: Geometry) -> Result<Self> {
        guard::install()?;
        Ok(Self::new(Area::new(mapped, geometry), 0))
    }

    fn new(area: Area, size: u64) -> Self {
        Self {
            area: Arc::new(area),
            segments: Vec::new(),
            current: None,
            generation: 0,
            record: 0,
            committed: FOUND,
            size,
            tail: FOUND,
            suspect: false,
            used: 0,
            sure: 0,
            written: 0,
            asked: 0,
            buffer: Vec::new(),
        }
    }

    /// What the next owner has to know, with each segment's generation and last epoch. `None`: impossible now, a
    /// segment is being made.
    pub fn leave_state(&mut self) -> Result<Option<(State, Vec<u64>)>> {
        self.usable()?;
        if self.area.is_growing() {
            return Ok(None);
        }
        self.adopt();
        let (index, at) = self.current.map_or((0, 0), |(index, at)| (index as u64 + 1, at));
        let state =
            [index, at, self.generation, self.record, self.committed, self.size, self.tail, self.written, self.asked];
        let segments = self.segments.iter().flat_map(|segment| [segment.generation, segment.last_epoch]);
        Ok(Some((state, segments.collect())))
    }

    /// Goes on where the last owner has left it.
    ///
    /// # Errors
    /// `EIO`: no such journal can exist.
    pub fn take_state(&mut self, state: State, segments: &[u64]) -> Result<()> {
        let [index, at, generation, record, committed, size, tail, written, asked] = state;
        self.area.made_by_others(segments.len() / 2)?;
        self.segments.clear();
        self.adopt();
        for (segment, words) in self.segments.iter_mut().zip(segments.chunks_exact(2)) {
            (segment.generation, segment.last_epoch) = (words[0], words[1]);
        }
        let current = (index as usize).checked_sub(1).map(|index| (index, at));
        let is_there = |&(index, at): &(usize, u64)| {
            let within = |segment: &Segment| (segment.place.offset..=segment.place.end()).contains(&at);
            at.is_multiple_of(LINE as u64) && self.segments.get(index).is_some_and(within)
        };
        if current.as_ref().is_some_and(|current| !is_there(current)) || tail > committed {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal is not so long"));
        }
        (self.current, self.sure) = (current, 0);
        (self.generation, self.record, self.committed) = (generation, record, committed);
        (self.size, self.tail, self.written, self.asked) = (size, tail, written, asked);
        self.count_used();
        Ok(())
    }

    /// The last committed epoch.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The epoch up to which everything is in the file, as the journal says.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The bytes of the journal's file.
    pub fn len(&self) -> u64 {
        self.area.end(self.area.count())
    }

    /// The size to which the journal may grow.
    pub fn limit(&self) -> u64 {
        self.area.limit()
    }

    /// Bytes appended since it was begun.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of the segments that are needed.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Without the current one, which cannot be given up.
    pub fn used_before_current(&self) -> u64 {
        self.used.saturating_sub(self.current.map_or(0, |(index, _)| self.segments[index].place.len))
    }

    fn count_used(&mut self) {
        self.used = (0..self.segments.len()).filter(|&i| !self.is_free(i)).map(|i| self.segments[i].place.len).sum();
    }

    /// The epoch up to which everything must be in the file so that the rest takes at most `keep` bytes.
    pub fn epoch_before(&self, keep: u64) -> u64 {
        let mut needed: Vec<&Segment> =
            (0..self.segments.len()).filter(|&i| !self.is_free(i)).map(|i| &self.segments[i]).collect();
        needed.sort_unstable_by_key(|segment| core::cmp::Reverse(segment.generation));
        let mut bytes = 0;
        let beyond = needed.iter().find(|segment| {
            bytes += segment.place.len;
            bytes > keep && self.current.is_none_or(|(index, _)| self.segments[index].generation != segment.generation)
        });
        beyond.map_or(self.tail, |segment| segment.last_epoch)
    }

    /// The bytes of journal that an epoch with this many changed blocks, with this many changed granules in all, takes
    /// at most.
    pub const fn cost(blocks: u64, granules: u64) -> u64 {
        // A list for each block alone, in case each goes to another segment; segments have slack for the heads.
        (1 + list_lines(blocks)) * LINE as u64 + granules * GRANULE as u64
    }

    /// Ensures that `bytes` can be appended (the [`cost`](Self::cost) of everything in the open epoch that is not yet
    /// appended). `ENOSPC` and `EDQUOT` come here, at the write, not at the commit.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.usable()?;
        if bytes <= self.sure {
            return Ok(());
        }
        while self.room() < bytes {
            let have = self.segments.len();
            self.adopt();
            if self.segments.len() == have {
                match self.area.make(have + 1) {
                    Err(e) if e.errno() == libc::ENOSPC && self.rewind() => continue,
                    made => made?,
                }
                self.adopt();
            }
        }
        self.sure = self.room();
        Ok(())
    }

    /// With everything in the file, the current segment is like any other: it can be entered anew. Whether there was
    /// one. Earlier, only its rest would be lost: [`is_free`](Self::is_free) looks at the tail by itself.
    fn rewind(&mut self) -> bool {
        if self.tail < self.committed {
            return false;
        }
        let was_in_use = self.current.take().is_some();
        self.count_used();
        was_in_use
    }

    /// Whether it is time to make a segment: the current one is half full, and none is free. True once for each
    /// segment.
    pub fn wants_segment(&mut self) -> bool {
        let Some((index, at)) = self.current else { return false };
        let place = self.segments[index].place;
        let half_full = (at - place.offset) * 2 >= place.len;
        let wants = half_full && self.asked != self.generation && self.free().is_none();
        if wants {
            self.asked = self.generation;
        }
        wants
    }

    /// The next segment to make in the background, if none is free and more are allowed.
    pub fn next_growth(&mut self) -> Option<Growth> {
        self.adopt();
        let wants = self.free().is_none() && !self.suspect && self.area.may_grow();
        wants.then(|| Growth { area: self.area.clone(), count: self.segments.len() + 1 })
    }

    /// Commits an epoch: durable on return.
    ///
    /// # Errors
    /// `ENOSPC` (less was reserved, and there is no more) and `EINVAL` come before anything is stored. After any
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
                medium.fence();
            }
            slots.put(&slot);
            medium.fence();
        })
    }

    /// Everything up to `epoch` is in the file, and the file was synced since: segments become free.
    pub fn release(&mut self, epoch: u64) {
        let tail = self.tail.max(epoch.min(self.committed));
        if tail == self.tail || self.suspect {
            return;
        }
        let area = &self.area;
        let stored = area.store(|| {
            area.tail().store(tail);
            if holds(Rule::TieredTailBeforeReuse) {
                area.mapped().medium().fence();
            }
        });
        match stored {
            Ok(()) => {
                self.tail = tail;
                self.count_used();
            }
            Err(_) => self.suspect = true, // reported to the next write
        }
    }

    /// If nothing is pending: frees all segments but the first.
    pub fn shrink(&mut self) -> Result<()> {
        self.usable()?;
        self.adopt();
        if self.tail < self.committed || self.segments.len() <= 1 {
            return Ok(());
        }
        (self.current, self.sure) = (None, 0);
        self.area.cut(1)?;
        self.segments.truncate(1);
        self.count_used();
        Ok(())
    }

    /// Gives back segments at the end that are not needed, down to `length` bytes if that is possible, and so that
    /// `reserved` bytes still can be appended. A segment at the end that is in use is left for another one, to go the
    /// next time.
    ///
    /// # Errors
    /// Those of cutting the journal.
    pub fn give_back(&mut self, length: u64, reserved: u64) -> Result<()> {
        self.usable()?;
        self.adopt();
        self.sure = 0;
        if let Some((index, at)) = self.current {
            let rest = (self.segments[index].place.end() - at).saturating_sub(SLACK);
            let is_beyond = self.segments[index].place.end() > length && self.free().is_some_and(|free| free < index);
            if is_beyond && self.room() - rest >= reserved {
                self.current = None;
                self.count_used();
            }
        }
        let mut count = self.segments.len();
        let mut room = self.room();
        while count > 1 && self.segments[count - 1].place.end() > length && self.is_free(count - 1) {
            let lost = (self.segments[count - 1].place.len - LINE as u64).saturating_sub(SLACK);
            if room - lost.min(room) < reserved {
                break;
            }
            room -= lost.min(room);
            count -= 1;
        }
        if count < self.segments.len() {
            self.area.cut(count)?;
            self.segments.truncate(count);
            self.count_used();
        }
        Ok(())
    }

    /// The journal lies in another file, by what `change` does to its descriptor.
    pub fn move_by(&mut self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.area.mapped().move_by(change)
    }

    /// Takes over segments that were made.
    fn adopt(&mut self) {
        let have = self.segments.len();
        let new = self.area.places().take(self.area.count()).skip(have);
        self.segments.extend(new.map(|place| Segment { place, generation: 0, last_epoch: 0 }));
    }

    fn usable(&self) -> Result<()> {
        if self.suspect && holds(Rule::FailedFlushIsForGood) {
            return Err(Error::with(libc::EIO, "the journal could not be written earlier: it takes no more commits"));
        }
        Ok(())
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
        let (mut blocks, mut is_first) = (batch.blocks, true);
        let mut cut = batch.cut;
        loop {
            let needed = 1 + u64::from(!blocks.is_empty()) + blocks.first().map_or(0, |b| b.mask.count_ones().into());
            let room = |&(index, at): &(usize, u64)| self.segments[index].place.end() - at;
            let here = self.current.filter(|here| room(here) >= needed * LINE as u64);
            let (index, at) = match here {
                Some(here) => here,
                None => self.enter()?,
            };
            let (these, rest) = blocks.split_at(fitting(blocks, self.segments[index].place.end() - at));
            let segment = &mut self.segments[index];
            segment.last_epoch = batch.epoch;
            let head = Head {
                number: self.record + 1,
                epoch: batch.epoch,
                is_first,
                size: batch.size,
                cut,
                generation: segment.generation,
                count: these.len() as u32,
                granules: these.iter().map(|block| block.mask.count_ones()).sum(),
                list: 0,
            };
            let len = self.write_record(head, at, these)?;
            self.record += 1;
            self.written += len;
            self.sure = self.sure.saturating_sub(len);
            self.current = Some((index, at + len));
            (blocks, is_first, cut) = (rest, false, batch.size);
            if blocks.is_empty() {
                return Ok(self.record);
            }
        }
    }

    /// Stores one record. Returns its length.
    fn write_record(&mut self, mut head: Head, at: u64, blocks: &[Block<'_>]) -> Result<u64> {
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
            for block in blocks {
                for run in mask_runs(block.mask) {
                    // SAFETY: as above.
                    unsafe { medium.copy(to, block.data.as_ptr().wrapping_add(run.start), run.len()) };
                    to = to.wrapping_add(run.len());
                }
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

    /// The first segment that can be entered.
    fn free(&self) -> Option<usize> {
        (0..self.segments.len()).find(|&index| self.is_free(index))
    }

    /// Whether a segment can be reused: the file has all its epochs.
    fn is_free(&self, index: usize) -> bool {
        let segment = &self.segments[index];
        let is_current = self.current.is_some_and(|(current, _)| current == index);
        let tail = if holds(Rule::TieredReuseAfterTail) { self.tail } else { self.committed };
        segment.generation == 0 || !is_current && segment.last_epoch <= tail
    }

    /// The bytes that can surely be appended.
    fn room(&self) -> u64 {
        let free = (0..self.segments.len()).filter(|&i| self.is_free(i)).map(|i| self.segments[i].place);
        let free: u64 = free.map(|place| (place.len - LINE as u64).saturating_sub(SLACK)).sum();
        let here = self.current.map_or(0, |(index, at)| (self.segments[index].place.end() - at).saturating_sub(SLACK));
        here + free
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
