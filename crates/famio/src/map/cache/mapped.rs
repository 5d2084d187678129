//! A map of a file's front, with its map-ahead. To unmap a large one costs nearly half of what it costs to build it
//! (Linux 6.18, tmpfs: 137 ns per page), so several threads do it.

use super::Watched;
use crate::map::ahead::{Ahead, Reach, workers};
use crate::map::huge;
use crate::map::huge::HUGE;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes mapped from which on several threads unmap: waking one takes some microseconds.
const SHARED_FROM: usize = 32 << 20;

/// Bytes that one thread unmaps at a time.
const PIECE: usize = 8 << 20;

/// A shared map of the front of a file, which unmaps itself.
#[derive(Debug)]
pub(crate) struct Map {
    base: *mut u8,
    len: usize,
    /// `Some` until it is unmapped.
    ahead: Option<Ahead>,
    /// Notices when the file goes; `None`: nothing does, so the map must not be kept.
    pub(in crate::map) watched: Option<Watched>,
}

// SAFETY: an address range, used only through raw pointers.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes (not 0): from 2 MiB on at an address that suits huge pages.
    pub fn new(fd: BorrowedFd<'_>, len: usize, writable: bool, reach: Reach) -> rustix::io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let base = if len >= HUGE {
            huge::aligned(fd, len, protection, MapFlags::SHARED)?
        } else {
            // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }?.cast()
        };
        // SAFETY: just mapped, and unmapped only in `drop`, after `ahead`. The caller has installed the guard.
        let ahead = unsafe { Ahead::new(base as usize..base as usize + len, reach) };
        Ok(Self { base, len, ahead: Some(ahead), watched: None })
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn ahead(&self) -> &Ahead {
        match &self.ahead {
            Some(ahead) => ahead,
            None => unreachable!("only `drop` takes it"),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let mapped = self.ahead.as_ref().map_or(0, Ahead::mapped);
        drop(self.ahead.take()); // waits for its threads
        if mapped >= SHARED_FROM {
            let pieces = Arc::new(Pieces {
                base: self.base as usize,
                len: self.len,
                next: AtomicUsize::new(0),
                active: AtomicU32::new(0),
            });
            let asked = workers::Asked { work: pieces.clone(), range: 0..self.len, serial: 0 };
            workers::ask(asked, self.len / PIECE);
            pieces.take_down();
            pieces.wait();
        }
        // SAFETY: ours, of this length. Callers keep no pointers into it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len.next_multiple_of(4096)) };
    }
}

/// The page tables of a map, piece by piece.
struct Pieces {
    base: usize,
    len: usize,
    next: AtomicUsize,
    active: AtomicU32,
}

impl Pieces {
    fn take_down(&self) {
        loop {
            let at = self.next.fetch_add(PIECE, SeqCst);
            if at >= self.len {
                return;
            }
            let len = PIECE.min(self.len - at);
            // SAFETY: drops page tables of a shared map, no bytes. It is mapped: `drop` waits for all threads that
            // took a piece.
            let _ = unsafe {
                let advice = rustix::mm::Advice::LinuxDontNeed;
                rustix::mm::madvise((self.base + at) as *mut _, len.next_multiple_of(4096), advice)
            };
        }
    }

    /// After all pieces were taken: waits until they are done. A thread that comes later finds none.
    fn wait(&self) {
        loop {
            let active = self.active.load(SeqCst);
            if active == 0 {
                return;
            }
            let _ = futex::wait(&self.active, futex::Flags::PRIVATE, active, None);
        }
    }
}

impl workers::Work for Pieces {
    fn work(&self, _: Range<usize>, _: u32) {
        self.active.fetch_add(1, SeqCst); // before a piece is taken: `wait` is called after the last was
        self.take_down();
        if self.active.fetch_sub(1, SeqCst) == 1 {
            let _ = futex::wake(&self.active, futex::Flags::PRIVATE, 1);
        }
    }
}
