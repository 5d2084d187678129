//! Statistics of a file since its arena was made, for `famio stats`.
//!
//! Writes are counted in words of the open epoch by plain loads and stores, and added here under the closed gate of a
//! SYNC. So a total never decreases, and is a little low if several threads wrote at once. Only some calls are timed.

use super::counts::{Sums, count};
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a histogram. Bucket *i* counts times below `2^(i + FIRST)` ns that no lower bucket counts; the last one
/// counts all longer times.
pub(crate) const BUCKETS: usize = 32;
const FIRST: u32 = 7;

/// One write in this many is timed.
pub(crate) const WRITES_TIMED: u64 = 256;
/// One SYNC in this many of an in-place journal is timed. With records every SYNC is timed, since it makes a system
/// call anyway.
pub(crate) const SYNCS_TIMED: u64 = 16;

/// Write-backs wait for at most this many nanoseconds, whatever a process asks for.
const LONGEST_HOLD: u64 = 10_000_000_000;
/// As [`LONGEST_HOLD`], for a SYNC.
pub(crate) const LONGEST_FREEZE: u64 = 2_000_000_000;

/// Whether the time in a word, which may have any value, is in the future by at most `most`.
fn is_before(word: &AtomicU64, most: u64) -> bool {
    let until = word.load(Ordering::Relaxed);
    until != 0 && until.wrapping_sub(monotonic_now()) <= most
}

/// Times, in nanoseconds.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Histogram {
    pub buckets: [AtomicU64; BUCKETS],
    pub sum: AtomicU64,
}

impl Histogram {
    #[cold]
    fn add(&self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

fn bucket(nanoseconds: u64) -> usize {
    ((u64::BITS - nanoseconds.leading_zeros()).saturating_sub(FIRST) as usize).min(BUCKETS - 1)
}

/// The bound in nanoseconds below which a bucket's times are; `None`: the last bucket.
pub(crate) fn bound(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << (bucket as u32 + FIRST))
}

/// See the module. The words may have any value: they are only shown.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Totals {
    /// Epochs that were committed.
    pub syncs: AtomicU64,
    /// SYNCs that failed.
    pub failed_syncs: AtomicU64,
    pub writes: AtomicU64,
    pub reads: AtomicU64,
    /// Bytes of those writes.
    pub written: AtomicU64,
    /// Bytes that went to the journal.
    pub journal: AtomicU64,
    /// Bytes that went directly to the file.
    pub file: AtomicU64,
    /// Blocks that were copied from the journal to the file.
    pub write_backs: AtomicU64,
    /// Bytes of those.
    pub written_back: AtomicU64,
    /// Until this time (monotonic clock, nanoseconds) write-backs that can wait do: a process copies the file.
    pub hold: AtomicU64,
    /// As `hold`: until then a SYNC that has committed does not return, and no thread writes.
    pub freeze: AtomicU64,
    pub sync_times: Histogram,
    pub write_times: Histogram,
}

impl Totals {
    /// Adds the counts of an epoch that was committed. The gate is closed: only threads that write back count
    /// meanwhile.
    pub fn end_epoch(&self, done: &Sums) {
        count(&self.syncs, 1);
        count(&self.reads, done.reads);
        count(&self.writes, done.writes);
        count(&self.written, done.bytes);
        count(&self.journal, done.journal);
        count(&self.file, done.file);
    }

    /// Whether write-backs have to wait; for a limited time, whatever the word says.
    pub fn is_held(&self) -> bool {
        is_before(&self.hold, LONGEST_HOLD)
    }

    /// Whether a SYNC may have to wait for a copy of the file.
    pub fn is_frozen(&self) -> bool {
        self.freeze.load(Ordering::Relaxed) != 0
    }

    /// Waits while the file is frozen. Called by a SYNC that has committed, with no other thread inside.
    #[inline]
    pub fn wait_for_thaw(&self) {
        if self.is_frozen() {
            self.wait_while_frozen();
        }
    }

    #[cold]
    fn wait_while_frozen(&self) {
        const LOOK: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 500_000 };
        let last = monotonic_now() + LONGEST_FREEZE; // a limit, even if a process freezes it again and again
        while is_before(&self.freeze, LONGEST_FREEZE) && monotonic_now() < last {
            let _ = rustix::thread::nanosleep(&LOOK);
        }
    }

    /// Counts a block that was copied to the file, of which this many bytes differed.
    pub fn count_write_back(&self, bytes: u64) {
        self.write_backs.fetch_add(1, Ordering::Relaxed);
        self.written_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that have reached the file.
    pub fn file_bytes(&self) -> u64 {
        self.file.load(Ordering::Relaxed).wrapping_add(self.written_back.load(Ordering::Relaxed))
    }
}

/// A call that may be timed.
pub(crate) struct Timer<'a>(Option<(&'a Histogram, u64)>);

impl<'a> Timer<'a> {
    /// Begins now if this call is to be timed.
    #[inline]
    pub fn begin(histogram: &'a Histogram, is_timed: bool) -> Self {
        Self(if is_timed { Some((histogram, monotonic_now())) } else { None })
    }

    /// The call is done.
    #[inline]
    pub fn end(self) {
        if let Some((histogram, begun)) = self.0 {
            histogram.add(monotonic_now().saturating_sub(begun));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_below_its_bound() {
        for nanoseconds in [0, 1, 127, 128, 129, 1000, 1 << 20, (1 << 37) - 1] {
            let at = bucket(nanoseconds);
            assert!(bound(at).is_none_or(|bound| nanoseconds < bound), "{nanoseconds}");
            assert!(at == 0 || bound(at - 1).is_some_and(|below| nanoseconds >= below), "{nanoseconds}");
        }
        assert_eq!((bucket(u64::MAX), bound(BUCKETS - 1)), (BUCKETS - 1, None));
    }

    #[test]
    fn write_backs_are_held_for_a_while_and_no_longer() {
        let totals = Totals::default();
        assert!(!totals.is_held());
        for (from_now, is_held) in [(1_000_000_000, true), (-1_i64, false), (60_000_000_000, false)] {
            totals.hold.store(monotonic_now().wrapping_add_signed(from_now), Ordering::Relaxed);
            assert_eq!(totals.is_held(), is_held, "{from_now}");
        }
    }

    #[test]
    fn an_epoch_is_added_once() {
        let totals = Totals::default();
        totals.end_epoch(&Sums { reads: 1, writes: 2, bytes: 3, journal: 4096, file: 64 });
        totals.end_epoch(&Sums::default());
        totals.count_write_back(100);
        let words = [&totals.syncs, &totals.reads, &totals.writes, &totals.written, &totals.journal];
        assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [2, 1, 2, 3, 4096]);
        assert_eq!(totals.file_bytes(), 164);
        let timer = Timer::begin(&totals.sync_times, true);
        timer.end();
        Timer::begin(&totals.sync_times, false).end();
        assert_eq!(totals.sync_times.buckets.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>(), 1);
    }
}
