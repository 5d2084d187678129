//! Whether so much waits that something has to be done about it.

use super::{Records, checkpointing, memory};
use crate::file::base::background_wakeup;
use crate::file::engine::context::Context;
use crate::index::BLOCK;
use crate::sys::monotonic_now;
use core::sync::atomic::Ordering;

/// Percentage of what a journal of records surely has of a pool above which an epoch begins with a checkpoint.
const OF_RECORDS: u64 = 30;

/// Nanoseconds for which the background is not woken again for what others of the pool lack.
const ASKED: u64 = 20_000_000;

impl Records {
    /// Whether the journal is long compared to what is in buffers, so that a pass pays for itself.
    pub(super) fn is_long(&self, cx: Context<'_>) -> bool {
        let used = cx.shared().used.load(Ordering::Relaxed) * BLOCK as u64;
        if let Some(tier) = &self.tier {
            // What is to be logged again is left to the commits.
            return tier.is_long(used) && !self.relogs.load(Ordering::Relaxed);
        }
        let taken_up = self.taken_up.load(Ordering::Relaxed);
        self.appended.load(Ordering::Relaxed).saturating_sub(taken_up) > checkpointing::LONG_JOURNAL_FROM.max(4 * used)
    }

    /// Whether so much of the journal is in use that a new epoch needs room first. Journals of records are that short
    /// only in a pool with a size: what an epoch has overwritten can't leave them before its commit.
    #[inline]
    pub(super) fn is_tight(&self) -> bool {
        match &self.tier {
            Some(tier) => tier.is_hard(0),
            None => self.live.limit().is_shared() && self.is_mostly_waiting(),
        }
    }

    #[cold]
    fn is_mostly_waiting(&self) -> bool {
        // A pass may be under way: what it has taken up waits until its end.
        let waiting = self.appended.load(Ordering::Relaxed).saturating_sub(self.released.load(Ordering::Relaxed));
        waiting > self.live.limit().guaranteed() / 100 * OF_RECORDS
    }

    /// Others of the pool lack room: wakes the background, and then leaves it to its own looks for a while.
    #[cold]
    pub(super) fn ask_to_give_back(&self) {
        let now = monotonic_now();
        if now > self.asked.load(Ordering::Relaxed) + ASKED {
            self.asked.store(now, Ordering::Relaxed);
            background_wakeup::wake();
        }
    }

    /// A write cache takes what the other sessions of the process leave.
    #[inline]
    pub(super) fn count_memory(&self, cx: Context<'_>) {
        let others = memory::count(&self.held, cx);
        if let Some(tier) = &self.tier {
            tier.leave_to_others(others);
        }
    }
}
