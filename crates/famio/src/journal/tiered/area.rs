//! The mapped file of a tiered journal: its lines, its segments, and how it grows.

use super::record::{generation_of, put_segment};
use super::{LINE, TAIL};
use crate::error::{Error, Result};
use crate::index::BLOCK;
use crate::journal::inplace::mapped::{Mapped, make_room};
use crate::journal::inplace::{Extent, SEGMENTS_START};
use crate::journal::records::{Geometry, Place};
use crate::map::guard;
use crate::pmem::Domain;
use crate::rule::{Rule, in_order};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rustix::mm::Advice;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The most segments of a journal: of the usual 2 MiB, for 128 GiB. Beyond, it is full.
pub(super) const SEGMENTS_MAX: u64 = 1 << 16;
/// Pages that the background touches at a time, and the most that it does at all: writers have used those before.
const TOUCH_STEP: u64 = 256 << 10;
const TOUCH_MOST: u64 = 8 << 20;

/// What the log shares with threads that make segments in the background.
pub(crate) struct Area {
    mapped: Mapped,
    geometry: Geometry,
    limit: u64,
    /// The number of segments. Changed while [`Mapped`] is locked for growing.
    count: AtomicUsize,
    /// Where the last of them ends.
    end: AtomicU64,
    /// Up to here the background has touched the pages.
    touched: AtomicU64,
}

