//! The library's own heap, for shared libraries that are loaded into other programs.
//!
//! libc's allocator cannot be used there: `write`, `fsync` and similar calls may come from a signal handler that has
//! interrupted it, and from the program's own allocator while that initializes itself. This heap takes memory from
//! the kernel, and has no lock: every change is one compare-and-swap. So a signal handler may interrupt it and use
//! it, a child of `fork`, `_Fork` or `clone` finds it consistent whatever other threads were doing, and nothing
//! waits. (An ordinary lock would deadlock a handler that interrupted its holder.)
//!
//! Small allocations are blocks of fixed sizes, carved from chunks. A freed block goes to the list of its size, is
//! reused, and is never returned to the kernel, so a list may be read while other threads change it. A large
//! allocation is a mapping of its own.
// Cycle: chunk, list, mod: chunks are cut into the blocks of the lists, whose sizes the heap fixes; 320 lines, all
// unsafe, read as one

mod chunk;
mod list;

use crate::sys::{address_space, syscall};
use chunk::Chunks;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, null_mut};
use list::List;

/// Sizes of blocks are multiples of this, and blocks are aligned to it.
const GRAIN: usize = 16;
/// Allocations of this size or more are mappings.
const LARGE: usize = 128 << 10;
/// The smallest page size; maps are moved in such units.
const PAGE: usize = 4096;

/// Number of block sizes: up to 128 bytes one per grain, then four per doubling.
const CLASSES: usize = 8 + 4 * (LARGE / 128).ilog2() as usize;

/// The number of the smallest class that holds `size` bytes, below [`LARGE`].
fn class_of(size: usize) -> usize {
    if size <= 128 {
        return size.max(1).div_ceil(GRAIN) - 1;
    }
    let doubling = (size - 1).ilog2(); // 7: above 128
    let quarter = (size - 1) >> (doubling - 2) & 3;
    8 + 4 * (doubling as usize - 7) + quarter
}

/// Bytes of a class's blocks.
fn size_of_class(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * GRAIN;
    }
    let (doubling, quarter) = ((class - 8) / 4 + 7, (class - 8) % 4);
    (quarter + 5) << (doubling - 2)
}

/// The allocator. A shared library has one, as its `#[global_allocator]`.
pub struct Heap {
    chunks: Chunks,
    free: [List; CLASSES],
}

impl Heap {
    /// Takes nothing from the kernel until its built-in first chunk is used up.
    #[allow(clippy::new_without_default, reason = "it is megabytes long, for a static")]
    pub const fn new() -> Self {
        Self { chunks: Chunks::new(), free: [const { List::new() }; CLASSES] }
    }

    fn small(&self, size: usize) -> *mut u8 {
        let class = class_of(size);
        match self.free[class].pop() {
            Some(block) => block,
            None => self.chunks.carve(size_of_class(class), |block, size| self.keep(block, size)),
        }
    }

    /// Turns the rest of a chunk into blocks.
    fn keep(&self, mut rest: *mut u8, mut size: usize) {
        while size >= GRAIN {
            let mut class = class_of(size.min(LARGE - 1));
            if size_of_class(class) > size {
                class -= 1;
            }
            // SAFETY: unused memory of a chunk, as long as a block of that class.
            unsafe { self.free[class].push(rest) };
            rest = rest.wrapping_add(size_of_class(class));
            size -= size_of_class(class);
        }
    }
}

/// The size to allocate for `layout`, and whether it includes an address stored before the result, because the
/// layout's alignment is greater than a block's.
fn whole(layout: Layout) -> Option<(usize, bool)> {
    let aligned = layout.align() > if layout.size() >= LARGE { PAGE } else { GRAIN };
    let size = if aligned { layout.size().checked_add(layout.align() + GRAIN)? } else { layout.size() };
    Some((size, aligned))
}

/// A new mapping; null if there is no memory.
fn map(size: usize) -> *mut u8 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    address_space::take(size);
    // SAFETY: a new mapping, wherever the kernel puts it.
    let at = unsafe { syscall(libc::SYS_mmap, [0, size, prot as usize, flags as usize, usize::MAX, 0]) };
    if (-4095..0).contains(&at) {
        address_space::give(size);
        return null_mut();
    }
    ptr::with_exposed_provenance_mut(at as usize)
}

/// # Safety
/// `at` came from [`map`], with that size, and is not in use.
unsafe fn unmap(at: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_munmap, [at.expose_provenance(), size, 0, 0, 0, 0]) };
    address_space::give(size);
}

// SAFETY: a block, newly carved or from a list, is given out once until it is freed, with the size and alignment
// asked for; a mapping belongs to one allocation. Nothing unwinds.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((size, aligned)) = whole(layout) else { return null_mut() };
        let block = if size >= LARGE { map(size) } else { self.small(size) };
        if !aligned || block.is_null() {
            return block;
        }
        let up = (block.addr() + GRAIN).next_multiple_of(layout.align()) - block.addr();
        let at = block.wrapping_add(up);
        // SAFETY: at least a grain above the beginning of the block, which has room for that and for the alignment.
        unsafe { at.cast::<usize>().sub(1).write(block.expose_provenance()) };
        at
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let at = unsafe { self.alloc(layout) };
        // A new mapping is zeroed already.
        if !at.is_null() && whole(layout).is_some_and(|(size, _)| size < LARGE) {
            // SAFETY: just given out with that size.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some((size, aligned)) = whole(layout) else { return };
        let mut block = at;
        if aligned {
            // SAFETY: given out for this layout by `alloc`, which has stored the block's address there.
            block = ptr::with_exposed_provenance_mut(unsafe { at.cast::<usize>().sub(1).read() });
        }
        if size >= LARGE {
            // SAFETY: a mapping of `alloc`'s, which its user frees.
            unsafe { unmap(block, size) };
        } else {
            // SAFETY: a block of that class, which its user frees.
            unsafe { self.free[class_of(size)].push(block) };
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: `size` is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let (Some((old, false)), Some((new, false))) = (whole(layout), whole(new_layout)) {
            if old < LARGE && new < LARGE && class_of(old) == class_of(new) {
                return at;
            }
            if old >= LARGE && new >= LARGE {
                address_space::take(new);
                let arguments = [at.expose_provenance(), old, new, libc::MREMAP_MAYMOVE as usize, 0, 0];
                // SAFETY: a mapping of `alloc`'s, which its user allows to move.
                let moved = unsafe { syscall(libc::SYS_mremap, arguments) };
                let failed = (-4095..0).contains(&moved);
                address_space::give(if failed { new } else { old });
                return if failed { null_mut() } else { ptr::with_exposed_provenance_mut(moved as usize) };
            }
        }
        // SAFETY: the caller's promise: `at` has the old layout, and is freed if there is a new block.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                ptr::copy_nonoverlapping(at, new, layout.size().min(size));
                self.dealloc(at, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests;
