//! The log's space: segments that are free, those that will be, and what is given back.

use super::{FOR_NOTE, RESTING, RecordLog, SLACK};
use crate::error::Result;
use crate::journal::records::PAGE;
use crate::journal::records::gather::Gather;
use crate::journal::records::geometry::Place;
use crate::journal::records::head::Kind;
use crate::journal::records::shared::Preparation;
use crate::rule::{Rule, holds};

impl RecordLog {
    /// Ensures that `bytes` can be appended (the [`cost`](Self::cost) of everything in the open epoch that is not yet
    /// appended). `ENOSPC` and `EDQUOT` come here, at the write, not at the commit. May write and flush.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.usable()?;
        loop {
            if self.room() >= bytes {
                return Ok(());
            }
            self.adopt();
            if self.room() >= bytes {
                return Ok(());
            }
            if self.note_would_free() {
                self.note()?;
            } else {
                self.shared.book()?;
            }
        }
    }

    /// Whether it is time to prepare a segment: the current one is half full, and none is free, or will be with the
    /// next commit. True once for each segment.
    pub fn wants_segment(&mut self) -> bool {
        let Some((index, page)) = self.current else { return false };
        let half_full = page as usize * 2 >= self.segments[index].checks.len();
        let wants = half_full && self.asked != self.generation && self.lacks_segment();
        if wants {
            self.asked = self.generation;
        }
        wants
    }

    /// The next segment to prepare in the background, if none is free and more are allowed.
    pub fn prepare_next(&mut self) -> Option<Preparation> {
        self.adopt();
        let preparation = || Preparation { shared: self.shared.clone(), count: self.segments.len() + 1 };
        (self.lacks_segment() && !self.is_suspect() && self.shared.may_grow(self.segments.len())).then(preparation)
    }

    pub(super) fn lacks_segment(&self) -> bool {
        !(0..self.segments.len()).any(|index| self.is_free(index) || self.would_free(index))
    }

    /// Everything up to `epoch` is in the file, and the file was synced since. Segments become free as soon as a
    /// durable record says so: the next commit, or a note if space is needed.
    pub fn release(&mut self, epoch: u64) {
        self.checkpointed = self.checkpointed.max(epoch.min(self.committed));
    }

    /// Frees the space of free segments at the end, except for a few.
    pub fn shrink(&mut self) -> Result<()> {
        self.usable()?;
        self.adopt();
        if self.note_would_free() {
            self.note()?;
        }
        self.step_down()?;
        let mut count = self.segments.len();
        while count > RESTING && self.is_free(count - 1) {
            count -= 1;
        }
        if count < self.segments.len() || self.shared.booked() > count {
            self.segments.truncate(count);
            self.shared.shrink(count)?;
        }
        Ok(())
    }

    /// Gives back segments at the end that are not needed, down to `length` bytes if that is possible, and so that
    /// `reserved` bytes still can be appended. A segment at the end that is in use is left for another one, to go the
    /// next time.
    ///
    /// # Errors
    /// Those of the journal's medium.
    pub fn give_back(&mut self, length: u64, reserved: u64) -> Result<()> {
        self.usable()?;
        self.adopt();
        if self.note_would_free() {
            self.note()?;
        }
        // What is booked behind the segments goes first.
        let booked = self.shared.geometry.places().take(self.shared.booked()).skip(self.segments.len());
        let mut room = self.room() - booked.map(Self::room_of).sum::<u64>();
        if let Some((index, page)) = self.current.filter(|_| !self.begun) {
            // With the two pages of the segment to which it moves.
            let rest = (self.room_in(index, page, FOR_NOTE) as u64).saturating_sub(SLACK) + 2;
            let is_beyond = self.segments[index].place.end() > length && self.free().is_some_and(|free| free < index);
            if is_beyond && room >= reserved + rest * PAGE as u64 {
                self.move_down()?;
                room -= rest * PAGE as u64;
            }
        }
        let mut count = self.segments.len();
        while count > RESTING && self.segments[count - 1].place.end() > length && self.is_free(count - 1) {
            let lost = Self::room_of(self.segments[count - 1].place);
            if room - lost.min(room) < reserved {
                break;
            }
            room -= lost.min(room);
            count -= 1;
        }
        if room >= reserved && (count < self.segments.len() || self.shared.booked() > count) {
            self.segments.truncate(count);
            self.shared.shrink(count)?;
        }
        Ok(())
    }

    /// The bytes that can certainly be appended to a segment that is free.
    pub(super) fn room_of(place: Place) -> u64 {
        (place.len / PAGE as u64).saturating_sub(1 + FOR_NOTE + SLACK) * PAGE as u64
    }

    /// The first segment that can be used.
    pub(super) fn free(&self) -> Option<usize> {
        (0..self.segments.len()).find(|&index| self.is_free(index))
    }

    /// Whether a segment can be reused: all its epochs are below the durable tail, which another segment records.
    pub(super) fn is_free(&self, index: usize) -> bool {
        let segment = &self.segments[index];
        let anchor = self.anchor == Some(index) && holds(Rule::TailLiesElsewhere);
        let needed = anchor || self.current.is_some_and(|(current, _)| current == index);
        let tail = if holds(Rule::ReuseAfterDurableTail) { self.tail } else { self.checkpointed };
        segment.generation == 0 || !needed && segment.last_epoch <= tail
    }

    /// The bytes that can certainly be appended.
    pub(super) fn room(&self) -> u64 {
        let pages = |index: usize, page| (self.room_in(index, page, FOR_NOTE) as u64).saturating_sub(SLACK);
        let here = self.current.map_or(0, |(index, page)| pages(index, page));
        let free: u64 = (0..self.segments.len()).filter(|&i| self.is_free(i)).map(|i| pages(i, 1)).sum();
        let have = self.segments.len();
        let booked = self.shared.geometry.places().take(self.shared.booked()).skip(have);
        let booked: u64 = booked.map(|place| (place.len / PAGE as u64).saturating_sub(1 + FOR_NOTE + SLACK)).sum();
        (here + free + booked) * PAGE as u64
    }

    /// Whether a note could be written, and would free something.
    pub(super) fn note_would_free(&self) -> bool {
        let fits = self.current.is_some_and(|(index, page)| self.room_in(index, page, 0) > 0);
        fits && (0..self.segments.len()).any(|index| self.would_free(index))
    }

    /// Whether the next durable record frees a segment that is not free.
    pub(super) fn would_free(&self, index: usize) -> bool {
        let other = self.current.is_none_or(|(current, _)| current != index);
        other && !self.is_free(index) && self.segments[index].last_epoch <= self.checkpointed
    }

    /// If everything is in the file, continues in a free segment nearer to the front, so that those at the end become
    /// free.
    pub(super) fn step_down(&mut self) -> Result<()> {
        let Some((current, _)) = self.current else { return Ok(()) };
        let lower = self.free().is_some_and(|free| free < current);
        if !lower || self.begun || self.checkpointed < self.committed {
            return Ok(());
        }
        self.move_down()
    }

    /// Continues in the first free segment, with a note.
    pub(super) fn move_down(&mut self) -> Result<()> {
        let mut gather = Gather::new(core::mem::take(&mut self.buffer));
        let index = self.enter(&mut gather)?;
        self.record(
            &mut gather,
            (index, 1),
            Kind::Note,
            (self.committed, self.committed_size, self.committed_size),
            &[],
            1,
        );
        self.write(gather, index, 0)?;
        self.current = Some((index, 2));
        self.flush(self.checkpointed)
    }

    /// Records durably up to which epoch everything is in the file.
    pub(super) fn note(&mut self) -> Result<()> {
        let Some((index, page)) = self.current else { return Ok(()) };
        self.know(index, page..page + 2)?;
        let mut gather = Gather::new(core::mem::take(&mut self.buffer));
        self.record(
            &mut gather,
            (index, page),
            Kind::Note,
            (self.committed, self.committed_size, self.committed_size),
            &[],
            1,
        );
        self.write(gather, index, page)?;
        self.current = Some((index, page + 1));
        self.flush(self.checkpointed)
    }
}
