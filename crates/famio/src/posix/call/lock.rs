//! A one-word lock: no allocation, no libc, usable in a zeroed static. The block of a thread that holds or awaits one
//! says so, and a signal handler of that thread then takes none.

use crate::error::{Error, Result};
use crate::posix::raw;
use crate::thread::{Held, current};
use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// A mutual exclusion by futex, private to the process.
pub(in crate::posix) struct Lock(AtomicU32);

/// Holds a [`Lock`] until it is dropped.
pub(in crate::posix) struct Guard<'a> {
    lock: &'a Lock,
    _held: Held,
}

impl Lock {
    pub(in crate::posix) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits for the lock. Call [`not_reentered`] at the entry of the call first.
    #[inline]
    pub(in crate::posix) fn lock(&self) -> Guard<'_> {
        let held = Held::of_process();
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard { lock: self, _held: held }
    }

    #[cold]
    fn wait(&self) {
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let word = self.0.as_ptr();
            // SAFETY: the word lives as long as `self`; no time-out is passed.
            unsafe { raw!(SYS_futex, word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, AWAITED, 0) };
        }
    }

    /// Frees the lock, whichever thread holds it: in a forked child, where the parent's other threads do not exist.
    pub(in crate::posix) fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.lock.0;
        if word.swap(FREE, Ordering::Release) == AWAITED {
            let word = word.as_ptr();
            // SAFETY: waking touches no memory.
            unsafe { raw!(SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
        }
    }
}

/// `EDEADLK` if this call comes from a signal handler that interrupted the library in a locked section: the thread
/// would wait for itself.
#[inline]
pub(in crate::posix) fn not_reentered() -> Result<()> {
    let thread = current();
    if thread.posix_locks.get() == 0 && thread.locks_held.get() == 0 { Ok(()) } else { Err(reentered()) }
}

#[cold]
fn reentered() -> Error {
    Error::new(libc::EDEADLK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Counter(Lock, UnsafeCell<u64>);
    // SAFETY: the cell is touched only under the lock.
    unsafe impl Sync for Counter {}

    #[test]
    fn excludes_and_wakes() {
        let counter = Counter(Lock::new(), UnsafeCell::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let counter = &counter;
                    for _ in 0..20_000 {
                        let _guard = counter.0.lock();
                        // SAFETY: under the lock.
                        unsafe { *counter.1.get() += 1 };
                    }
                });
            }
        });
        assert_eq!(counter.1.into_inner(), 80_000);
    }

    #[test]
    fn a_holder_may_not_enter_again() {
        let lock = Lock::new();
        let guard = lock.lock();
        assert_eq!(not_reentered().unwrap_err().errno(), libc::EDEADLK);
        drop(guard);
        not_reentered().unwrap();
    }
}
