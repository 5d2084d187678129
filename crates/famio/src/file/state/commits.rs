//! Commits of transactions under way in this process. From its first copy to the end of its SYNC no thread may
//! discard the open epoch: the commit would report it as durable.

use crate::index::Stuck;
use core::sync::atomic::{AtomicU32, Ordering};

/// In the word: the open epoch is being discarded.
const DISCARDING: u32 = 1 << 31;
/// Looks until a wait is given up: about a minute, so the commit is stuck.
const LOOKS: u32 = 600_000;
const YIELDS: u32 = 1000;
const REST: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// The number of commits under way.
#[derive(Default)]
pub(crate) struct Commits(AtomicU32);

/// A commit is under way until this is dropped.
pub(crate) struct UnderWay<'a>(&'a AtomicU32);

/// No commit is under way, or begins, until this is dropped.
pub(crate) struct Discarding<'a>(&'a AtomicU32);

impl Commits {
    /// Begins a commit. An error: the epoch is being discarded, and that does not end.
    #[inline]
    pub fn begin(&self) -> Result<UnderWay<'_>, Stuck> {
        if self.0.fetch_add(1, Ordering::AcqRel) & DISCARDING == 0 {
            return Ok(UnderWay(&self.0));
        }
        self.0.fetch_sub(1, Ordering::AcqRel);
        wait(|| {
            let now = self.0.load(Ordering::Acquire);
            now & DISCARDING == 0 && self.change(now, now + 1)
        })?;
        Ok(UnderWay(&self.0))
    }

    /// Waits for commits under way, and keeps others from beginning. An error: a commit does not end.
    pub fn discard(&self) -> Result<Discarding<'_>, Stuck> {
        wait(|| self.change(0, DISCARDING))?;
        Ok(Discarding(&self.0))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cold]
fn wait(mut is_over: impl FnMut() -> bool) -> Result<(), Stuck> {
    for look in 0..LOOKS {
        if is_over() {
            return Ok(());
        }
        if look < YIELDS {
            rustix::thread::sched_yield();
        } else {
            let _ = rustix::thread::nanosleep(&REST);
        }
    }
    Err(Stuck)
}

impl Drop for UnderWay<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Discarding<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!DISCARDING, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn one_that_is_under_way_is_waited_for() {
        let (commits, ended) = (Commits::default(), AtomicBool::new(false));
        let under_way = commits.begin().unwrap();
        let second = commits.begin().unwrap();
        std::thread::scope(|scope| {
            let discarding = scope.spawn(|| {
                let discarding = commits.discard().unwrap();
                assert!(ended.load(Ordering::SeqCst));
                drop(discarding);
            });
            drop(second);
            ended.store(true, Ordering::SeqCst);
            drop(under_way);
            discarding.join().unwrap();
        });
        drop(commits.begin().unwrap());
        assert_eq!(commits.0.load(Ordering::SeqCst), 0);
    }
}
