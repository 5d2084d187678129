//! Carries out a deferred write. The thread in exclusive mode does it at its next call, by plain stores. After a
//! revocation the first thread in the file does it, and the others wait.

use crate::error::{Error, Result};
use crate::sync::{AtomicU64, Ordering, sched_yield};
use rustix::time::Timespec;

/// A thread carries it out.
const TAKEN: u64 = 1 << 63;
/// Its bytes are in the second buffer.
const SECOND: u64 = 1 << 62;
/// Where in the buffer they begin, in six bits from here on.
const SHIFT: u32 = 56;
const SHIFTS: u64 = 63 << SHIFT;
const _: () = assert!(super::block::BLOCKS_MAX < 1 << SHIFT);
/// Looks at a thread that carries it out, until the wait is given up: about a minute.
const WAITS: u32 = 60_000;
/// The looks with only a yield between them.
const YIELDS: u32 = 1000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A deferred block, and the buffer with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PutOff {
    pub block: u64,
    /// Its buffer: 0 or 1.
    pub place: usize,
    /// Where in the buffer the bytes begin: less than a cache line.
    pub shift: usize,
}

/// The word that says what is deferred: at most one block.
///
/// Invariant: not 0 only while the epoch has writes. A thread that is inside the gate in exclusive mode sets it; a
/// thread inside the gate, or the one that closed it, makes it 0.
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct Deferred(AtomicU64);

impl Deferred {
    /// Whether a write is deferred. A thread that enters after the one that deferred it then knows what to wait for.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// The deferred block, for the thread in exclusive mode.
    #[inline]
    pub fn last(&self) -> Option<PutOff> {
        Self::read(self.0.load(Ordering::Relaxed))
    }

    fn read(word: u64) -> Option<PutOff> {
        let block = (word & !(TAKEN | SECOND | SHIFTS)).checked_sub(1)?;
        Some(PutOff { block, place: usize::from(word & SECOND != 0), shift: ((word & SHIFTS) >> SHIFT) as usize })
    }

    /// The buffer for the next block, for the thread in exclusive mode.
    #[inline]
    pub fn free_place(&self) -> usize {
        self.last().map_or(0, |last| 1 - last.place)
    }

    /// Defers `next`, whose bytes are in its buffer. The previous one was carried out, or is the same block. For the
    /// thread in exclusive mode.
    #[inline]
    pub fn put(&self, next: PutOff) {
        let place = if next.place == 0 { 0 } else { SECOND };
        self.0.store((next.block + 1) | (next.shift as u64) << SHIFT & SHIFTS | place, Ordering::Release);
    }

    /// At the beginning of a session nothing is deferred.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Makes sure that nothing is deferred: calls `write` if it falls to this thread, else waits for the thread that
    /// does it. `alone`: this thread is in exclusive mode. It is inside the gate or has closed it.
    #[inline]
    pub fn carry_out(&self, alone: bool, write: impl FnOnce(PutOff) -> Result<()>) -> Result<()> {
        let word = self.0.load(Ordering::Acquire);
        let Some(what) = Self::read(word) else { return Ok(()) };
        if !alone && !self.take(word)? {
            return Ok(());
        }
        let written = write(what);
        self.0.store(0, Ordering::Release);
        written
    }

    /// Whether it falls to this thread; if not, another thread has carried it out.
    #[cold]
    fn take(&self, word: u64) -> Result<bool> {
        if word & TAKEN == 0 && self.0.compare_exchange(word, word | TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            return Ok(true);
        }
        for round in 0..WAITS {
            if !self.is_any() {
                return Ok(false);
            }
            if round < YIELDS {
                sched_yield();
            } else {
                let _ = rustix::thread::nanosleep(&REST);
            }
        }
        Err(Error::new(libc::EDEADLK))
    }
}
