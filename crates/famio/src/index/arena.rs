//! The arena: a file in memory that every process with the atomic file open maps, wherever it likes. Memory is handed out
//! from a growing end and never taken back while the arena lives.

use super::shared::{MAGIC, Shared};
use crate::error::{Error, Result};
use crate::map::huge;
use crate::sync::Ordering;
use crate::sys::InternalFd as OwnedFd;
use core::ptr::NonNull;
use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::{Mutex, PoisonError};

/// Address space set aside for an arena: it bounds the index, not memory, which is taken as it grows.
const RESERVED: usize = 64 << 30;
/// First allocation of memory: the shared state, the radix tree of a small file.
const FIRST: u64 = 64 << 10;
const HUGE: u64 = huge::HUGE as u64;
/// Memory is taken in steps of a quarter of what there is, at most this.
const STEP_MAX: u64 = 16 << 20;

/// A mapped arena.
pub(crate) struct Arena {
    base: NonNull<u8>,
    reserved: usize,
    /// To grow by; `None` in a forked child, which must not keep the parent's lock on it.
    file: Mutex<Option<OwnedFd>>,
}

// SAFETY: all that lies in the arena is atomic, and the mapping lives as long as the value.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes a fresh arena in `file`, an empty file on tmpfs. `ENOSPC` when memory is short.
    pub fn create(file: OwnedFd) -> Result<Self> {
        rustix::fs::ftruncate(&file, 0)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FIRST)?;
        let mut reserved = RESERVED;
        let base = loop {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            match huge::aligned(&file, reserved, protection, MapFlags::SHARED | MapFlags::NORESERVE) {
                Ok(base) => break base,
                Err(e) if reserved <= 64 << 20 => return Err(Error::from(e).context("mapping an arena")),
                Err(_) => reserved /= 4, // a limit on address space
            }
        };
        let base = NonNull::new(base).ok_or(Error::new(libc::ENOMEM))?;
        crate::sys::keep_from_children(base.as_ptr(), reserved);
        let arena = Self { base, reserved, file: Mutex::new(Some(file)) };
        let shared = arena.shared();
        shared.next.store(4096, Ordering::Relaxed);
        shared.allocated.store(FIRST, Ordering::Relaxed);
        shared.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// The shared state at the arena's start.
    #[inline]
    pub fn shared(&self) -> &Shared {
        // SAFETY: the first page is mapped with memory behind it, aligned, zero or as we left it; `Shared` is made of
        // atomic words, for which every bit pattern is valid.
        unsafe { self.base.cast::<Shared>().as_ref() }
    }

    /// What lies at `offset`, or `None` when that is not in the arena: offsets from shared memory are not trusted.
    ///
    /// `T` must be made of atomic words.
    #[inline]
    pub fn at<T>(&self, offset: u64) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>() as u64)?;
        if offset == 0 || offset & 63 != 0 || end > self.shared().allocated.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: inside what has memory behind it and stays mapped, and aligned to 64; T is made of atomic words.
        Some(unsafe { self.base.add(offset as usize).cast::<T>().as_ref() })
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
        let end = start + size;
        if end > shared.allocated.load(Ordering::Acquire) {
            self.grow(end)?;
        }
        Ok(start)
    }

    #[cold]
    fn grow(&self, end: u64) -> Result<()> {
        let shared = self.shared();
        let _growing = shared.growing.lock(0)?;
        let have = shared.allocated.load(Ordering::Acquire);
        if end <= have {
            return Ok(());
        }
        let mut want = end.max(have + (have / 4).clamp(FIRST, STEP_MAX)).next_multiple_of(4096);
        if have >= HUGE {
            want = want.next_multiple_of(HUGE);
        }
        if want > self.reserved as u64 {
            return Err(Error::with(libc::ENOSPC, "the index of an atomic file is full"));
        }
        if end > crate::sys::file_size_limit() {
            return Err(Error::with(libc::ENOSPC, "the limit on file sizes (ulimit -f) leaves the index no room"));
        }
        want = want.min(crate::sys::file_size_limit() & !4095).max(end);
        // Memory first, then the use of it: a full /dev/shm is an error here, not a SIGBUS later.
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_ref().ok_or(Error::new(libc::EBUSY))?;
        let take = |want: u64| rustix::fs::fallocate(file, FallocateFlags::empty(), have, want - have);
        if take(want).is_err() {
            // Not so much: just what is needed now.
            want = end.next_multiple_of(4096);
            take(want).map_err(|e| Error::from(e).context("growing an arena in /dev/shm"))?;
        }
        // One call now instead of a fault a page later; where the kernel lacks it, faults do. From the huge page on that the
        // old end lies in.
        let from = if want / HUGE > have / HUGE { have / HUGE * HUGE } else { want };
        // SAFETY: all in our mapping, with memory behind it.
        let (new, at) = unsafe { (self.base.add(have as usize).as_ptr(), self.base.add(from as usize).as_ptr()) };
        if !(from < want && huge::gather(at, (want - from) as usize)) {
            // SAFETY: in our mapping.
            let _ = unsafe { rustix::mm::madvise(new.cast(), (want - have) as usize, Advice::LinuxPopulateWrite) };
        }
        shared.allocated.store(want, Ordering::Release);
        Ok(())
    }

    /// In a forked child: closes the arena's file, whose lock is the parent's.
    pub fn forget_file(&self) {
        if let Ok(mut file) = self.file.try_lock() {
            *file = None;
        }
    }

    #[cfg(test)]
    pub fn for_test() -> Self {
        use std::os::fd::AsFd;
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Self::create(crate::sys::high_duplicate(file.as_fd()).unwrap()).unwrap()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.file.get_mut().is_ok_and(|file| file.is_none()) {
            return; // a forked child's: what lies there is not the arena
        }
        // SAFETY: the mapping is ours, and no reference into it outlives the arena.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.reserved) };
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
        let end = arena.shared().allocated.load(Ordering::Relaxed);
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
}
