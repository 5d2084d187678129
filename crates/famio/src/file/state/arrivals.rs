//! Threads that are on their way to a write that is atomic by itself (`write_atomic`).

use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicU32, Ordering};

/// Counts threads that have begun such a write.
#[derive(Default)]
pub(in crate::file) struct Arrivals(AtomicU32);

pub(in crate::file) struct Announced<'a>(&'a AtomicU32);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Nanoseconds for which a thread waits for others before its flush: they have to be woken, and a flush takes longer.
pub(in crate::file) const PATIENCE: u64 = 100_000;

impl Arrivals {
    pub(in crate::file) fn announce(&self) -> Announced<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Announced(&self.0)
    }

    pub(in crate::file) fn has_others(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }

    /// Waits, but not for long, until the threads on their way have written.
    #[cold]
    pub(in crate::file) fn wait_for_others(&self) {
        let until = monotonic_now() + PATIENCE;
        while self.0.load(Ordering::Acquire) > 0 && monotonic_now() < until {
            rustix::thread::sched_yield();
        }
    }
}
