//! What the shared files need of a medium. Nothing is persistent here.

use crate::sync::{AtomicU64, Ordering};

pub(crate) const LINE: usize = 64;

pub(crate) trait Medium {
    fn store(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    /// # Safety
    /// As in the library.
    unsafe fn flush(&self, _at: *const u8, _len: usize) {}
}

pub(crate) fn prefetch(_at: *const u8) {}

pub(crate) fn fenced_by_all() {}

/// As [`prefetch`].
pub(crate) fn prefetch_for_store(_: *const u8) {}
