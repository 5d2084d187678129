//! The queue of deferred writes. The thread in exclusive mode carries them out one or two calls later, by plain stores.
//! After a revocation the first thread in the file does it, and the others wait.

use super::block::BLOCK;
use crate::error::Result;
use crate::index::lock::Stuck;
use crate::pmem::LINE;
use crate::sync::{AtomicU64, Ordering, sched_yield};
use rustix::time::Timespec;

/// Writes that can be deferred at once, and buffers for them. One buffer is free when the next write arrives.
pub(crate) const PLACES: usize = 4;

/// A thread carries them out.
const TAKEN: u64 = 1 << 63;
/// The buffer of the oldest write, above the number of writes.
const FIRST: u32 = 8;
const COUNT: u64 = (1 << FIRST) - 1;
/// Looks at a thread that carries them out, until the wait is given up: about a minute.
const WAITS: u32 = 60_000;
/// The looks with only a yield between them.
const YIELDS: u32 = 1000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A deferred write to one block, and the buffer with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferredWrite {
    pub block: u64,
    /// Bytes `start..start + len` of the block. They have the same offset in the buffer, after `shift`.
    pub start: usize,
    pub len: usize,
    /// Where in the buffer the block begins: less than a cache line.
    pub shift: usize,
}

impl DeferredWrite {
    /// Where in the block the bytes begin and end.
    #[inline]
    pub fn part(&self) -> (usize, usize) {
        (self.start, self.start + self.len)
    }

    /// In two words: the block; start, length and shift.
    fn words(&self) -> [u64; 2] {
        [self.block, self.start as u64 | (self.len as u64) << 16 | (self.shift as u64) << 32]
    }

    fn of_words([block, rest]: [u64; 2]) -> Self {
        // Other processes of the user may have changed them: never beyond a block.
        let part = |at: u32| (rest >> at) as u16 as usize;
        let start = part(0) % BLOCK;
        Self { block, start, len: part(16).min(BLOCK - start), shift: part(32) % LINE }
    }
}

/// The writes that are deferred, a queue: in order, the oldest first.
///
/// Invariant: not empty only while the epoch has writes. A thread that is inside the gate in exclusive mode adds to it;
/// a thread inside the gate, or the thread that closed it, takes from it.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Deferred {
    /// How many, and where the oldest is; 0: none.
    queue: AtomicU64,
    /// 1 + the block of the last write, if that was small, and not deferred because the write before it went to the
    /// same block; else 0. A hint: a further write to this block is not to be deferred either.
    direct: AtomicU64,
    writes: [[AtomicU64; 2]; PLACES],
}

