//! A list of free blocks that any number of threads, and handlers that interrupt them, take from and give to without waiting.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of an address on both architectures, in grains: programs are given addresses below 2^48 unless they ask for others.
const ADDRESS: u32 = 44;
const GRAIN_BITS: u32 = super::GRAIN.ilog2();

/// The first block, and above it a count of changes: a thread that was stopped between its look at the first block and its
/// swap is not to succeed because the same block is the first *again*, with another behind it. For that a million changes
/// (exactly so many) would have to fall into the stop.
pub(super) struct List(AtomicU64);

fn address(word: u64) -> *mut AtomicU64 {
    with_exposed_provenance_mut(((word & ((1 << ADDRESS) - 1)) << GRAIN_BITS) as usize)
}

/// The word with `address` as its first block, after one with `before`.
fn changed(before: u64, address: u64) -> u64 {
    ((before >> ADDRESS) + 1) << ADDRESS | address
}

impl List {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes a block.
    pub fn pop(&self) -> Option<*mut u8> {
        let mut first = self.0.load(Ordering::Acquire);
        loop {
            let block = address(first);
            if block.is_null() {
                return None;
            }
            // SAFETY: a block was there, and such memory never goes back to the kernel. Another may have taken it since and stored
            // anything there: the count has changed then, and the word is not used.
            let next = unsafe { &*block }.load(Ordering::Relaxed);
            let next = changed(first, next & ((1 << ADDRESS) - 1));
            match self.0.compare_exchange_weak(first, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(block.cast()),
                Err(now) => first = now,
            }
        }
    }

    /// Gives a block.
    ///
    /// # Safety
    /// It is nobody's, a grain long and aligned to one at least, and stays mapped for ever.
    pub unsafe fn push(&self, block: *mut u8) {
        let number = (block.expose_provenance() >> GRAIN_BITS) as u64;
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe { &*block.cast::<AtomicU64>() }.store(first & ((1 << ADDRESS) - 1), Ordering::Relaxed);
            let next = changed(first, number);
            match self.0.compare_exchange_weak(first, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}
