//! The arena: a file in memory that every process with the atomic file open maps, wherever it likes. Memory is handed out
//! from a growing end and never taken back while the arena lives.
//!
//! Where the shared memory is nearly full the arena goes on in a file on a disk, the *spill*: what a program has written and not
//! synced is bounded by its disk then, as with a plain file.

use super::shared::{MAGIC, Shared};
use crate::error::{Error, Result};
use crate::map::huge;
use crate::sync::Ordering;
use crate::sys::InternalFd as OwnedFd;
use core::sync::atomic::{AtomicPtr, AtomicU64};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Address space set aside for a new arena. One that outgrows it is mapped a second time, elsewhere, with [`GROWTH`] times as much.
const RESERVED: usize = 1 << 30;
const GROWTH: usize = 8;
/// Bounds the index, not memory, which is taken as it grows.
const RESERVED_MAX: usize = 64 << 30;
/// Less is no use: the program has a limit on address space, and has reached it.
const RESERVED_MIN: usize = 4 << 20;
/// First allocation of memory: the shared state, the radix tree of a small file.
const FIRST: u64 = 64 << 10;
const HUGE: u64 = huge::HUGE as u64;
/// Memory is taken in steps of a quarter of what there is, at most this.
const STEP_MAX: u64 = 16 << 20;

/// A mapped arena.
pub(crate) struct Arena {
    /// Where its newest mapping begins.
    base: AtomicPtr<u8>,
    /// Bytes that have memory behind them, and lie in the mapping at `base`. Not in the shared memory, which bounds nothing.
    allocated: AtomicU64,
    growth: Mutex<Growth>,
}

/// What it takes to grow.
struct Growth {
    /// All mappings ever made, the newest last: references may lead into any of them.
    maps: Vec<Map>,
    /// `None` in a forked child, which must not keep the parent's lock on it.
    file: Option<OwnedFd>,
    /// Bytes of the arena that lie in `file`, once there is a spill, which has those that follow.
    in_file: u64,
    spill: Option<OwnedFd>,
    /// The folder for it.
    beside: PathBuf,
}

/// Address space.
struct Map {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address range, which any thread may give back.
unsafe impl Send for Map {}

impl Arena {
    /// Makes a fresh arena in `file`, an empty file on tmpfs. `beside`: a folder for its spill. `ENOSPC` when there is no room in
    /// either.
    pub fn create(file: OwnedFd, beside: &Path) -> Result<Self> {
        Self::reserving(file, beside, RESERVED)
    }

    fn reserving(file: OwnedFd, beside: &Path, reserved: usize) -> Result<Self> {
        rustix::fs::ftruncate(&file, 0)?;
        let mut growth =
            Growth { maps: Vec::new(), file: Some(file), in_file: 0, spill: None, beside: beside.to_path_buf() };
        growth.take(0, FIRST, FIRST)?;
        growth.map(reserved, RESERVED_MIN)?;
        let base = AtomicPtr::new(growth.base());
        let arena = Self { base, allocated: AtomicU64::new(FIRST), growth: Mutex::new(growth) };
        let shared = arena.shared();
        shared.next.store(4096, Ordering::Relaxed);
        shared.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    /// The shared state at the arena's start.
    #[inline]
    pub fn shared(&self) -> &Shared {
        // SAFETY: the first page is mapped with memory behind it, aligned, zero or as we left it; `Shared` is made of
        // atomic words, for which every bit pattern is valid.
        unsafe { &*self.base().cast::<Shared>() }
    }

    /// What lies at `offset`, or `None` when that is not in the arena: offsets from shared memory are not trusted.
    ///
    /// `T` must be made of atomic words.
    #[inline]
    pub fn at<T>(&self, offset: u64) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>() as u64)?;
        // Before the base: that is at least as new then.
        if offset == 0 || offset & 63 != 0 || end > self.allocated.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: inside what has memory behind it and stays mapped, and aligned to 64; T is made of atomic words.
        Some(unsafe { &*self.base().add(offset as usize).cast::<T>() })
    }

    /// Lets the miss of a block's cell begin, if it has one.
    #[inline]
    pub fn prefetch_cell(&self, block: u64) {
        if let Some(cell) = super::Index::new(self).lookup(block) {
            crate::pmem::prefetch(core::ptr::from_ref(cell).cast());
        }
    }

