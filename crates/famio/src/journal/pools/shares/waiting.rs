//! Waiting for what others of the pool have borrowed.

use super::arithmetic::Verdict;
use super::member::Member;
use super::wants::Want;
use crate::error::Lent;
use crate::pmem::TestHooks;
use crate::sys::monotonic_now;
use core::sync::atomic::Ordering;
use rustix::thread::nanosleep;
use rustix::time::Timespec;
use std::sync::Arc;

/// How long a writer waits for what others have borrowed of its share.
const PATIENCE: u64 = 10_000_000_000;
/// The same if only this process has something to return: its background returns it soon, and what its next SYNC would
/// return may depend on the waiting thread itself.
const BRIEFLY: u64 = 1_000_000_000;
/// The same after a wait in vain, if this process has got nothing since: a program that ignores errors must not wait at
/// every write.
const IMPATIENCE: u64 = 100_000_000;
/// Between two looks meanwhile.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Bytes for a journal, which has `length` with them.
pub(super) struct Borrowed {
    pub member: Arc<Member>,
    pub bytes: u64,
    pub length: u64,
}

impl Lent for Borrowed {
    fn wait(&self) -> bool {
        self.member.wait_for(self.bytes, self.length)
    }
}

impl Member {
    /// Waits until others have given back what they have borrowed of `bytes`, for a while. Returns whether they have.
    /// The caller holds nothing that others wait for.
    pub fn wait_for(&self, bytes: u64, length: u64) -> bool {
        let begun = monotonic_now();
        let patience = TestHooks::current().patience.unwrap_or(PATIENCE);
        let want = Want { bytes, deadline: begun + patience + BRIEFLY };
        self.want(|wants| wants.begin(want));
        let verdict = loop {
            let (verdict, others_must_return) = self.would_grow(bytes, length);
            if verdict != Verdict::Borrowed {
                break verdict;
            }
            let is_hopeless = self.free() < self.in_vain.load(Ordering::Relaxed);
            let patience = if others_must_return { patience } else { BRIEFLY };
            if monotonic_now() > begun + if is_hopeless { IMPATIENCE } else { patience } {
                break verdict;
            }
            let _ = nanosleep(&PAUSE);
        };
        self.want(|wants| wants.end(want));
        let in_vain = if verdict == Verdict::Borrowed { self.free() + 1 } else { 0 };
        self.in_vain.store(in_vain, Ordering::Relaxed);
        verdict == Verdict::Granted
    }
}