impl Deferred {
    /// Whether a write is deferred. A thread that enters after the one that deferred it then knows what to wait for.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.queue.load(Ordering::Acquire) != 0
    }

    /// The number of the buffer of the oldest write, and of writes.
    #[inline]
    fn read(word: u64) -> (usize, usize) {
        (((word & !TAKEN) as usize >> FIRST) % PLACES, ((word & COUNT) as usize).min(PLACES))
    }

    #[inline]
    fn write_at(&self, place: usize) -> DeferredWrite {
        let words = &self.writes[place % PLACES];
        DeferredWrite::of_words([words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)])
    }

    /// The writes in order, each with the number of its buffer.
    pub fn all(&self) -> impl Iterator<Item = (DeferredWrite, usize)> {
        let (first, count) = Self::read(self.queue.load(Ordering::Relaxed));
        (first..first + count).map(|place| (self.write_at(place), place % PLACES))
    }

    /// Whether a write to one of these blocks is deferred, for the thread in exclusive mode.
    pub fn has_any_of(&self, blocks: core::ops::RangeInclusive<u64>) -> bool {
        self.all().any(|(what, _)| blocks.contains(&what.block))
    }

    /// The newest write, for the thread in exclusive mode.
    #[inline]
    pub fn newest(&self) -> Option<DeferredWrite> {
        let (first, count) = Self::read(self.queue.load(Ordering::Relaxed));
        Some(self.write_at(first + count.checked_sub(1)?))
    }

    /// The block of the newest write, for the thread in exclusive mode.
    #[inline]
    pub fn newest_block(&self) -> Option<u64> {
        let (first, count) = Self::read(self.queue.load(Ordering::Relaxed));
        Some(self.writes[(first + count.checked_sub(1)?) % PLACES][0].load(Ordering::Relaxed))
    }

    /// Whether the last writes were to this block, and not deferred, as in order through a file.
    #[inline]
    pub fn is_direct(&self, block: u64) -> bool {
        self.direct.load(Ordering::Relaxed) == block + 1
    }

    /// A write to the block is not deferred, since the one before was to it, too.
    #[inline]
    pub fn go_direct(&self, block: u64) {
        self.direct.store(block + 1, Ordering::Relaxed);
    }

    /// Whether exactly one write is deferred, for the thread in exclusive mode.
    #[inline]
    pub fn is_one(&self) -> bool {
        self.queue.load(Ordering::Relaxed) & COUNT == 1
    }

    /// The buffer for the next write, for the thread in exclusive mode, which never leaves all in use.
    #[inline]
    pub fn free_place(&self) -> usize {
        let (first, count) = Self::read(self.queue.load(Ordering::Relaxed));
        (first + count) % PLACES
    }

    /// Defers `next`, whose bytes are in the buffer `place`: the [free one](Self::free_place), before or after others
    /// were carried out. For the thread in exclusive mode.
    #[inline]
    pub fn put(&self, place: usize, next: DeferredWrite) {
        let (first, count) = Self::read(self.queue.load(Ordering::Relaxed));
        self.put_after((first, count), place, next);
    }

    /// As [`put`](Self::put), instead of the only write that is deferred.
    #[inline]
    pub fn replace(&self, place: usize, next: DeferredWrite) {
        debug_assert!(self.is_one());
        self.put_after((place, 0), place, next);
    }

    #[inline]
    fn put_after(&self, (first, count): (usize, usize), place: usize, next: DeferredWrite) {
        // An empty queue has forgotten where it was.
        let first = if count == 0 { place } else { first };
        debug_assert_eq!((first + count) % PLACES, place);
        for (word, value) in self.writes[place % PLACES].iter().zip(next.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.direct.store(0, Ordering::Relaxed);
        self.store(first, count + 1);
    }

    #[inline]
    fn store(&self, first: usize, count: usize) {
        let word = if count == 0 { 0 } else { (first << FIRST | count) as u64 };
        self.queue.store(word, Ordering::Release);
    }

    /// At the beginning of a session nothing is deferred.
    pub fn reset(&self) {
        self.queue.store(0, Ordering::Release);
    }

    /// Carries out the oldest writes until at most `keep` are left, by `write`. For the thread in exclusive mode. After
    /// an error, none is left.
    #[inline]
    pub fn carry_out_oldest(
        &self,
        keep: usize,
        mut write: impl FnMut(DeferredWrite, usize) -> Result<()>,
    ) -> Result<()> {
        let (mut first, mut count) = Self::read(self.queue.load(Ordering::Relaxed));
        while count > keep {
            let written = write(self.write_at(first), first);
            (first, count) = ((first + 1) % PLACES, if written.is_ok() { count - 1 } else { 0 });
            self.store(first, count);
            written?;
        }
        Ok(())
    }

    /// Makes sure that nothing is deferred: calls `write` for each if it falls to this thread, else waits for the
    /// thread that does it. `alone`: this thread is in exclusive mode. It is inside the gate or has closed it.
    #[inline]
    pub fn carry_out(&self, alone: bool, mut write: impl FnMut(DeferredWrite, usize) -> Result<()>) -> Result<()> {
        let word = self.queue.load(Ordering::Acquire);
        if word == 0 {
            return Ok(());
        }
        if alone {
            return self.carry_out_oldest(0, write);
        }
        if !self.take(word)? {
            return Ok(());
        }
        let written = self.all().try_for_each(|(what, place)| write(what, place));
        self.queue.store(0, Ordering::Release);
        written
    }

    /// Whether it falls to this thread; if not, another thread has carried them out.
    #[cold]
    fn take(&self, word: u64) -> Result<bool> {
        let taken = word | TAKEN;
        if word & TAKEN == 0 && self.queue.compare_exchange(word, taken, Ordering::AcqRel, Ordering::Acquire).is_ok() {
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
        Err(Stuck.into())
    }
}
