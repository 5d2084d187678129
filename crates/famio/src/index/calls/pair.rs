//! Two threads of one process that change different blocks while one of them has the gate closed: the other waits for
//! neither the gate nor a commit of its own.
//!
//! The thread that leads opens a pair and names the blocks that it changes. A thread that comes meanwhile may join.
//! It changes its other blocks at once, and those of the leader when the leader is done with them. The leader closes the
//! pair, waits until its partner is done, and commits both.

use super::gate::LONG;
use crate::index::lock::{Stuck, timed_out};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SPINS, futex, spin_loop};
use crate::thread::Held;

/// In `state`: nobody leads.
const IDLE: u32 = 0;
/// In `state`: a thread leads, and cannot be joined.
const LEADING: u32 = 1;
/// Added to the number of a pair that has a partner.
const MARK: u32 = 1;

/// The number of the first pair.
const FIRST: u32 = 2;

/// The pairs of a session, one after the other. Their numbers are even, and not 0.
#[derive(Default)]
pub(crate) struct Pairs {
    /// `IDLE`, `LEADING`, the number of the pair that can be joined, or that number with a `MARK`.
    state: Word,
    /// The number of the last pair whose leader is done with its blocks.
    leaders: Word,
    /// The number of the last pair whose partner is done with its blocks.
    partners: Word,
    taken: Taken,
    /// Not zero: a pair has failed.
    failed: AtomicU32,
}

/// What a thread does that comes with a change.
pub(crate) enum Arrival<'a> {
    /// It closes the gate and may open a pair.
    Leads(Leading<'a>),
    /// The number of a pair that can be joined.
    Joins(u32),
    /// It closes the gate, and opens no pair.
    Alone,
}

/// This thread is going to lead, or leads, until this is dropped: after the gate was opened. A handler of a signal waits
/// until then: it may take long, or leave by `siglongjmp`, and the partner waits for the end.
pub(crate) struct Leading<'a>(&'a Pairs, #[allow(dead_code, reason = "held for its end")] Held);

/// A pair that this thread leads. It has failed if this is dropped before [`end`](Led::end).
pub(crate) struct Led<'a> {
    pairs: &'a Pairs,
    number: u32,
}

/// A pair that this thread has joined. It has failed if this is dropped before [`end`](Joined::end).
pub(crate) struct Joined<'a> {
    pairs: &'a Pairs,
    number: u32,
    is_done: bool,
    _held: Held,
}

impl Pairs {
    /// Finds out what this thread should do. `meanwhile`: called once, if it has to wait.
    #[inline]
    pub fn arrive(&self, meanwhile: impl FnOnce()) -> Arrival<'_> {
        let mut meanwhile = Some(meanwhile);
        for _ in 0..SPINS {
            match self.state.value.load(Ordering::Acquire) {
                IDLE => {
                    let held = Held::of_file();
                    let state = &self.state.value;
                    if state.compare_exchange(IDLE, LEADING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        return Arrival::Leads(Leading(self, held));
                    }
                }
                number if number & MARK == 0 => return Arrival::Joins(number),
                _ => match meanwhile.take() {
                    Some(work) => work(),
                    None => spin_loop(),
                },
            }
        }
        Arrival::Alone
    }

    /// Joins the pair, unless that was closed. `look`: called before; only if this succeeds, what it saw was this pair's.
    #[inline]
    pub fn join(&self, number: u32, look: impl FnOnce(&Taken)) -> Option<Joined<'_>> {
        let held = Held::of_file();
        look(&self.taken);
        self.state.value.compare_exchange(number, number | MARK, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Joined { pairs: self, number, is_done: false, _held: held })
    }
}

impl<'a> Leading<'a> {
    /// Opens a pair, in which this thread changes these blocks. The gate is closed.
    #[inline]
    pub fn open(&self, blocks: impl Iterator<Item = u64>) -> Led<'a> {
        let pairs = self.0;
        let number = pairs.taken.begin();
        if number == FIRST {
            pairs.leaders.value.store(0, Ordering::Relaxed); // the numbers begin again
            pairs.partners.value.store(0, Ordering::Relaxed);
        }
        blocks.for_each(|block| pairs.taken.add(block));
        pairs.state.value.store(number, Ordering::Release);
        Led { pairs, number }
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.state.set(IDLE);
    }
}

