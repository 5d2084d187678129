//! Where blocks come from: chunks of a megabyte, used from their beginning to their end.

use super::{map, unmap};
use core::cell::UnsafeCell;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes of a chunk, with its head.
const SIZE: usize = 1 << 20;
const ROOM: usize = SIZE - 64;

#[repr(C, align(64))]
struct Chunk {
    /// Bytes of `room` that were given out.
    used: AtomicUsize,
    room: Aligned,
}

#[repr(C, align(64))]
struct Aligned(UnsafeCell<[u8; ROOM]>);

const _: () = assert!(size_of::<Chunk>() == SIZE);

/// The chunk in use. The first is part of it, as zeros, so that it takes no room in a file, no call to get, and memory only as
/// far as it is used: most programs need no other.
pub(super) struct Chunks {
    first: Chunk,
    /// Null: the first.
    now: AtomicPtr<Chunk>,
}

// SAFETY: bytes of `room` are given out once each.
unsafe impl Sync for Chunks {}

impl Chunks {
    pub const fn new() -> Self {
        let first = Chunk { used: AtomicUsize::new(0), room: Aligned(UnsafeCell::new([0; ROOM])) };
        Self { first, now: AtomicPtr::new(null_mut()) }
    }

    /// `size` bytes that were never given out, a multiple of the grain; null if there is no memory. What is left of a chunk that
    /// has no room for that goes to `keep`.
    pub fn carve(&self, size: usize, keep: impl Fn(*mut u8, usize)) -> *mut u8 {
        loop {
            let now = self.now.load(Ordering::Acquire);
            // SAFETY: null, or a chunk, which is never unmapped once it was put there.
            let chunk = unsafe { now.as_ref() }.unwrap_or(&self.first);
            let fits = |used: usize| used.checked_add(size).filter(|&end| end <= ROOM);
            if let Ok(at) = chunk.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
                return chunk.room.0.get().cast::<u8>().wrapping_add(at);
            }
            let new = map(SIZE).cast::<Chunk>();
            if new.is_null() {
                return null_mut();
            }
            // SAFETY: a new mapping of its size, of zeros, which are an empty chunk; this thread's as yet.
            unsafe { &*new }.used.store(size, Ordering::Relaxed);
            if self.now.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: nobody has seen it.
                unsafe { unmap(new.cast(), SIZE) };
                continue;
            }
            // Who still finds room in the old one has it; the rest, from here on, is ours.
            let used = chunk.used.swap(ROOM, Ordering::Relaxed);
            keep(chunk.room.0.get().cast::<u8>().wrapping_add(used), ROOM - used);
            // SAFETY: as above; the beginning of its room was set aside for this call.
            return unsafe { ptr::addr_of!((*new).room) }.cast_mut().cast();
        }
    }
}
