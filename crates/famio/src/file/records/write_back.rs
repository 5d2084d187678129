//! A tiered journal as a write cache: committed blocks stay in the journal and absorb later writes, until more than a
//! part of its budget is in use. Then the blocks that were not written for the longest time go to the file: the
//! journal's oldest records, without what later ones have replaced.

use super::EpochLog;
use crate::pmem::TestHooks;
use crate::settings::{Settings, WriteBackRange};
use core::sync::atomic::{AtomicU64, Ordering};

/// Percentages of the budget from which on buffers are written back, and writers help.
const FULL: u64 = 45;
const HARD: u64 = 60;

/// See the module.
pub(super) struct WriteBack {
    /// Bytes of journal from which on blocks are written back, and down to how many.
    from: u64,
    to: u64,
    /// Bytes of buffers from which on everything is. A buffer has all bytes of a block, the journal only those
    /// written.
    full: u64,
    /// Bytes of either from which on writers help.
    hard: u64,
    /// Bytes of journal in use.
    used: AtomicU64,
    /// The journal's next epoch.
    next: AtomicU64,
}

impl WriteBack {
    /// For a journal of at most `limit` bytes.
    pub fn new(settings: &Settings, limit: u64) -> Self {
        // Waiting blocks lie in memory, too.
        let budget = limit.min(crate::sys::memory() / 8);
        let WriteBackRange { from, to } = settings.write_back;
        let part = |percent: u64| budget / 100 * percent;
        Self {
            from: part(from.into()),
            to: part(to.into()),
            full: part(FULL.max(from.into())),
            hard: part(HARD.max(from.into())),
            used: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// The log has changed.
    pub fn note(&self, log: &EpochLog) {
        if let EpochLog::Memory(log) = log {
            self.used.store(log.used(), Ordering::Relaxed);
            self.next.store(log.committed() + 1, Ordering::Relaxed);
        }
    }

    /// The number that the open epoch will have in the journal.
    pub fn next_epoch(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether so much waits that the background does not wait for a quiet moment. `buffers`: their bytes.
    #[inline]
    pub fn is_pressed(&self, buffers: u64) -> bool {
        self.used.load(Ordering::Relaxed) > self.from || buffers > self.full
    }

    /// Whether writers have to help.
    #[inline]
    pub fn is_hard(&self, buffers: u64) -> bool {
        buffers.max(self.used.load(Ordering::Relaxed)) > self.hard
    }

    /// Whether the buffers are few enough to stay in the journal as it is, with room to log some of them again.
    pub fn has_room_for_all(&self, buffers: u64) -> bool {
        buffers <= self.to && !self.is_hard(0) || TestHooks::current().logs_again
    }

    /// The epoch up to which everything is to be written back now; `None`: everything.
    pub fn target(&self, log: &EpochLog, buffers: u64) -> Option<u64> {
        // Blocks logged again are part of one commit, so they must not be many.
        let keep = if self.has_room_for_all(buffers) { self.from - self.from / 4 } else { self.to };
        match log {
            EpochLog::Memory(log) if self.is_pressed(0) && buffers <= self.full => Some(log.epoch_before(keep)),
            _ => None,
        }
    }
}
