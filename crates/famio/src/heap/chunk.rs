//! The source of blocks: chunks of one megabyte, used from beginning to end.

use super::{map, unmap};
use core::cell::UnsafeCell;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes of a chunk, with its head.
const SIZE: usize = 1 << 20;
const ROOM: usize = SIZE - 64;

#[repr(C, align(64))]
struct Chunk {
    /// How many bytes of `room` were given out.
    used: AtomicUsize,
    room: Aligned,
}

#[repr(C, align(64))]
struct Aligned(UnsafeCell<[u8; ROOM]>);

const _: () = assert!(size_of::<Chunk>() == SIZE);

/// The chunk in use. The first one is a part of this, as zeros: it takes no space in a file and needs no system call,
/// and takes memory only as far as it is used. Most programs need no other.
pub(super) struct Chunks {
    first: Chunk,
    /// Null: the first chunk.
    now: AtomicPtr<Chunk>,
}

// SAFETY: bytes of `room` are given out once each.
unsafe impl Sync for Chunks {}

impl Chunks {
    pub const fn new() -> Self {
        let first = Chunk { used: AtomicUsize::new(0), room: Aligned(UnsafeCell::new([0; ROOM])) };
        Self { first, now: AtomicPtr::new(null_mut()) }
    }

    /// `size` bytes that were never given out, a multiple of the grain; null if there is no memory. If the chunk has
    /// not enough room, the rest of it goes to `keep`.
    pub fn carve(&self, size: usize, keep: impl Fn(*mut u8, usize)) -> *mut u8 {
        loop {
            let now = self.now.load(Ordering::Acquire);
            // SAFETY: null, or a chunk, which is never unmapped once it is stored here.
            let chunk = unsafe { now.as_ref() }.unwrap_or(&self.first);
            let fits = |used: usize| used.checked_add(size).filter(|&end| end <= ROOM);
            if let Ok(at) = chunk.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
                return chunk.room.0.get().cast::<u8>().wrapping_add(at);
            }
            let new = map(SIZE).cast::<Chunk>();
            if new.is_null() {
                return null_mut();
            }
            // SAFETY: a new mapping of that size, whose zeros are an empty chunk; only this thread has it yet.
            unsafe { &*new }.used.store(size, Ordering::Relaxed);
            if self.now.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: no other thread has seen it.
                unsafe { unmap(new.cast(), SIZE) };
                continue;
            }
            // A thread may still have found room in the old chunk; the rest of it, from here on, is ours.
            let used = chunk.used.swap(ROOM, Ordering::Relaxed);
            keep(chunk.room.0.get().cast::<u8>().wrapping_add(used), ROOM - used);
            // SAFETY: as above; the beginning of its room was reserved for this call.
            return unsafe { ptr::addr_of!((*new).room) }.cast_mut().cast();
        }
    }
}
