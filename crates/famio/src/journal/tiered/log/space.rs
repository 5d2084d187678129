//! The space of a log: which segments are in use, what can be appended, and what goes back.

use super::super::LINE;
use super::super::area::Growth;
use super::super::record::list_lines;
use super::early::more_lines;
use super::{Segment, TieredLog};
use crate::error::Result;
use crate::index::BLOCK;
use crate::journal::records::GRANULE;
use crate::rule::{Rule, holds};

/// Bytes of a segment that [`TieredLog::reserve`] does not count on: a block that does not fit at the end, its list,
/// and the head of a record that is split at the end of a segment.
const SLACK: u64 = (2 * LINE + BLOCK + LINE) as u64;

/// The most bytes of free segments that the background makes before they are needed.
const AHEAD: u64 = 4 << 20;
/// Bytes of a long segment that are used when the background looks whether to make more.
const ASK_FROM: u64 = 256 << 10;

impl TieredLog {
    /// Bytes of the segments that are needed.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Without the current one, which cannot be given up.
    pub fn used_before_current(&self) -> u64 {
        self.used.saturating_sub(self.current.map_or(0, |(index, _)| self.segments[index].place.len))
    }

    pub(super) fn count_used(&mut self) {
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
        (1 + list_lines(blocks) + more_lines(blocks)) * LINE as u64 + granules * GRANULE as u64
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
        // What the open epoch has stored early lies in the current segment, perhaps nowhere else.
        if self.tail < self.committed || !self.early.is_empty() {
            return false;
        }
        let was_in_use = self.current.is_some();
        self.leave_segment();
        was_in_use
    }

    /// No segment is the current one.
    fn leave_segment(&mut self) {
        self.early.forget();
        (self.current, self.sure) = (None, 0);
        self.count_used();
    }

    /// Whether it is time to make segments: little is free behind the current one, of which a part is used. True at
    /// most once for each segment.
    pub fn wants_segment(&mut self) -> bool {
        let Some((index, at)) = self.current.filter(|_| self.asked != self.generation) else { return false };
        let place = self.segments[index].place;
        if at - place.offset < (place.len / 2).min(ASK_FROM) {
            return false;
        }
        self.asked = self.generation;
        self.is_short_of_free()
    }

    /// Whether the free segments could be used up before the background has made more.
    fn is_short_of_free(&self) -> bool {
        let wanted = AHEAD.min(self.used / 4).max(1);
        let free = (0..self.segments.len()).filter(|&i| self.is_free(i)).map(|i| self.segments[i].place.len);
        free.sum::<u64>() < wanted
    }

    /// The next segment to make in the background, if little is free and more are allowed.
    pub fn next_growth(&mut self) -> Option<Growth> {
        self.adopt();
        let wants = self.is_short_of_free() && !self.suspect && self.area.may_grow();
        wants.then(|| Growth { area: self.area.clone(), count: self.segments.len() + 1 })
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
        self.leave_segment();
        self.cut(1)
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
            // As in `rewind`.
            if is_beyond && self.early.is_empty() && self.room() - rest >= reserved {
                self.leave_segment();
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
        if count < self.segments.len() { self.cut(count) } else { Ok(()) }
    }

    /// Gives back all segments but the first `count`. Those that the medium does not count any more are not used,
    /// though the journal's file may have stayed as long as it was.
    fn cut(&mut self, count: usize) -> Result<()> {
        let cut = self.area.cut(count);
        self.segments.truncate(self.area.count());
        self.count_used();
        cut
    }

    /// Takes over segments that were made.
    pub(super) fn adopt(&mut self) {
        let have = self.segments.len();
        let new = self.area.places().take(self.area.count()).skip(have);
        self.segments.extend(new.map(|place| Segment { place, generation: 0, last_epoch: 0 }));
    }

    /// The first segment that can be entered.
    pub(super) fn free(&self) -> Option<usize> {
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
