//! The arena: a file in memory that every process with a session of the atomic file maps, at any address. Space is
//! handed out from a growing end; its memory can be given back to the system and taken again.
//!
//! If shared memory is nearly full, the arena goes on in a file on a disk, the *spill*. Then the disk limits what a
//! program has written and not synced, as with a plain file.

use super::shared::{MAGIC, SHARED, Shared};
use crate::error::{Error, Result};
use crate::index::blocks::growth::{GROWTH, Growth, RESERVED, RESERVED_MAX, RESERVED_MIN};
use crate::map::huge;
use crate::sync::Ordering;
use crate::sys::InternalFd;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first allocation: the shared state and the radix tree of a small file, with the buffers of its first writes.
const FIRST: u64 = 80 << 10;
/// The least that any arena has.
const LEAST: u64 = 64 << 10;
const HUGE: u64 = huge::HUGE as u64;
/// It grows in steps of a quarter of its size, within these bounds: a writer waits for each.
const STEP_MIN: u64 = 16 << 10;
const STEP_MAX: u64 = HUGE;

/// A mapped arena.
pub(crate) struct Arena {
    /// Where the newest mapping begins.
    base: AtomicPtr<u8>,
    /// Bytes that have memory and lie in the mapping at `base`. Kept per process: other processes could write to a
    /// word in shared memory.
    allocated: AtomicU64,
    /// An offset led beyond that. If the arena was [joined](Self::join), it has grown since.
    beyond: AtomicBool,
    /// A part lies in a file on a disk, without a name.
    spilled: AtomicBool,
    growth: Mutex<Growth>,
}

impl Arena {
    /// Makes an arena in `file`, an empty file on tmpfs. `beside`: a folder for its spill. `ENOSPC`: neither has
    /// room.
    pub fn create(file: InternalFd, beside: &Path) -> Result<Self> {
        Self::reserving(file, beside, RESERVED)
    }

    fn reserving(file: InternalFd, beside: &Path, reserved: usize) -> Result<Self> {
        let mut growth = Growth::new(file, beside);
        growth.take(0, FIRST, FIRST)?;
        growth.map(reserved, RESERVED_MIN)?;
        let base = AtomicPtr::new(growth.base());
        let arena = Self {
            base,
            allocated: AtomicU64::new(FIRST),
            beyond: AtomicBool::new(false),
            spilled: AtomicBool::new(false),
            growth: Mutex::new(growth),
        };
        let shared = arena.shared();
        shared.next.store(SHARED as u64, Ordering::Relaxed);
        shared.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// Maps the arena of a session that this process is about to own, at its present size.
    ///
    /// # Errors
    /// `EACCES`: a process that this one does not trust could change it. `EIO`: it is of another version.
    pub fn attach(file: InternalFd, beside: &Path) -> Result<Self> {
        let have = Growth::check(&file)?;
        let mut growth = Growth::new(file, beside);
        growth.share();
        growth.in_file_now()?; // also counts it
        growth.map(RESERVED.max(have as usize), have as usize)?;
        let (base, allocated) = (AtomicPtr::new(growth.base()), AtomicU64::new(have));
        let arena = Self {
            base,
            allocated,
            beyond: AtomicBool::new(false),
            spilled: AtomicBool::new(false),
            growth: Mutex::new(growth),
        };
        let is_one = have >= LEAST && arena.shared().magic.load(Ordering::Acquire) == MAGIC;
        if is_one { Ok(arena) } else { Err(Error::new(libc::EIO)) }
    }

    /// Maps what other owners have added meanwhile.
    pub fn catch_up(&self) -> Result<()> {
        let mut growth = self.growth();
        let have = growth.in_file_now()?;
        if have > growth.reserved() {
            growth.map((have as usize).saturating_mul(GROWTH), have as usize)?;
            self.base.store(growth.base(), Ordering::Release);
        }
        self.allocated.fetch_max(have, Ordering::AcqRel);
        self.beyond.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a part of it lies on a disk.
    #[inline]
    pub fn has_spilled(&self) -> bool {
        self.spilled.load(Ordering::Relaxed)
    }

    /// Whether another process could map all of it, because no part lies in a file without a name.
    pub fn can_be_attached(&self) -> bool {
        self.growth().share()
    }

    /// `len` bytes at `offset`, or `None` if they are not in the arena. As [`at`](Self::at), for bytes.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        if offset == 0 || end > self.allocated.load(Ordering::Acquire) {
            return None;
        }
        Some(self.base().wrapping_add(offset as usize))
    }

