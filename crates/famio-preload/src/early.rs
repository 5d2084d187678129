//! Memory before the library has started. The first call that it sees may come from the program's allocator, which opens a
//! file to set itself up (jemalloc reads a setting of the kernel's) and holds its lock meanwhile: who asked it for memory
//! then would wait for ever.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use famio::posix::process;
use std::alloc::System;

/// More than a configuration takes. What is beyond comes from the program's allocator. Pages that are not used cost nothing.
const SIZE: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Early = Early { room: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) };

/// Gives memory out once, until the start; from then on it is the program's allocator.
#[repr(align(64))]
struct Early {
    room: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: a byte of `room` is given out at most once.
unsafe impl Sync for Early {}

impl Early {
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let end = |used: usize| {
            let start = used.checked_next_multiple_of(layout.align())?;
            start.checked_add(layout.size()).filter(|&end| end <= SIZE)
        };
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok()?;
        // `room` is at the beginning, and so aligned to 64 bytes.
        let start = before.next_multiple_of(layout.align());
        // SAFETY: inside `room`, by `end`.
        (layout.align() <= 64).then(|| unsafe { self.room.get().cast::<u8>().add(start) })
    }

    fn holds(&self, memory: *mut u8) -> bool {
        (memory.addr().wrapping_sub(self.room.get().addr())) < SIZE
    }
}

// SAFETY: memory from `room` is fit for its layout, is given out once and never again; the rest is `System`'s.
unsafe impl GlobalAlloc for Early {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !process::has_started()
            && let Some(memory) = self.take(layout)
        {
            return memory;
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // What is given out once is still zero.
        if !process::has_started()
            && let Some(memory) = self.take(layout)
        {
            return memory;
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !self.holds(memory) {
            // SAFETY: it is `System`'s, and the caller's promise.
            unsafe { System.dealloc(memory, layout) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.holds(memory) {
            // SAFETY: it is `System`'s, and the caller's promise.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: the caller's promise: `size` is good for this alignment, and `memory` has the old size.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(memory, new, layout.size().min(size));
            }
            new
        }
    }
}