impl Area {
    /// A journal without segments. For a session that another process began, `made_by_others` sets their number
    /// later.
    pub fn new(mapped: Mapped, geometry: Geometry) -> Self {
        // The last used segment must stay while another one is begun.
        let least = geometry.places_from(SEGMENTS_START).nth(2).map_or(u64::MAX, |place| place.offset);
        let limit = mapped.limit().max(least);
        mapped.shared_limit().set_floor(geometry.places_from(SEGMENTS_START).nth(1).map_or(0, |place| place.offset));
        let (end, touched) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { mapped, geometry, limit, count: AtomicUsize::new(0), end, touched }
    }

    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// The size to which the journal may grow.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The number of segments.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The places of the segments, including those yet to be made.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        self.geometry.places_from(SEGMENTS_START)
    }

    /// Where a journal with that many segments ends.
    pub fn end(&self, count: usize) -> u64 {
        self.places().nth(count).map_or(u64::MAX, |place| place.offset)
    }

    fn set_count(&self, count: usize) {
        self.count.store(count, Ordering::Release);
        self.end.store(self.end(count), Ordering::Release);
    }

    /// The address of a block at byte `at` of the journal, for guarded copies: its segment may be gone. `None`: there is
    /// no such segment.
    #[inline]
    pub fn block(&self, at: u64) -> Option<*mut u8> {
        let is_within = at <= self.end.load(Ordering::Acquire).saturating_sub(BLOCK as u64);
        is_within.then(|| self.mapped.base().wrapping_add(at as usize))
    }

    /// The line of the tail.
    pub fn tail(&self) -> Extent<'_> {
        Extent::of_tail(self.mapped.line(TAIL), self.mapped.medium(), self.mapped.key())
    }

    /// Runs `work`, which stores to the journal. It must own nothing, take no lock and not allocate.
    ///
    /// # Errors
    /// `EIO`: an outsider has cut the journal, or its medium is bad.
    #[inline]
    pub fn store<R: Copy>(&self, work: impl FnOnce() -> R) -> Result<R> {
        // SAFETY: the caller's closure may be left at any point. The guard was installed when the file was opened.
        unsafe { guard::run(work) }
            .map_err(|_| Error::with(libc::EIO, "the journal was truncated by an outsider, or its medium is bad"))
    }

    /// Runs `work`, which reads the journal, as [`store`](Self::store).
    #[inline]
    pub fn guarded<R: Copy>(&self, work: impl FnOnce() -> R) -> Result<R> {
        self.store(work)
    }

    /// Whether one more segment is within the limit.
    pub fn may_grow(&self) -> bool {
        let count = self.count();
        (count as u64) < SEGMENTS_MAX && self.end(count + 1) <= self.limit
    }

    /// Makes segments until there are `count`: first their space becomes durable, then their number.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: at the limit, or there is no space.
    pub fn make(&self, count: usize) -> Result<()> {
        let mut maps = self.mapped.grow()?;
        while self.count() < count {
            let have = self.count();
            if !self.may_grow() {
                let what = format!("the journal has reached its limit of {} bytes", self.limit);
                return Err(Error::with(libc::ENOSPC, what));
            }
            let Some(place) = self.places().nth(have) else { return Err(Error::new(libc::ENOSPC)) };
            // First, since it makes nothing longer: after the pool has agreed, only the segment itself can fail.
            self.mapped.map_up_to(&mut maps, place.end())?;
            self.mapped.shared_limit().grow(place.end())?;
            let medium = self.mapped.medium();
            let made = in_order(
                Rule::TieredSegmentBeforeCount,
                || {
                    self.mapped.file().run(|file| {
                        make_room(file, medium, (place.offset, place.end()), place.end())?;
                        medium.fdatasync(file.as_fd())
                    })
                },
                || {
                    self.store(|| {
                        self.mapped.extent().store(have as u64 + 1);
                        medium.fence();
                    })
                },
            );
            if let Err(e) = made {
                // Frees the space on a full disk. Best effort: the number does not count the segment.
                let _ = self.mapped.file().run(|file| medium.ftruncate(file.as_fd(), place.offset));
                self.mapped.shared_limit().set(place.offset);
                return Err(e.context("the journal cannot grow"));
            }
            self.set_count(have + 1);
        }
        Ok(())
    }

    /// Maps the pages of the last segments that were not touched yet, so that no append waits for a fault; gives up as
    /// soon as `is_over` is true. Only advice: a failure does not matter.
    pub fn touch(&self, is_over: impl Fn() -> bool) {
        if !self.mapped.is_in_memory() && self.mapped.domain() != Domain::Pmem {
            return;
        }
        let end = self.end(self.count());
        let mut at = self.touched.swap(end, Ordering::AcqRel).max(end.saturating_sub(TOUCH_MOST));
        while at < end {
            if is_over() {
                self.touched.store(at, Ordering::Release);
                return;
            }
            let len = TOUCH_STEP.min(end - at);
            let from = self.mapped.base().wrapping_add(at as usize);
            // SAFETY: in a mapping of this process, which stays; the pages keep their bytes.
            let _ = unsafe { rustix::mm::madvise(from.cast(), len as usize, Advice::LinuxPopulateWrite) };
            at += len;
        }
    }

    /// Notes that other processes have changed the number of segments to `count`.
    ///
    /// # Errors
    /// `EIO`: there cannot be that many.
    pub fn made_by_others(&self, count: usize) -> Result<()> {
        let mut maps = self.mapped.grow()?;
        let end = self.end(count);
        let size = self.mapped.file().run(|file| Ok(rustix::fs::fstat(file)?.st_size as u64))?;
        if count as u64 > SEGMENTS_MAX || end > size {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal has not so many segments"));
        }
        self.mapped.map_up_to(&mut maps, end)?;
        self.set_count(count);
        self.mapped.shared_limit().set(end);
        Ok(())
    }

    /// Whether a segment is being made.
    pub fn is_growing(&self) -> bool {
        self.mapped.try_grow().is_none()
    }

    /// Gives back all segments but the first `count`, which are not needed. No thread appends meanwhile.
    pub fn cut(&self, count: usize) -> Result<()> {
        let _growing = self.mapped.grow()?;
        if count >= self.count() {
            return Ok(());
        }
        let medium = self.mapped.medium();
        in_order(
            Rule::TieredCountBeforeCut,
            || {
                // The number of segments first: what it does not count may be removed.
                self.store(|| {
                    self.mapped.extent().store(count as u64);
                    medium.fence();
                })?;
                self.set_count(count);
                Ok(())
            },
            || self.mapped.file().run(|file| medium.ftruncate(file.as_fd(), self.end(count))),
        )?;
        self.mapped.shared_limit().set(self.end(count));
        Ok(())
    }

    /// The head line of a segment with a new generation.
    pub(super) fn segment_line(&self, place: Place, generation: u64) -> [u8; LINE] {
        let mut line = [0; LINE];
        put_segment(self.mapped.key(), place.offset, generation, &mut line);
        debug_assert_eq!(generation_of(self.mapped.key(), place.offset, &line), Some(generation));
        line
    }
}

/// A segment to be made, by any thread, while the log goes on.
pub(crate) struct Growth {
    pub(super) area: Arc<Area>,
    pub(super) count: usize,
}

impl Growth {
    /// Creates it. The log takes it into use on its own.
    ///
    /// # Errors
    /// As [`Area::make`].
    pub fn run(self) -> Result<()> {
        self.area.make(self.count)
    }
}
