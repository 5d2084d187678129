//! Counts of what was done in the open epoch. Groups of threads have lines of their own: a line that several
//! processors change moves between their caches, and each change waits for it.

use crate::thread;
use core::sync::atomic::{AtomicU64, Ordering};

/// Threads are spread over these lines. Two threads in one line are slower, and may lose counts.
const LINES: usize = 4;

/// What the threads of one line have done.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CountsLine {
    reads: AtomicU64,
    writes: AtomicU64,
    /// Bytes of those writes.
    bytes: AtomicU64,
    /// Bytes stored to the log of an in-place journal.
    journal: AtomicU64,
    /// Bytes stored directly to the file.
    file: AtomicU64,
}

/// The open epoch's counts.
#[repr(C)]
#[derive(Default)]
pub(crate) struct EpochCounts([CountsLine; LINES]);

/// Their sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Reads, for the choice of policy.
    pub reads: u64,
    pub writes: u64,
    /// Bytes of those writes.
    pub bytes: u64,
    /// Bytes stored to the log of an in-place journal.
    pub journal: u64,
    /// Bytes stored directly to the file.
    pub file: u64,
}

impl Sums {
    /// In the order of [`CountsLine::words`].
    fn of([reads, writes, bytes, journal, file]: [u64; 5]) -> Self {
        Self { reads, writes, bytes, journal, file }
    }
}

impl CountsLine {
    #[inline]
    pub fn read(&self) {
        count(&self.reads, 1);
    }

    /// Counts writes and their bytes.
    #[inline]
    pub fn wrote(&self, writes: u64, bytes: u64) {
        count(&self.writes, writes);
        count(&self.bytes, bytes);
    }

    /// Counts bytes stored to the log and to the file.
    #[inline]
    pub fn stored(&self, journal: u64, file: u64) {
        count(&self.journal, journal);
        count(&self.file, file);
    }

    /// Writes of this line's threads.
    #[inline]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn words(&self) -> [&AtomicU64; 5] {
        [&self.reads, &self.writes, &self.bytes, &self.journal, &self.file]
    }
}

impl EpochCounts {
    /// This thread's line.
    #[inline]
    pub fn mine(&self) -> &CountsLine {
        &self.0[thread::current().group() % LINES]
    }

    /// The counts of all threads.
    pub fn sums(&self) -> Sums {
        let mut sums = [0u64; 5];
        for line in &self.0 {
            sums.iter_mut()
                .zip(line.words())
                .for_each(|(sum, word)| *sum = sum.wrapping_add(word.load(Ordering::Relaxed)));
        }
        Sums::of(sums)
    }

    /// The counts of all threads, which begin again at 0. The gate is closed.
    pub fn take(&self) -> Sums {
        let mut all = [0u64; 5];
        for line in &self.0 {
            // Bytes without a call are those of a call that failed: they are taken with the next.
            if line.reads.load(Ordering::Relaxed) | line.writes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for (sum, word) in all.iter_mut().zip(line.words()) {
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
                word.store(0, Ordering::Relaxed);
            }
        }
        Sums::of(all)
    }
}

/// Adds to a statistic that several threads share. Lost counts do no harm; a locked instruction would cost more than
/// all the rest.
#[inline]
pub(in crate::index) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_count_and_are_cleared() {
        let counts = EpochCounts::default();
        counts.0[0].read();
        counts.0[1].wrote(2, 100);
        counts.0[3].wrote(1, 10);
        counts.0[3].stored(64, 128);
        counts.0[2].stored(1, 2);
        counts.0[2].read();
        let done = Sums { reads: 2, writes: 3, bytes: 110, journal: 65, file: 130 };
        assert_eq!((counts.sums(), counts.take()), (done, done));
        assert_eq!(counts.sums(), Sums::default());
    }
}
