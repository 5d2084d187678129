//! A pass starts the disk's writes as it goes on. If all of them were left to the flush at its end, a SYNC meanwhile
//! would wait behind them.

use crate::error::Result;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a pass has written to the file, since the last start.
pub(super) struct WriteOut {
    from: AtomicU64,
    until: AtomicU64,
    /// A sandbox does not allow it.
    is_refused: AtomicBool,
}

impl WriteOut {
    pub const fn new() -> Self {
        Self { from: AtomicU64::new(u64::MAX), until: AtomicU64::new(0), is_refused: AtomicBool::new(false) }
    }

    /// These bytes of the file were written.
    pub fn note(&self, written: Range<u64>) {
        self.from.fetch_min(written.start, Ordering::Relaxed);
        self.until.fetch_max(written.end, Ordering::Relaxed);
    }

    /// What was noted; nothing is from now on. A range that is noted meanwhile may be missed.
    fn take(&self) -> Range<u64> {
        self.from.swap(u64::MAX, Ordering::Relaxed)..self.until.swap(0, Ordering::Relaxed)
    }

    /// Starts the disk's writes of what was noted since the last call, by `start`. No lock is held, and the gate is open: it
    /// waits if the disk has too much to do. Its error is also that of the pass's flush.
    pub fn start(&self, start: impl FnOnce(Range<u64>) -> Result<()>) {
        let range = self.take();
        if range.is_empty() || self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        if start(range).is_err_and(|e| [libc::ENOSYS, libc::EPERM].contains(&e.errno())) {
            self.is_refused.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn spans_what_was_written_since_it_was_taken() {
        let out = WriteOut::new();
        assert!(out.take().is_empty());
        out.note(8192..12288);
        out.note(64..128);
        assert_eq!(out.take(), 64..12288);
        assert!(out.take().is_empty());
        out.note(4096..8192);
        assert_eq!(out.take(), 4096..8192);
    }

    #[test]
    fn a_refusal_is_for_good_and_an_error_of_the_disk_is_not() {
        let out = WriteOut::new();
        let mut tries = 0;
        out.start(|_| unreachable!());
        for errno in [libc::EIO, libc::ENOSYS] {
            out.note(64..128);
            out.start(|range| {
                (tries, _) = (tries + 1, assert_eq!(range, 64..128));
                Err(Error::new(errno))
            });
        }
        out.note(64..128);
        out.start(|_| unreachable!());
        assert_eq!(tries, 2);
    }
}
