//! The writer: epochs are appended (`append`), segments recycled (`space`).

mod append;
mod early;
mod places;
mod space;

use super::LINE;
use super::area::Area;
use crate::error::{Error, Result};
use crate::journal::inplace::Commit;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::records::{Geometry, Place};
use crate::map::guard;
use crate::rule::{Rule, holds};
use early::EarlyBlocks;
use std::sync::Arc;

pub(crate) use early::{EarlyPlace, MOST as MOST_EARLY};

/// The epoch of the first slot, which has the file's initial size.
pub(crate) const FOUND: u64 = 1;

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
    early: Box<EarlyBlocks>,
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
        log.area.touch(|| false);
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
            early: Box::default(),
        }
    }

    /// What the next owner has to know, with each segment's generation and last epoch. `None`: impossible now, a
    /// segment is being made.
    pub fn leave_state(&mut self) -> Result<Option<(State, Vec<u64>)>> {
        self.usable()?;
        self.early.forget();
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
        self.early.forget();
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

    /// The journal lies in another file, by what `change` does to its descriptor.
    pub fn move_by(&mut self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.early.forget();
        self.area.mapped().move_by(change)
    }

    fn usable(&self) -> Result<()> {
        if self.suspect && holds(Rule::FailedFlushIsForGood) {
            return Err(Error::with(libc::EIO, "the journal could not be written earlier: it takes no more commits"));
        }
        Ok(())
    }
}
