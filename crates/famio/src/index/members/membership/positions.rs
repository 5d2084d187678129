//! The lock of file positions that several processes share, because an open description went through a fork, an exec
//! or a socket. The kernel keeps the position itself.

use super::Membership;
use crate::error::{Error, Result};
use crate::index::lock::timed_out;
use crate::thread::Held;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use rustix::time::Timespec;

/// A process waits; the holder wakes it on release.
const WAITERS: u32 = 1 << 31;
/// How long a waiter sleeps before it checks that the holder still lives.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Rounds until a wait is given up, about two minutes: the holder may itself be waiting for ownership, for half of
/// that.
const ROUNDS: u32 = 12_000;

/// The lock of all such positions in one file, until it is dropped.
pub(crate) struct Positions<'a> {
    word: &'a AtomicU32,
    _held: Held,
}

impl Membership {
    /// Takes the lock. The lock of a dead process counts as free. This process is attached.
    ///
    /// # Errors
    /// `EDEADLK` after two minutes: the holder is stuck or stopped.
    pub fn lock_positions(&self) -> Result<Positions<'_>> {
        let held = Held::of_process();
        let (word, me) = (&self.page().positions, number(self.me().id));
        if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait_for_positions(word, me)?;
        }
        Ok(Positions { word, _held: held })
    }

    #[cold]
    fn wait_for_positions(&self, word: &AtomicU32, me: u32) -> Result<()> {
        let mut rounds = 0;
        while rounds < ROUNDS {
            // A thread that has waited takes the lock with the waiters' bit set, since others may still sleep.
            let seen = word.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
            let free = seen == WAITERS || rounds > 0 && !self.has(|id| number(id) == seen & !WAITERS);
            if free {
                if word.compare_exchange(seen, me | WAITERS, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            rounds += timed_out(futex::wait(word, futex::Flags::empty(), seen, Some(&PATIENCE)));
        }
        Err(Error::with(libc::EDEADLK, "another process does not end its call at the shared file position"))
    }
}

/// A process's number as the lock stores it: not 0, and without the bit.
fn number(id: u64) -> u32 {
    (id as u32 & !WAITERS).max(1)
}

impl Drop for Positions<'_> {
    fn drop(&mut self) {
        if self.word.swap(0, Ordering::Release) & WAITERS != 0 {
            let _ = futex::wake(self.word, futex::Flags::empty(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::members::control::for_test;

    #[test]
    fn excludes_across_processes_and_outlives_its_holder() {
        let file = for_test();
        let open = || {
            let membership = Membership::new();
            membership.attach(|| Ok(file.open()), || Ok(false)).unwrap();
            membership
        };
        let (first, second) = (open(), open());
        let total = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for membership in [&first, &second, &first, &second] {
                let total = &total;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _lock = membership.lock_positions().unwrap();
                        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 8000);
        // It dies with the lock: its slot is free, the lock word stays.
        core::mem::forget(first.lock_positions().unwrap());
        crate::thread::current().posix_locks.set(0);
        drop(first);
        drop(second.lock_positions().unwrap());
        assert!(second.leave());
    }
}