/// What a leader finds when it closes its pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Partner {
    /// Nobody has joined.
    None,
    /// It is done with its blocks.
    Done,
    /// It has failed in the middle.
    Failed,
}

impl Led<'_> {
    /// This thread is done with its blocks. Nobody joins any more; waits until a partner is done, too.
    #[inline]
    pub fn close(&self) -> Partner {
        let Self { pairs, number } = *self;
        let state = &pairs.state.value;
        if state.compare_exchange(number, LEADING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Partner::None;
        }
        pairs.leaders.set(number);
        // For as long as it takes: if the gate opened, the partner would go on changing blocks.
        while pairs.partners.wait(|partners| partners == number).is_err() {}
        if pairs.failed.load(Ordering::Acquire) == 0 { Partner::Done } else { Partner::Failed }
    }

    /// Both are committed.
    pub fn end(self) {
        core::mem::forget(self);
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.pairs.failed.store(1, Ordering::Release);
    }
}

impl Joined<'_> {
    /// Waits until the leader is done with its blocks.
    ///
    /// # Errors
    /// The leader does not go on.
    #[inline]
    pub fn wait_for_leader(&self) -> Result<(), Stuck> {
        self.pairs.leaders.wait(|leaders| leaders == self.number)
    }

    /// This thread is done with its blocks. Waits for the commit of both; false: that failed.
    ///
    /// # Errors
    /// The leader does not go on; it may still commit both.
    #[inline]
    pub fn end(mut self) -> Result<bool, Stuck> {
        let (pairs, number) = (self.pairs, self.number);
        self.is_done = true;
        pairs.partners.set(number);
        pairs.state.wait(|state| state != number | MARK)?;
        Ok(pairs.failed.load(Ordering::Acquire) == 0)
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.pairs.failed.store(1, Ordering::Release);
            self.pairs.partners.set(self.number);
        }
    }
}

/// A word that threads wait for, apart from the lines of others.
#[derive(Default)]
#[repr(align(128))]
struct Word {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Word {
    #[inline]
    fn set(&self, value: u32) {
        // Both sides store, then load the other's word: the sleeper finds the value, or this thread the sleeper.
        self.value.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&self.value, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Waits no longer than [`LONG`].
    #[inline]
    fn wait(&self, is_over: impl Fn(u32) -> bool) -> Result<(), Stuck> {
        let look = || match self.value.load(Ordering::Acquire) {
            value if is_over(value) => Ok(value),
            value => Err(value),
        };
        LONG.wait(look, |found| {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let slept = futex::wait(&self.value, futex::Flags::empty(), found, Some(&LONG.each));
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            timed_out(slept)
        })
    }
}

/// Bits for blocks. Blocks that share a bit count as the same.
const BITS: usize = 2048;

/// The blocks that the leader changes, and perhaps others. Only the leader stores to it.
#[repr(align(128))]
pub(crate) struct Taken {
    bits: [AtomicU64; BITS / 64],
    /// Of the last pair.
    number: AtomicU32,
}

impl Default for Taken {
    fn default() -> Self {
        Self { bits: core::array::from_fn(|_| AtomicU64::new(0)), number: AtomicU32::new(0) }
    }
}

impl Taken {
    /// Forgets all blocks, and returns the number of a new pair.
    fn begin(&self) -> u32 {
        self.bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let number = self.number.load(Ordering::Relaxed).wrapping_add(2).max(FIRST);
        self.number.store(number, Ordering::Relaxed);
        number
    }

    fn place(block: u64) -> (usize, u64) {
        let bit = (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BITS;
        (bit / 64, 1 << (bit % 64))
    }

    fn add(&self, block: u64) {
        let (word, bit) = Self::place(block);
        let word = &self.bits[word];
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    /// Whether the leader may change the block.
    #[inline]
    pub fn has(&self, block: u64) -> bool {
        let (word, bit) = Self::place(block);
        self.bits[word].load(Ordering::Relaxed) & bit != 0
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
