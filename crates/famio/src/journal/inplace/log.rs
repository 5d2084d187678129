//! The mapped journal: slots, entries, log blocks. How it grows: `zone`.

use super::segment::{CLASS, Geometry, SEGMENTS_MAX, SEGMENTS_START};
use super::slot::{SLOTS, STRIDE};
use super::zone::Zone;
use super::{Constants, Entry, Extent, Free, Key, Slots, extent};
use crate::error::{Error, Result};
use crate::index::Arena;
use crate::journal::header::LEN as HEADER_LEN;
use crate::map::{Mapping, RESERVATION, reservation};
use crate::pmem::{Domain, Medium};
use crate::sys::{InternalFd, high_duplicate, shm};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use rustix::fs::FallocateFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

/// A journal in place, mapped and in use by this process.
pub(crate) struct Log {
    /// Where its newest mapping begins.
    base: AtomicPtr<u8>,
    /// For the mapping of a journal that outgrows its first; `None`: it does not grow.
    pub(super) domain: Option<Domain>,
    /// The journal's, which others share.
    pub(super) file: InternalFd,
    /// It lies on tmpfs.
    pub(super) is_in_memory: bool,
    medium: &'static dyn Medium,
    key: Key,
    /// Bytes that the journal may have.
    limit: u64,
    segments: AtomicU32,
    starts: Box<[AtomicU64; SEGMENTS_MAX]>,
    /// All mappings ever made, the newest last: references may lead into any of them. Held while the journal grows.
    pub(super) growing: Mutex<Vec<Mapping>>,
    pub(super) zone: Zone,
}

/// The journal ends at `end`, and has space for `start..filled`; durable after a sync, which the medium has to be asked for: its part
/// is the size.
pub(super) fn make_room(file: impl AsFd, medium: &dyn Medium, (start, filled): (u64, u64), end: u64) -> Result<()> {
    if end > crate::sys::file_size_limit() {
        return Err(Error::with(libc::ENOSPC, "the journal: the limit on file sizes (ulimit -f) leaves it no room"));
    }
    rustix::fs::fallocate(&file, FallocateFlags::empty(), start, filled - start)?;
    medium.ftruncate(file.as_fd(), end)
}

impl Log {
    /// A new journal in `file`, whose header's page is there: slots, no segments. Not synced: it is before it is marked.
    pub fn create(
        file: BorrowedFd<'_>,
        domain: Domain,
        medium: &'static dyn Medium,
        key: Key,
        limit: u64,
    ) -> Result<Self> {
        make_room(file, medium, (0, SEGMENTS_START), SEGMENTS_START)?;
        let reservation = RESERVATION.min((limit.max(SEGMENTS_START) as usize).next_multiple_of(4096));
        let map = Mapping::reserve(file, domain, SEGMENTS_START, true, reservation)?;
        map.keep_from_children();
        medium.watch(file, map.base(), map.reserved());
        let log = Self { domain: Some(domain), ..Self::new(high_duplicate(file)?, map, medium, key, limit) };
        log.extent().store(0);
        Ok(log)
    }

    /// Over the journal in `file`, whose header is valid (or about to be) and whose segments are as found.
    pub fn new(file: InternalFd, map: Mapping, medium: &'static dyn Medium, key: Key, limit: u64) -> Self {
        let starts = Box::new([const { AtomicU64::new(0) }; SEGMENTS_MAX]);
        let (base, segments) = (AtomicPtr::new(map.base()), AtomicU32::new(0));
        let is_in_memory = file.run(|file| Ok(shm::is_in_memory(file))).unwrap_or(false);
        Self {
            base,
            domain: None,
            file,
            is_in_memory,
            medium,
            key,
            limit,
            segments,
            starts,
            growing: Mutex::new(vec![map]),
            zone: Zone::default(),
        }
    }

    /// Over the journal in `file` of a session that another process began. Its segments are known by [`set_segments`](Self::set_segments).
    pub fn attach(
        file: BorrowedFd<'_>,
        domain: Domain,
        medium: &'static dyn Medium,
        key: Key,
        limit: u64,
    ) -> Result<Self> {
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let reservation = RESERVATION.min((limit.max(SEGMENTS_START).max(size) as usize).next_multiple_of(4096));
        let map = Mapping::reserve(file, domain, size, true, reservation)?;
        map.keep_from_children();
        medium.watch(file, map.base(), map.reserved());
        Ok(Self { domain: Some(domain), ..Self::new(high_duplicate(file)?, map, medium, key, limit) })
    }

    /// How many segments it has.
    pub fn segments(&self) -> u32 {
        self.segments.load(Ordering::Acquire)
    }

