//! A lock-free list of free blocks, for any number of threads, and for signal handlers that interrupt them.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of an address, in grains, on both architectures: programs get addresses below 2^48 unless they ask for
/// others.
const ADDRESS: u32 = 44;
const GRAIN_BITS: u32 = super::GRAIN.ilog2();

/// The first block, and above it a count of changes (against the ABA problem): the swap of a thread that was
/// suspended after reading the first block must fail even if the same block is the first *again*, with another one
/// after it. Only exactly a million changes during the suspension would defeat this.
pub(super) struct List(AtomicU64);

fn address(word: u64) -> *mut AtomicU64 {
    with_exposed_provenance_mut(((word & ((1 << ADDRESS) - 1)) << GRAIN_BITS) as usize)
}

/// The word with `address` as its first block that follows the word `before`.
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
            // SAFETY: a block was there, and such memory is never unmapped. Another thread may have taken it and
            // stored anything there; but then the count has changed, and the value is not used.
            let next = unsafe { &*block }.load(Ordering::Relaxed);
            let next = changed(first, next & ((1 << ADDRESS) - 1));
            match self.0.compare_exchange_weak(first, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(block.cast()),
                Err(now) => first = now,
            }
        }
    }

    /// Adds a block.
    ///
    /// # Safety
    /// The block is in no use, at least one grain long, aligned to a grain, and never unmapped.
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
