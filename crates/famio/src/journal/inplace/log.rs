//! The mapped journal: entries and log blocks. `zone` makes it grow.

use super::mapped::Mapped;
use super::segment::{CLASS, Geometry, SEGMENTS_MAX};
use super::zone::Zone;
use super::{Constants, Entry, Free};
use crate::error::{Error, Result};
use crate::index::Arena;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A journal in place, mapped and in use by this process.
pub(crate) struct Log {
    mapped: Mapped,
    segments: AtomicU32,
    starts: Box<[AtomicU64; SEGMENTS_MAX]>,
    pub(super) zone: Zone,
}

impl Deref for Log {
    type Target = Mapped;

    #[inline]
    fn deref(&self) -> &Mapped {
        &self.mapped
    }
}

impl Log {
    /// A [new](Mapped::create) journal, without segments. Durable after a fence.
    pub fn create(mapped: Mapped) -> Self {
        mapped.extent().store(0);
        Self::new(mapped)
    }

    /// A journal that this process [attached to](Mapped::attach); [`set_segments`](Self::set_segments) then sets its
    /// segments.
    pub fn new(mapped: Mapped) -> Self {
        let starts = Box::new([const { AtomicU64::new(0) }; SEGMENTS_MAX]);
        mapped.shared_limit().set_floor(Geometry::of(0).end());
        Self { mapped, segments: AtomicU32::new(0), starts, zone: Zone::default() }
    }

    /// The number of segments.
    pub fn segments(&self) -> u32 {
        self.segments.load(Ordering::Acquire)
    }

    /// Sets the number of segments, after other processes have owned the journal. No thread uses it at the moment.
    ///
    /// # Errors
    /// `EIO`: it cannot have that many.
    pub fn set_segments(&self, count: u64) -> Result<()> {
        let have = u64::from(self.segments());
        if count == have {
            self.tell_pool();
            return Ok(());
        }
        let mut maps = self.grow()?;
        let last = count.checked_sub(1).and_then(|last| usize::try_from(last).ok()).filter(|&last| last < SEGMENTS_MAX);
        let geometry = Geometry::of(last.ok_or(Error::new(libc::EIO))?);
        let size = self.file().run(|file| Ok(rustix::fs::fstat(file)?.st_size as u64))?;
        if geometry.end() > size {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal has not so many segments"));
        }
        self.map_up_to(&mut maps, geometry.end())?;
        for index in have.min(count) as usize..count as usize {
            self.add(Geometry::of(index));
        }
        self.segments.store(count as u32, Ordering::Release);
        self.tell_pool();
        Ok(())
    }

    /// The pool learns that the journal is this process's.
    fn tell_pool(&self) {
        if let Some(last) = (self.segments() as usize).checked_sub(1) {
            self.shared_limit().set(Geometry::of(last).end());
        }
    }

    /// Entry `number`, which this journal has handed out or found.
    #[inline]
    pub fn entry(&self, number: u32) -> Entry<'_> {
        let (segment, i) = Geometry::place(number);
        let start = self.starts[segment].load(Ordering::Acquire);
        debug_assert!(start != 0);
        Entry::new(self.line(start + 64 + 64 * i), self.medium())
    }

    /// The address of entry `number`.
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

    /// The number of entries, free or not.
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

    /// Whether there is more than the first segment.
    pub fn can_shrink(&self) -> bool {
        self.segments.load(Ordering::Acquire) > 1
    }

    /// Gives back an entry that is free, persistently.
    pub fn give_back(&self, arena: &Arena, number: u32) {
        Free::of(arena).give_back(number);
    }

    /// Assigns entry `number` to `block`.
    pub fn assign(&self, number: u32, block: u64) -> Entry<'_> {
        let entry = self.entry(number);
        entry.assign(self.key(), number, Constants { block, class: CLASS });
        entry
    }
}