    /// It has so many now: other processes have owned it meanwhile. Nobody uses it at the moment.
    ///
    /// # Errors
    /// `EIO`: it can't have so many.
    pub fn set_segments(&self, count: u64) -> Result<()> {
        let have = u64::from(self.segments());
        if count == have {
            return Ok(());
        }
        let mut maps = self.growing.lock().map_err(|_| Error::new(libc::EIO))?;
        let last = count.checked_sub(1).and_then(|last| usize::try_from(last).ok()).filter(|&last| last < SEGMENTS_MAX);
        let geometry = Geometry::of(last.ok_or(Error::new(libc::EIO))?);
        let size = self.file.run(|file| Ok(rustix::fs::fstat(file)?.st_size as u64))?;
        if geometry.end() > size {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal has not so many segments"));
        }
        self.map_up_to(&mut maps, geometry.end())?;
        for index in have.min(count) as usize..count as usize {
            self.add(Geometry::of(index));
        }
        self.segments.store(count as u32, Ordering::Release);
        Ok(())
    }

    /// Maps the journal anew, where its mapping does not reach `end`.
    pub(super) fn map_up_to(&self, maps: &mut Vec<Mapping>, end: u64) -> Result<()> {
        if maps.last().is_none_or(|map| end > map.reserved() as u64) {
            let domain = self.domain.ok_or(Error::new(libc::ENOSPC))?;
            let reservation = reservation(end).min(self.limit.max(end) as usize);
            let map = Mapping::reserve(self.file.as_fd(), domain, end, true, reservation)?;
            map.keep_from_children();
            self.medium.watch(self.file.as_fd(), map.base(), map.reserved());
            self.base.store(map.base(), Ordering::Release);
            maps.push(map);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    /// The medium of its stores.
    pub fn medium(&self) -> &'static dyn Medium {
        self.medium
    }

    /// Its check key.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Bytes that the journal may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// One line of words at `offset`.
    pub(super) fn line(&self, offset: u64) -> &[AtomicU64; 8] {
        debug_assert!(offset.is_multiple_of(64));
        let at = self.base().wrapping_add(offset as usize);
        // SAFETY: every caller stays below the end of the slots' page or of a segment that is known to be in the file; the
        // map reaches beyond, lives as long as `self`, and atomic words take any bytes.
        unsafe { &*at.cast::<[AtomicU64; 8]>() }
    }

    /// The commit slots.
    pub fn slots(&self) -> Slots<'_> {
        let lines: [&[AtomicU64; 8]; SLOTS] =
            core::array::from_fn(|i| self.line(HEADER_LEN as u64 + (i * STRIDE) as u64));
        Slots::new(lines, self.medium, self.key)
    }

    /// How many segments there are.
    pub fn extent(&self) -> Extent<'_> {
        Extent::new(self.line(extent::OFFSET), self.medium, self.key)
    }

    /// Entry `number`, which this journal handed out or found.
    #[inline]
    pub fn entry(&self, number: u32) -> Entry<'_> {
        let (segment, i) = Geometry::place(number);
        let start = self.starts[segment].load(Ordering::Acquire);
        debug_assert!(start != 0);
        Entry::new(self.line(start + 64 + 64 * i), self.medium)
    }

    /// Where entry `number` lies.
    #[inline]
    pub fn entry_address(&self, number: u32) -> *const u8 {
        let (segment, i) = Geometry::place(number);
        let start = self.starts[segment].load(Ordering::Relaxed);
        self.base().wrapping_add((start + 64 + 64 * i) as usize)
    }

    /// Log block `number`.
    #[inline]
    pub fn block(&self, number: u32) -> *mut u8 {
        let (segment, i) = Geometry::place(number);
        let start = self.starts[segment].load(Ordering::Acquire);
        let count = 64u64 << segment.min(8);
        let blocks = (64 + 64 * count).next_multiple_of(4096);
        self.base().wrapping_add((start + blocks + (i << CLASS)) as usize)
    }

    /// Entries that there are, free or not.
    pub fn entries(&self) -> u32 {
        match self.segments.load(Ordering::Acquire) {
            0 => 0,
            n => {
                let last = Geometry::of(n as usize - 1);
                (last.first + last.count) as u32
            }
        }
    }

    pub(super) fn add(&self, geometry: Geometry) {
        self.starts[geometry.index].store(geometry.start, Ordering::Release);
        self.set_count(geometry.index as u32 + 1);
    }

    pub(super) fn set_count(&self, count: u32) {
        self.segments.store(count, Ordering::Release);
    }

    /// The journal lies in another file, by what `change` does to its descriptor. Nobody writes to it meanwhile; who reads finds the
    /// same bytes there.
    pub fn move_by(&self, domain: Domain, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let maps = self.growing.lock().map_err(|_| Error::new(libc::EIO))?;
        change()?;
        let file = self.file.get()?;
        for map in maps.iter() {
            map.put_at(file.as_fd(), domain)?;
            map.keep_from_children();
            self.medium.watch(file.as_fd(), map.base(), map.reserved());
        }
        Ok(())
    }

    /// Whether there is more than the first segment.
    pub fn can_shrink(&self) -> bool {
        self.segments.load(Ordering::Acquire) > 1
    }

    /// Gives back an entry whose being free is persistent.
    pub fn give_back(&self, arena: &Arena, number: u32) {
        Free::of(arena).give_back(number);
    }

    /// Gives entry `number` to `block`.
    pub fn assign(&self, number: u32, block: u64) -> Entry<'_> {
        let entry = self.entry(number);
        entry.assign(self.key, number, Constants { block, class: CLASS });
        entry
    }
}
