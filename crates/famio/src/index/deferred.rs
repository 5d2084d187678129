//! Who carries out what the thread with the file alone has put off: that thread at its next call, by plain stores; or, when it
//! has the file alone no longer, whoever is in the file first, and the others wait.

use crate::error::{Error, Result};
use crate::sync::{AtomicU64, Ordering, sched_yield};
use rustix::time::Timespec;

/// Somebody carries it out.
const TAKEN: u64 = 1 << 63;
/// Its bytes are in the second place.
const SECOND: u64 = 1 << 62;
/// Where in its place they begin: six bits from here on.
const SHIFT: u32 = 56;
const SHIFTS: u64 = 63 << SHIFT;
const _: () = assert!(super::block::BLOCKS_MAX < 1 << SHIFT);
/// Looks at somebody who carries it out, before that is given up: about a minute.
const WAITS: u32 = 60_000;
/// Of these, looks with a mere yield between them.
const YIELDS: u32 = 1000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A block that was put off, and in which of the two places its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PutOff {
    /// The block.
    pub block: u64,
    /// Its place: 0 or 1.
    pub place: usize,
    /// Where in it the bytes begin, less than a cache line.
    pub shift: usize,
}

/// The word that says what is deferred: at most one block.
///
/// Invariant: other than 0 only while the epoch has writes. It is set by a thread that is inside the gate and has the file
/// alone, and made 0 by one inside the gate, or the one that closed it.
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct Deferred(AtomicU64);

impl Deferred {
    /// Whether anything is. Who has come into the file after the thread that deferred it knows then what it has to wait for.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// What is deferred, for the thread that has the file alone.
    #[inline]
    pub fn last(&self) -> Option<PutOff> {
        Self::read(self.0.load(Ordering::Relaxed))
    }

    fn read(word: u64) -> Option<PutOff> {
        let block = (word & !(TAKEN | SECOND | SHIFTS)).checked_sub(1)?;
        Some(PutOff { block, place: usize::from(word & SECOND != 0), shift: ((word & SHIFTS) >> SHIFT) as usize })
    }

    /// The place that the next block goes to, for the thread that has the file alone.
    #[inline]
    pub fn free_place(&self) -> usize {
        self.last().map_or(0, |last| 1 - last.place)
    }

    /// The bytes are there; what was deferred before is carried out, or is the same block. For the thread that has the file
    /// alone.
    #[inline]
    pub fn put(&self, next: PutOff) {
        let place = if next.place == 0 { 0 } else { SECOND };
        self.0.store((next.block + 1) | (next.shift as u64) << SHIFT & SHIFTS | place, Ordering::Release);
    }

    /// Nothing is, in a new session.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Sees that nothing is deferred: calls `write` if this thread is to do it, else waits for who does. `alone`: this thread
    /// has the file alone. Inside the gate, or with it closed by this thread.
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

    /// Whether this thread is the one to carry it out; if not, it has been done.
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
