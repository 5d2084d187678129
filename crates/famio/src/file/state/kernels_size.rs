//! The size that the kernel shows of a file in a quiet state. A program that asks for the size has the kernel's
//! answer already; if that is this size, it is valid, and the kernel is not asked again.

use crate::thread::Mutex;
use core::sync::atomic::{AtomicU64, Ordering};

/// A size, and the state (`AtomicFile::quiet`) in which the file has it.
#[derive(Default)]
pub(in crate::file) struct KernelsSize {
    size: AtomicU64,
    /// 0: none yet.
    as_of: AtomicU64,
    storing: Mutex<()>,
}

impl KernelsSize {
    /// Whether the file is known to have this size while its state is `quiet`.
    #[inline]
    pub fn is(&self, size: u64, quiet: u64) -> bool {
        let is_as_of = || self.as_of.load(Ordering::Acquire) == quiet;
        // Twice: states do not repeat, so a size stored in between belongs to another one.
        is_as_of() && self.size.load(Ordering::Acquire) == size && is_as_of()
    }

    /// The file has this size while its state is `quiet`.
    pub fn set(&self, size: u64, quiet: u64) {
        let Some(_storing) = self.storing.try_lock() else { return };
        self.as_of.store(0, Ordering::SeqCst);
        self.size.store(size, Ordering::SeqCst);
        self.as_of.store(quiet, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_of_one_state() {
        let size = KernelsSize::default();
        assert!(!size.is(0, 32));
        size.set(100, 32);
        assert!(size.is(100, 32) && !size.is(101, 32) && !size.is(100, 64));
        size.set(200, 64);
        assert!(size.is(200, 64) && !size.is(100, 32));
    }
}