    /// Maps another process's arena for reading, at its present size. `None`: it is no arena, or of another version.
    ///
    /// # Errors
    /// `EACCES`: a process that this one does not trust could change it. `ENOMEM`.
    pub fn join(file: &InternalFd) -> Result<Option<Self>> {
        let (growth, allocated) = Growth::join(file)?;
        if allocated < LEAST {
            return Ok(None);
        }
        let (base, allocated) = (AtomicPtr::new(growth.base()), AtomicU64::new(allocated));
        let arena = Self {
            base,
            allocated,
            beyond: AtomicBool::new(false),
            spilled: AtomicBool::new(false),
            growth: Mutex::new(growth),
        };
        Ok((arena.shared().magic.load(Ordering::Acquire) == MAGIC).then_some(arena))
    }

    /// Whether the arena has grown beyond its mapping, so that something may exist though a lookup did not find it.
    #[inline]
    pub fn is_outgrown(&self) -> bool {
        self.beyond.load(Ordering::Relaxed)
    }

    /// Bytes that are mapped and have memory.
    pub fn len(&self) -> u64 {
        self.allocated.load(Ordering::Acquire)
    }

    #[cold]
    fn missed<T>(&self, offset: u64) -> Option<&T> {
        self.beyond.fetch_or(offset != 0, Ordering::Relaxed);
        None
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    /// The shared state at the arena's start.
    #[inline]
    pub fn shared(&self) -> &Shared {
        // SAFETY: the first pages are mapped and have memory, aligned, zero or as we left them; `Shared` consists of
        // atomic words, for which every bit pattern is valid.
        unsafe { &*self.base().cast::<Shared>() }
    }

    /// What lies at `offset`, or `None` if that is not in the arena: offsets from shared memory are not trusted.
    ///
    /// `T` must consist of atomic words.
    #[inline]
    pub fn at<T>(&self, offset: u64) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>() as u64)?;
        // Loaded before the base, which is then at least as new.
        if offset == 0 || offset & 63 != 0 || end > self.allocated.load(Ordering::Acquire) {
            return self.missed(offset);
        }
        // SAFETY: inside what has memory and stays mapped, aligned to 64; T consists of atomic words.
        Some(unsafe { &*self.base().add(offset as usize).cast::<T>() })
    }

    /// Takes `size` bytes, zeroed, aligned to a cache line. `ENOSPC`: no memory or address space is left.
    pub fn allocate(&self, size: usize) -> Result<u64> {
        let shared = self.shared();
        let size = size.next_multiple_of(64) as u64;
        let start = shared.next.fetch_add(size, Ordering::Relaxed);
        let end = start.checked_add(size).ok_or(Error::new(libc::EIO))?;
        if end > self.allocated.load(Ordering::Acquire)
            && let Err(e) = self.grow(end)
        {
            // Gives the bytes back unless another thread was faster: a program may go on trying while there is no
            // room.
            let _ = shared.next.compare_exchange(end, start, Ordering::Relaxed, Ordering::Relaxed);
            return Err(e);
        }
        Ok(start)
    }

    #[cold]
    fn grow(&self, end: u64) -> Result<()> {
        let _growing = self.shared().growing.lock(0)?;
        let mut growth = self.growth();
        let have = self.allocated.load(Ordering::Acquire);
        if end <= have {
            return Ok(());
        }
        let mut want = end.max(have + (have / 4).clamp(STEP_MIN, STEP_MAX)).next_multiple_of(4096);
        if have >= HUGE {
            want = want.next_multiple_of(HUGE);
        }
        let reserved = growth.reserved();
        if end.next_multiple_of(4096) > reserved {
            // Large steps: address space may be too scarce for a mapping per step.
            let least = (end + STEP_MAX).min(RESERVED_MAX as u64).max(end).next_multiple_of(4096);
            growth.map(reserved as usize * GROWTH, least as usize)?;
            self.base.store(growth.base(), Ordering::Release);
        }
        let limit = crate::sys::file_size_limit();
        if end > limit {
            return Err(Error::with(libc::ENOSPC, "the limit on file sizes (ulimit -f) leaves the index no room"));
        }
        let want = want.min(limit & !4095).max(end).min(growth.reserved());
        let want = growth.take(have, want, end.next_multiple_of(4096))?;
        growth.populate(have, want);
        self.spilled.store(growth.has_spill(), Ordering::Relaxed);
        self.allocated.store(want, Ordering::Release);
        Ok(())
    }

    /// Gives the memory of whole pages back to the system; they keep their place. Whether it has.
    pub fn give_back(&self, offset: u64, len: u64) -> bool {
        self.bytes(offset, len as usize).is_some() && self.growth().give_back(offset, len)
    }

    /// Takes memory, zeroed, for pages that have [given it back](Self::give_back). `any`: the last there is, too.
    /// `ENOSPC`: there is none.
    pub fn take_again(&self, offset: u64, len: u64, any: bool) -> Result<()> {
        self.bytes(offset, len as usize).ok_or(Error::new(libc::EIO))?;
        self.growth().take_again(offset, len, any)
    }

    /// Its memory is the next owner's.
    pub fn leave(&self) {
        self.growth().count_taken(0);
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: closes the arena's file, whose lock is the parent's.
    pub fn forget_file(&self) {
        if let Ok(mut growth) = self.growth.try_lock() {
            growth.forget_files();
        }
    }

    /// Bytes of memory that its file has.
    #[cfg(test)]
    pub fn memory(&self) -> u64 {
        self.growth().memory()
    }

    #[cfg(test)]
    pub fn for_test() -> Self {
        use std::os::fd::AsFd;
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Self::create(crate::sys::high_duplicate(file.as_fd()).unwrap(), Path::new("/nonexistent")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_are_refused() {
        let arena = Arena::for_test();
        let there = arena.allocate(64).unwrap();
        assert!(arena.at::<[u64; 8]>(there).is_some());
        let end = arena.allocated.load(Ordering::Relaxed);
        for offset in [0, 1, there + 1, end - 32, end, u64::MAX - 8, u64::MAX] {
            assert!(arena.at::<[u64; 8]>(offset).is_none(), "offset {offset}");
        }
    }

    #[test]
    fn grows_and_hands_out_zeros() {
        let arena = Arena::for_test();
        let mut last = 0;
        for _ in 0..100 {
            let at = arena.allocate(32 << 10).unwrap();
            assert!(at >= last);
            last = at + (32 << 10);
            let words = arena.at::<[crate::sync::AtomicU64; 4096]>(at).unwrap();
            assert!(words.iter().all(|w| w.load(Ordering::Relaxed) == 0));
            words[4095].store(1, Ordering::Relaxed);
        }
    }

    fn memory() -> InternalFd {
        use std::os::fd::AsFd;
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        crate::sys::high_duplicate(rustix::fs::memfd_create("famio-test", flags).unwrap().as_fd()).unwrap()
    }

    /// Writes many blocks, through many steps; earlier ones keep their contents.
    fn fill(arena: &Arena, blocks: u64) -> Vec<u64> {
        let write = |i| {
            let at = arena.allocate(32 << 10)?;
            let words = arena.at::<[crate::sync::AtomicU64; 4096]>(at).unwrap();
            assert!(words.iter().all(|word| word.swap(i, Ordering::Relaxed) == 0));
            Ok(at)
        };
        (0..blocks).map(write).collect::<Result<_>>().unwrap()
    }

    fn check(arena: &Arena, places: &[u64]) {
        for (i, &at) in places.iter().enumerate() {
            let words = arena.at::<[crate::sync::AtomicU64; 4096]>(at).unwrap();
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == i as u64), "block {i}");
        }
    }

    #[test]
    fn outgrows_its_address_space_and_keeps_what_leads_into_it() {
        let arena = Arena::reserving(memory(), Path::new("/nonexistent"), RESERVED_MIN).unwrap();
        let first = arena.allocate(64).unwrap();
        let word = arena.at::<crate::sync::AtomicU64>(first).unwrap();
        let shared = arena.shared();
        let places = fill(&arena, 2000);
        assert!(arena.growth().count() > 1);
        check(&arena, &places);
        word.store(7, Ordering::Relaxed);
        assert_eq!(arena.at::<crate::sync::AtomicU64>(first).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(shared.next.load(Ordering::Relaxed), arena.shared().next.load(Ordering::Relaxed));
    }

    /// The memory takes no more, from the beginning or from some moment on.
    #[test]
    fn goes_on_in_a_file_beside_the_journal() {
        let folder = std::env::temp_dir().join(format!("famio-spill-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for full_at in [0, 10, 1000] {
            let file = memory();
            let full =
                |file: &std::os::fd::OwnedFd| rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::GROW).unwrap();
            let sealed = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
            if full_at == 0 {
                full(&sealed);
            }
            let arena = Arena::reserving(file, &folder, RESERVED_MIN).unwrap();
            let mut places = fill(&arena, full_at);
            if full_at > 0 {
                full(&sealed);
            }
            let later = fill(&arena, 1000);
            assert!(arena.growth().has_spill() && arena.growth().count() > 1);
            check(&arena, &later);
            places.truncate(full_at as usize);
            check(&arena, &places);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "it has a name");
        }
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn one_that_is_joined_shows_what_is_there_and_says_that_it_grew() {
        use std::os::fd::AsFd;
        let file = memory();
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let again = crate::sys::high_duplicate(file.as_fd()).unwrap();
        let arena = Arena::create(file, Path::new("/nonexistent")).unwrap();
        let first = arena.allocate(64).unwrap();
        let word = |arena: &Arena, at| arena.at::<crate::sync::AtomicU64>(at).map(|word| word.load(Ordering::Relaxed));
        let joined = Arena::join(&again).unwrap().unwrap();
        arena.at::<crate::sync::AtomicU64>(first).unwrap().store(7, Ordering::Relaxed);
        assert_eq!((word(&joined, first), joined.is_outgrown()), (Some(7), false));
        let far = *fill(&arena, 100).last().unwrap();
        assert_eq!((word(&joined, far), joined.is_outgrown()), (None, true));
        assert_eq!(word(&Arena::join(&again).unwrap().unwrap(), far), Some(99));
        rustix::fs::fchmod(&again, rustix::fs::Mode::from_raw_mode(0o620)).unwrap();
        assert_eq!(Arena::join(&again).err().unwrap().errno(), libc::EACCES);
    }

    #[test]
    fn what_was_refused_is_not_lost() {
        let file = memory();
        rustix::fs::ftruncate(&file, FIRST).unwrap();
        let sealed = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
        let arena = Arena::reserving(file, Path::new("/nonexistent"), RESERVED_MIN).unwrap();
        rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::GROW).unwrap();
        let next = arena.shared().next.load(Ordering::Relaxed);
        for _ in 0..10 {
            assert!(arena.allocate(FIRST as usize).is_err());
        }
        assert_eq!(arena.shared().next.load(Ordering::Relaxed), next);
        assert!(arena.allocate(64).is_ok());
    }
}
