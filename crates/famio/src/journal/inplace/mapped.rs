//! A mapped journal: the page of slots, and the mappings as it grows. Shared by journals in place and tiered ones.

use super::{EXTENT_OFFSET, Extent, Key, SEGMENTS_START, Slots, SlotsPage};
use crate::error::{Error, Result};
use crate::journal::header::LEN as HEADER_LEN;
use crate::journal::pools::shares::Limit;
use crate::map::{Mapping, RESERVATION, reservation};
use crate::pmem::{Domain, Medium};
use crate::sys::{InternalFd, high_duplicate, shm};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use rustix::fs::FallocateFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

/// A journal, mapped for writing.
pub(crate) struct Mapped {
    /// The beginning of its newest mapping.
    base: AtomicPtr<u8>,
    domain: Domain,
    /// The journal's file, shared with other parts of the session.
    file: InternalFd,
    is_in_memory: bool,
    medium: &'static dyn Medium,
    key: Key,
    limit: Limit,
    /// All mappings ever made, the newest last: references may lead into any of them. Locked while the journal grows.
    growing: Mutex<Vec<Mapping>>,
}

/// Sets the journal's end to `end` and allocates `start..filled`. Durable after a sync through the medium, since the
/// size belongs to it.
pub(in crate::journal) fn make_room(
    file: impl AsFd,
    medium: &dyn Medium,
    (start, filled): (u64, u64),
    end: u64,
) -> Result<()> {
    if end > crate::sys::file_size_limit() {
        return Err(Error::with(libc::ENOSPC, "the journal: the limit on file sizes (ulimit -f) leaves it no room"));
    }
    rustix::fs::fallocate(&file, FallocateFlags::empty(), start, filled - start)?;
    medium.ftruncate(file.as_fd(), end)
}

/// A mapping of the first `len` bytes, with room for more, of which the medium is notified.
fn mapping(file: BorrowedFd<'_>, domain: Domain, medium: &dyn Medium, len: u64, reservation: usize) -> Result<Mapping> {
    let map = Mapping::reserve(file, domain, len, true, reservation)?;
    map.keep_from_children();
    medium.watch(file, map.base(), map.reserved());
    Ok(map)
}

impl Mapped {
    /// A new journal in `file`, which already has the header's page: slots, all empty, and no number of segments yet.
    /// Not synced: that happens before the file is marked.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: no space. Those of mapping it.
    pub fn create(
        file: BorrowedFd<'_>,
        domain: Domain,
        medium: &'static dyn Medium,
        key: Key,
        limit: impl Into<Limit>,
    ) -> Result<Self> {
        let limit = limit.into();
        make_room(file, medium, (0, SEGMENTS_START), SEGMENTS_START)?;
        let reservation = RESERVATION.min((limit.bytes().max(SEGMENTS_START) as usize).next_multiple_of(4096));
        Self::over(file, domain, medium, key, limit, (SEGMENTS_START, reservation))
    }

    /// The journal in `file`, of a session that another process began.
    ///
    /// # Errors
    /// Those of mapping it.
    pub fn attach(
        file: BorrowedFd<'_>,
        domain: Domain,
        medium: &'static dyn Medium,
        key: Key,
        limit: impl Into<Limit>,
    ) -> Result<Self> {
        let limit = limit.into();
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let reservation =
            RESERVATION.min((limit.bytes().max(SEGMENTS_START).max(size) as usize).next_multiple_of(4096));
        Self::over(file, domain, medium, key, limit, (size, reservation))
    }

    fn over(
        file: BorrowedFd<'_>,
        domain: Domain,
        medium: &'static dyn Medium,
        key: Key,
        limit: Limit,
        (size, reservation): (u64, usize),
    ) -> Result<Self> {
        let map = mapping(file, domain, medium, size, reservation)?;
        let file = high_duplicate(file)?;
        let is_in_memory = file.run(|file| Ok(shm::is_in_memory(file))).unwrap_or(false);
        let base = AtomicPtr::new(map.base());
        Ok(Self { base, domain, file, is_in_memory, medium, key, limit, growing: Mutex::new(vec![map]) })
    }

    /// Keeps other threads from growing or cutting the journal while held.
    pub fn grow(&self) -> Result<MutexGuard<'_, Vec<Mapping>>> {
        self.growing.lock().map_err(|_| Error::new(libc::EIO))
    }

    /// As [`grow`](Self::grow), unless another thread has it.
    pub fn try_grow(&self) -> Option<MutexGuard<'_, Vec<Mapping>>> {
        self.growing.try_lock().ok()
    }

    /// Maps the journal again if its mapping does not reach `end`.
    pub fn map_up_to(&self, maps: &mut Vec<Mapping>, end: u64) -> Result<()> {
        if maps.last().is_none_or(|map| end > map.reserved() as u64) {
            let reservation = reservation(end).min(self.limit.bytes().max(end) as usize);
            let map = mapping(self.file.as_fd(), self.domain, self.medium, end, reservation)?;
            self.base.store(map.base(), Ordering::Release);
            maps.push(map);
        }
        Ok(())
    }

    /// Moves the journal to another file, by what `change` does to its descriptor. No thread writes to it meanwhile;
    /// a reader finds the same bytes there.
    pub fn move_by(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let maps = self.grow()?;
        change()?;
        let file = self.file.get()?;
        for map in maps.iter() {
            map.put_at(file.as_fd(), self.domain)?;
            map.keep_from_children();
            self.medium.watch(file.as_fd(), map.base(), map.reserved());
        }
        Ok(())
    }

    /// The address of the journal's first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    /// The journal's file.
    pub fn file(&self) -> &InternalFd {
        &self.file
    }

    /// Whether it lies on tmpfs.
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// What stores to it survive.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The medium for stores to it.
    #[inline]
    pub fn medium(&self) -> &'static dyn Medium {
        self.medium
    }

    /// Its check key.
    #[inline]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The size to which the journal may grow.
    pub fn limit(&self) -> u64 {
        self.limit.bytes()
    }

    /// The same, with what its pool says.
    pub fn shared_limit(&self) -> &Limit {
        &self.limit
    }

    /// One line of words at `offset`.
    #[inline]
    pub fn line(&self, offset: u64) -> &[AtomicU64; 8] {
        debug_assert!(offset.is_multiple_of(64));
        let at = self.base().wrapping_add(offset as usize);
        // SAFETY: every caller stays below the end of the slots' page or of a segment that is known to be in the file;
        // the map reaches beyond, lives as long as `self`, and atomic words take any bytes.
        unsafe { &*at.cast::<[AtomicU64; 8]>() }
    }

    /// The commit slots.
    #[inline]
    pub fn slots(&self) -> Slots<'_> {
        let page = self.base().wrapping_add(HEADER_LEN).cast::<SlotsPage>();
        // SAFETY: they lie in the slots' page, which is there from the creation on; the rest as in `line`.
        Slots::new(unsafe { &*page }, self.medium, self.key)
    }

    /// The number of segments.
    pub fn extent(&self) -> Extent<'_> {
        Extent::new(self.line(EXTENT_OFFSET), self.medium, self.key)
    }
}
