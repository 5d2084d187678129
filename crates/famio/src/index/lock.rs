//! A lock in shared memory that names its holder.

use crate::error::Error;
use crate::sync::{AtomicU32, Ordering, futex, spin_loop};
use crate::thread::Held;
use rustix::time::Timespec;

/// A thread waits; the holder wakes it on release.
const WAITERS: u32 = 1 << 31;
/// Tries before a thread sleeps. A holder never sleeps, so most waits are short.
const SPINS: u32 = 200;
/// How long a waiter sleeps before it checks that the holder still lives.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Rounds of patience until a wait is given up: the lock is never stolen from a holder that may live.
const ROUNDS: u32 = 60;

/// Another call did not end in the time that any call takes: its process is stopped, or the call is stuck.
#[derive(Debug)]
pub(crate) struct Stuck;

impl From<Stuck> for Error {
    #[cold]
    fn from(_: Stuck) -> Self {
        let what = "another call on the file does not end: its process is stopped, or stuck (continue or end it)";
        Error::with(libc::EDEADLK, what)
    }
}

/// A mutual exclusion lock of one word, also between processes: 0 when free, else the holder's process slot plus one,
/// which says whose death to look for, and a bit for waiters.
#[repr(transparent)]
pub(crate) struct SharedLock(AtomicU32);

/// Holds the lock until it is dropped.
pub(crate) struct Locked<'a> {
    lock: &'a SharedLock,
    _held: Held,
}

impl SharedLock {
    /// Takes the lock for the process in `slot`. An error after a minute.
    #[inline]
    pub fn lock(&self, slot: u32) -> Result<Locked<'_>, Stuck> {
        let held = Held::of_file();
        if self.0.compare_exchange(0, slot + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(slot)?;
        }
        Ok(Locked { lock: self, _held: held })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self, slot: u32) -> Option<Locked<'_>> {
        let held = Held::of_file();
        let taken = self.0.compare_exchange(0, slot + 1, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Locked { lock: self, _held: held })
    }

    #[cold]
    fn lock_slow(&self, slot: u32) -> Result<(), Stuck> {
        for _ in 0..SPINS {
            spin_loop();
            if self.0.compare_exchange(0, slot + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
        let mut rounds = 0;
        while rounds < ROUNDS {
            // A thread that has waited takes the lock with the waiters' bit set, since others may still sleep.
            let seen = self.0.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
            if seen == WAITERS {
                if self.0.compare_exchange(seen, (slot + 1) | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            // A lock that others take again and again is not stuck.
            rounds += timed_out(futex::wait(&self.0, futex::Flags::empty(), seen, Some(&PATIENCE)));
        }
        Err(Stuck)
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // A swap, not a store: on x86 a locked instruction also drains the holder's non-temporal stores.
        let word = &self.lock.0;
        if word.swap(0, Ordering::Release) & WAITERS != 0 {
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        }
    }
}

/// 1 if a wait timed out, 0 if anything else ended it.
pub(super) fn timed_out(waited: rustix::io::Result<()>) -> u32 {
    u32::from(waited == Err(rustix::io::Errno::TIMEDOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use crate::thread;

    #[test]
    fn excludes_and_counts_what_the_thread_holds() {
        let lock = SharedLock(AtomicU32::new(0));
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let (lock, sum) = (&lock, &sum);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let _held = lock.lock(slot).unwrap();
                        assert_eq!(thread::current().locks_held.get(), 1);
                        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                    assert_eq!(thread::current().locks_held.get(), 0);
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 40_000);
        assert_eq!(lock.0.load(Ordering::Relaxed) & !WAITERS, 0);
    }

    #[test]
    fn try_lock_fails_while_held() {
        let lock = SharedLock(AtomicU32::new(0));
        let held = lock.lock(3).unwrap();
        assert!(lock.try_lock(1).is_none());
        drop(held);
        assert!(lock.try_lock(1).is_some());
    }
}
