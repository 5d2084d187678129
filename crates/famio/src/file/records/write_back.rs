//! A tiered journal as a write cache: committed blocks stay in the journal and absorb later writes, until more than a
//! part of its budget is in use. Then the blocks that were not written for the longest time go to the file: the
//! journal's oldest records, without what later ones have replaced.

use super::EpochLog;
use crate::journal::pools::shares::Limit;
use crate::pmem::TestHooks;
use crate::settings::{Settings, WriteBackRange};
use core::sync::atomic::{AtomicU64, Ordering};

/// Percentages of the budget from which on buffers are written back, and writers help.
const FULL: u64 = 45;
const HARD: u64 = 60;
/// Bytes that a file may have, whatever others have.
const LEAST: u64 = 16 << 20;
/// A journal whose blocks are all logged again grows to this many times their bytes: the oldest epochs of a longer one
/// have hardly fewer blocks that are still needed, and a short one stays in the caches and in pages that it has.
const TIMES_BUFFERS: u64 = 3;
/// But not below this many bytes.
const SHORT: u64 = 4 << 20;

/// See the module.
pub(super) struct WriteBack {
    range: WriteBackRange,
    limit: Limit,
    /// Bytes of memory that other sessions of the process have.
    others: AtomicU64,
    /// Bytes that may wait.
    budget: AtomicU64,
    /// Bytes of journal in use.
    used: AtomicU64,
    /// Those in front of the segment to which epochs are appended.
    before_current: AtomicU64,
    /// The journal's next epoch.
    next: AtomicU64,
}

impl WriteBack {
    /// For a journal of at most `limit` bytes.
    pub fn new(settings: &Settings, limit: Limit) -> Self {
        let [others, budget, used, before_current, next] = [const { AtomicU64::new(0) }; 5];
        let this = Self { range: settings.write_back, limit, others, budget, used, before_current, next };
        this.adapt();
        this
    }

    /// In a pool with a size, the limit is what the pool has for the journal now. All files of a process share an
    /// eighth of the memory.
    fn adapt(&self) {
        // Waiting blocks lie in memory, too.
        let memory = (crate::sys::memory() / 8).saturating_sub(self.others.load(Ordering::Relaxed)).max(LEAST);
        self.budget.store(self.limit.now().min(memory), Ordering::Relaxed);
    }

    #[inline]
    fn part(&self, percent: u64) -> u64 {
        self.budget.load(Ordering::Relaxed) / 100 * percent
    }

    /// Bytes of journal from which on blocks are written back, in any case.
    fn from(&self) -> u64 {
        self.part(self.range.from.into())
    }

    /// Bytes of journal that are enough for this many bytes of buffers, if these are logged again.
    fn enough(buffers: u64) -> u64 {
        (TIMES_BUFFERS * buffers).max(SHORT)
    }

    /// Bytes of buffers from which on everything is. A buffer has all bytes of a block, the journal only those written.
    fn full(&self) -> u64 {
        self.part(FULL.max(self.range.from.into()))
    }

    /// Bytes of either from which on writers help.
    fn hard(&self) -> u64 {
        self.part(HARD.max(self.range.from.into()))
    }

    /// Other sessions of the process have this many bytes of memory.
    #[inline]
    pub fn leave_to_others(&self, bytes: u64) {
        if self.others.load(Ordering::Relaxed) != bytes {
            self.others.store(bytes, Ordering::Relaxed);
            self.adapt();
        }
    }

    /// The log has changed.
    pub fn note(&self, log: &EpochLog) {
        if let EpochLog::Memory(log) = log {
            self.used.store(log.used(), Ordering::Relaxed);
            self.before_current.store(log.used_before_current(), Ordering::Relaxed);
            self.next.store(log.committed() + 1, Ordering::Relaxed);
        }
        if self.limit.is_shared() {
            self.adapt();
        }
    }

    /// The number that the open epoch will have in the journal.
    pub fn next_epoch(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether so much waits in buffers, with this many bytes, that the background does not wait for a quiet moment.
    #[inline]
    pub fn is_full(&self, buffers: u64) -> bool {
        buffers > self.full()
    }

    /// Whether the journal is so long that it gives up its oldest epochs, with this many bytes of buffers.
    #[inline]
    pub fn is_long(&self, buffers: u64) -> bool {
        let older = self.before_current.load(Ordering::Relaxed);
        let is_too_long = older > Self::enough(buffers) && self.has_room_for_all(buffers);
        is_too_long || self.used.load(Ordering::Relaxed) > self.from()
    }

    /// Whether writers have to help.
    #[inline]
    pub fn is_hard(&self, buffers: u64) -> bool {
        buffers.max(self.used.load(Ordering::Relaxed)) > self.hard()
    }

    /// Whether the buffers are few enough to stay in the journal as it is, with room to log some of them again.
    pub fn has_room_for_all(&self, buffers: u64) -> bool {
        buffers <= self.part(self.range.to.into()) && !self.is_hard(0) || TestHooks::current().logs_again
    }

    /// The epoch up to which everything is to be written back now; `None`: everything.
    pub fn target(&self, log: &EpochLog, buffers: u64) -> Option<u64> {
        let keep = if self.has_room_for_all(buffers) {
            let long = self.from().min(Self::enough(buffers));
            long - long / 4
        } else {
            self.part(self.range.to.into())
        };
        match log {
            EpochLog::Memory(log) if self.is_long(buffers) && buffers <= self.full() => Some(log.epoch_before(keep)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file of a process once had an eighth of the machine's memory.
    #[test]
    fn files_of_a_process_share_its_memory() {
        let memory = crate::sys::memory();
        let cache = WriteBack::new(&Settings::default(), Limit::new(u64::MAX, None));
        let bounds = || [memory / 10, memory / 20, LEAST].map(|bytes| cache.is_hard(bytes));
        assert_eq!(bounds(), [true, false, false]);
        cache.leave_to_others(memory / 16);
        assert_eq!(bounds(), [true, true, false]);
        cache.leave_to_others(u64::MAX);
        assert_eq!(bounds(), [true; 3]);
        cache.leave_to_others(0);
        assert_eq!(bounds(), [true, false, false]);
    }
}