    /// Takes `size` bytes, zeroed, aligned to a cache line. `ENOSPC` when memory or address space is out.
    pub fn allocate(&self, size: usize) -> Result<u64> {
        let shared = self.shared();
        let size = size.next_multiple_of(64) as u64;
        let start = shared.next.fetch_add(size, Ordering::Relaxed);
        let end = start.checked_add(size).ok_or(Error::new(libc::EIO))?;
        if end > self.allocated.load(Ordering::Acquire)
            && let Err(e) = self.grow(end)
        {
            // Not lost, if nobody was faster: a program may go on trying while there is no room.
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
        let mut want = end.max(have + (have / 4).clamp(FIRST, STEP_MAX)).next_multiple_of(4096);
        if have >= HUGE {
            want = want.next_multiple_of(HUGE);
        }
        let reserved = growth.reserved();
        if end.next_multiple_of(4096) > reserved {
            // Not for each step a mapping, where address space is scarce.
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
        self.allocated.store(want, Ordering::Release);
        Ok(())
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: closes the arena's file, whose lock is the parent's.
    pub fn forget_file(&self) {
        if let Ok(mut growth) = self.growth.try_lock() {
            (growth.file, growth.spill) = (None, None);
        }
    }

    #[cfg(test)]
    pub fn for_test() -> Self {
        use std::os::fd::AsFd;
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Self::create(crate::sys::high_duplicate(file.as_fd()).unwrap(), Path::new("/nonexistent")).unwrap()
    }
}

impl Growth {
    fn base(&self) -> *mut u8 {
        self.maps.last().map_or(core::ptr::null_mut(), |map| map.base)
    }

    fn reserved(&self) -> u64 {
        self.maps.last().map_or(0, |map| map.len as u64)
    }

    /// Maps the arena anew, with `len` bytes of address space, or less where there is not so much, and no less than `least`.
    fn map(&mut self, len: usize, least: usize) -> Result<()> {
        let mut len = len.clamp(RESERVED_MIN, RESERVED_MAX);
        if len < least {
            return Err(Error::with(libc::ENOSPC, "the index of an atomic file is full"));
        }
        let base = loop {
            match self.try_map(len) {
                Ok(base) => break base,
                Err(e) if len == least.max(RESERVED_MIN) => return Err(Error::from(e).context("mapping an arena")),
                Err(_) => len = (len / 4).next_multiple_of(4096).max(least).max(RESERVED_MIN), // a limit on address space
            }
        };
        crate::sys::keep_from_children(base, len);
        self.maps.push(Map { base, len });
        Ok(())
    }

    fn try_map(&self, len: usize) -> rustix::io::Result<*mut u8> {
        let first = self.file.as_ref().filter(|_| self.in_file > 0 || self.spill.is_none()).or(self.spill.as_ref());
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let base = huge::aligned(first.ok_or(Errno::BUSY)?, len, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        if self.in_file > 0
            && let Some(spill) = &self.spill
        {
            map_spill(spill, base, self.in_file, len).inspect_err(|_| {
                // SAFETY: mapped just now, and nobody knows of it.
                let _ = unsafe { rustix::mm::munmap(base.cast(), len) };
            })?;
        }
        Ok(base)
    }

    /// Takes memory for `have..want`, or at least for what is below `end`: memory first, then the use of it. A full /dev/shm is an
    /// error here, not a SIGBUS later. Gives how far it got.
    fn take(&mut self, have: u64, want: u64, end: u64) -> Result<u64> {
        let allocate = |file: &OwnedFd, from: u64, to: u64| {
            rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from).map(|()| to)
        };
        let file = self.file.as_ref().ok_or(Error::new(libc::EBUSY))?;
        if let Some(spill) = &self.spill {
            let at = have - self.in_file;
            let got = allocate(spill, at, want - self.in_file).or_else(|_| allocate(spill, at, end - self.in_file));
            return got.map(|got| got + self.in_file).map_err(|e| self.spill_failed(e));
        }
        if leaves_room(file, want - have)
            && let Ok(got) = allocate(file, have, want)
        {
            return Ok(got);
        }
        match self.begin_spill(have, want).or_else(|_| self.begin_spill(have, end)) {
            Ok(got) => Ok(got),
            // To the last byte. Not so much: just what is needed now.
            Err(spill) => {
                let file = self.file.as_ref().ok_or(Error::new(libc::EBUSY))?;
                let got = allocate(file, have, want).or_else(|_| allocate(file, have, end));
                got.map_err(|e| Error::from(e).context(format_args!("growing an arena in /dev/shm ({spill})")))
            }
        }
    }

    /// What lies above `have` is in a file on the disk from now on, which has room up to `want`.
    fn begin_spill(&mut self, have: u64, want: u64) -> Result<u64> {
        let begun = open_unnamed(&self.beside).and_then(|spill| {
            rustix::fs::fallocate(&spill, FallocateFlags::empty(), 0, want - have)?;
            if let Some(map) = self.maps.last() {
                map_spill(&spill, map.base, have, map.len)?;
            }
            Ok(spill)
        });
        (self.spill, self.in_file) = (Some(begun.map_err(|e| self.spill_failed(e))?), have);
        Ok(want)
    }

    fn spill_failed(&self, e: Errno) -> Error {
        Error::from(e).context(format_args!("going on in {}", self.beside.display()))
    }

    /// One call now instead of a fault a page later; where the kernel lacks it, faults do. From the huge page on that the old end
    /// lies in.
    fn populate(&self, have: u64, want: u64) {
        let from = if want / HUGE > have / HUGE && self.spill.is_none() { have / HUGE * HUGE } else { want };
        let at = |offset: u64| self.base().wrapping_add(offset as usize);
        if !(from < want && huge::gather(at(from), (want - from) as usize)) {
            // SAFETY: in our mapping, with memory behind it.
            let _ = unsafe { rustix::mm::madvise(at(have).cast(), (want - have) as usize, Advice::LinuxPopulateWrite) };
        }
    }
}

/// Whether there is room for `bytes` more in the file's memory, and a quarter of all is left: others need some, too, and where there
/// is none the next file can't even be opened.
fn leaves_room(file: &OwnedFd, bytes: u64) -> bool {
    rustix::fs::fstatvfs(file)
        .is_ok_and(|all| all.f_blocks == 0 || all.f_bavail * all.f_frsize >= bytes + all.f_blocks * all.f_frsize / 4)
}

/// Puts the spill in the place of what lies above `from` in a mapping: there was nothing yet.
fn map_spill(spill: &OwnedFd, base: *mut u8, from: u64, len: usize) -> rustix::io::Result<()> {
    if from >= len as u64 {
        return Ok(());
    }
    let (at, rest) = (base.wrapping_add(from as usize), len - from as usize);
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: within a mapping of ours, where nothing was handed out yet.
    unsafe { rustix::mm::mmap(at.cast(), rest, protection, flags | MapFlags::NORESERVE, spill, 0) }?;
    crate::sys::keep_from_children(at, rest);
    Ok(())
}

/// A file in `folder` that nobody else can open, and that goes with its last descriptor and map.
fn open_unnamed(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    let low = match rustix::fs::openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            // Not every file system knows that.
            let mut random = [0; 16];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = folder.join(format!(".famio-{:032x}", u128::from_ne_bytes(random)));
            let file = rustix::fs::openat(CWD, &name, flags | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
            rustix::fs::unlinkat(CWD, &name, AtFlags::empty())?;
            file
        }
        opened => opened?,
    };
    crate::sys::high_duplicate(std::os::fd::AsFd::as_fd(&low)).map_err(|e| Errno::from_raw_os_error(e.errno()))
}

impl Drop for Arena {
    fn drop(&mut self) {
        let growth = self.growth.get_mut().unwrap_or_else(PoisonError::into_inner);
        if growth.file.is_none() {
            return; // a forked child's: what lies there is not the arena
        }
        for map in &growth.maps {
            // SAFETY: the mapping is ours, and no reference into it outlives the arena.
            let _ = unsafe { rustix::mm::munmap(map.base.cast(), map.len) };
        }
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

    fn memory() -> OwnedFd {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        rustix::fs::memfd_create("famio-test", flags).unwrap()
    }

    /// Writes on through many steps; what was handed out first stays what it is.
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
        assert!(arena.growth().maps.len() > 1);
        check(&arena, &places);
        word.store(7, Ordering::Relaxed);
        assert_eq!(arena.at::<crate::sync::AtomicU64>(first).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(shared.next.load(Ordering::Relaxed), arena.shared().next.load(Ordering::Relaxed));
    }

    /// The memory takes no more from the beginning, or from some moment on.
    #[test]
    fn goes_on_in_a_file_beside_the_journal() {
        let folder = std::env::temp_dir().join(format!("famio-spill-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for full_at in [0, 10, 1000] {
            let file = memory();
            let full = |file: &OwnedFd| rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::GROW).unwrap();
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
            assert!(arena.growth().spill.is_some() && arena.growth().maps.len() > 1);
            check(&arena, &later);
            places.truncate(full_at as usize);
            check(&arena, &places);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "it has a name");
        }
        std::fs::remove_dir(folder).unwrap();
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
