//! Bursts: calls of a process that follow each other at once. Other processes wait for their end, since a hand-over
//! after each call would take several times as long as the calls.

use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds for which a process stays the owner in a burst while others wait.
pub(in crate::file) const LONGEST_BURST: u64 = 200_000;
/// The most nanoseconds between the ends of two calls of a burst. Two processes that wait for each other take longer.
const LONGEST_GAP: u64 = 6_000;

/// What has ended.
#[derive(Clone, Copy)]
pub(in crate::file) enum Ended {
    Change = 0,
    Sync = 1,
    /// The process has released a lock: another that waited for it is likely to change the file.
    Section = 2,
}

/// When this process's last change of a file ended, and its last SYNC: calls of the same kind make a burst. Times are
/// in nanoseconds.
#[derive(Default)]
pub(in crate::file) struct Burst {
    ended_at: [AtomicU64; 2],
}

impl Burst {
    /// A call has ended. Whether it is part of a burst.
    pub fn call_ended(&self, ended: Ended, now: u64) -> bool {
        let Some(at) = self.ended_at.get(ended as usize) else { return false };
        let before = at.swap(now, Ordering::Relaxed);
        now < before + LONGEST_GAP
    }

    /// Whether a call ended just now, so that another is likely.
    pub fn goes_on(&self, now: u64) -> bool {
        self.ended_at.iter().any(|at| now < at.load(Ordering::Relaxed) + LONGEST_GAP)
    }

    /// The time that this process has waited for ownership does not end the burst.
    pub fn resume(&self, now: u64) {
        self.ended_at.iter().for_each(|at| at.store(now, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::state::ownership::Ownership;
    use crate::index::Membership;

    #[test]
    fn calls_that_follow_at_once_are_a_burst_and_calls_in_turn_are_not() {
        let own = Ownership::new(Membership::new());
        let begun = 1 << 40;
        own.since.store(begun, Ordering::Relaxed);
        let ends = |ended, after: u64| own.keeps_for_burst(ended, begun + after);
        assert!(!ends(Ended::Change, 1000), "its first");
        assert!(ends(Ended::Change, 3000) && !ends(Ended::Sync, 3500) && ends(Ended::Sync, 5000));
        assert!(!ends(Ended::Change, 3000 + LONGEST_GAP), "the other process was at it in between");
        assert!(ends(Ended::Change, 4000 + LONGEST_GAP) && !ends(Ended::Section, 5000 + LONGEST_GAP));
        own.burst.resume(begun + LONGEST_BURST - 1000);
        assert!(ends(Ended::Change, LONGEST_BURST - 1) && own.may_finish_burst(begun + LONGEST_BURST - 1));
        assert!(own.burst.goes_on(begun + LONGEST_BURST) && !own.may_finish_burst(begun + LONGEST_BURST));
        assert!(!ends(Ended::Change, LONGEST_BURST), "it has lasted long enough");
        assert!(!own.burst.goes_on(begun + LONGEST_BURST + LONGEST_GAP));
    }
}
