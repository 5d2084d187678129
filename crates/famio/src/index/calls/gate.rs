//! The file lock: writers are inside, a SYNC closes the gate and waits until all are out. A thread in exclusive mode
//! (`exclusive`) passes without a locked instruction.

use super::exclusive::{BETWEEN, EXCLUSIVE_WORDS, Exclusive, token};
use crate::error::{Error, Result};
use crate::index::lock::timed_out;
use crate::sync::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence, futex, spin_loop};
use crate::thread::Held;
use rustix::time::Timespec;

const SPINS: u32 = 1000;

/// How long a thread waits for others.
pub(crate) struct Patience {
    each: Timespec,
    /// Waits of that length in which nothing changes.
    rounds: u32,
}

/// A minute: long enough for any call that is not stuck.
pub(crate) const LONG: Patience = Patience { each: Timespec { tv_sec: 1, tv_nsec: 0 }, rounds: 60 };
/// About 5 ms: then the caller checks whether the processes that it waits for live.
pub(crate) const SHORT: Patience = Patience { each: Timespec { tv_sec: 0, tv_nsec: 5_000_000 }, rounds: 1 };

/// In `closed`: a thread sleeps on it.
const WAITERS: u32 = 1 << 31;

/// A process that has the file open. Its number is that of its slot on the control page.
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct Slot {
    /// Its threads inside the gate.
    pub inside: AtomicU32,
    /// Its process id; 0: the slot is free.
    pub pid: AtomicU32,
}

/// A readers-writer lock for many processes. Threads inside are counted in the slot of their process, so that a dead
/// process's count can be struck. The words name the closer and the thread in exclusive mode.
#[repr(C)]
pub(crate) struct Gate {
    /// 0 when open, else the closer's slot plus one, with a bit for waiters.
    pub closed: AtomicU32,
    spare: AtomicU32,
    /// The thread in exclusive mode; 0: none.
    pub(in crate::index) exclusive: AtomicU64,
    /// The thread that has written since the last grant; `BETWEEN`: several have.
    pub(in crate::index) writer: AtomicU64,
    /// The kernel's id of the thread that `exclusive` names; 0 once that thread knows of a revocation and has fenced.
    pub(in crate::index) owner: AtomicU32,
    /// 1: `membarrier` was refused at a revocation, so exclusive mode is not granted any more.
    pub(in crate::index) refused: AtomicU32,
    /// Epochs without exclusive mode. Doubled by each revocation as long as these come often.
    pub(in crate::index) pause: AtomicU32,
    /// Logarithm of the next pause.
    pub(in crate::index) strikes: AtomicU32,
    /// Whether the thread in exclusive mode is inside. Threads are spread over these.
    pub exclusive_words: [Exclusive; EXCLUSIVE_WORDS],
}

/// A writer inside the gate; leaves when dropped.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    word: &'a Exclusive,
    slot: &'a Slot,
    /// The thread is in exclusive mode.
    pub exclusive: bool,
    _held: Held,
}

/// The gate is closed and no thread is inside; opens when dropped.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
    me: u32,
    _held: Held,
}

impl Gate {
    /// Enters together with other writers. Waits while the gate is closed.
    ///
    /// # Errors
    /// `EDEADLK`: it stayed closed for longer than `patience`.
    #[inline]
    pub fn enter<'a>(&'a self, me: u32, slot: &'a Slot, patience: &Patience) -> Result<Inside<'a>> {
        // Counted first: a signal handler from here on is refused, instead of entering and leaving in between.
        let held = Held::of_file();
        let token = token(me);
        let word = self.exclusive_word(token);
        if self.exclusive.load(Ordering::Relaxed) == token {
            word.inside.store(1, Ordering::Relaxed);
            // The hardware's side of this fence is the revoker's membarrier.
            compiler_fence(Ordering::SeqCst);
            if self.exclusive.load(Ordering::Relaxed) == token && self.closed.load(Ordering::Relaxed) == 0 {
                return Ok(Inside { gate: self, word, slot, exclusive: true, _held: held });
            }
            word.inside.store(0, Ordering::SeqCst);
        }
        self.enter_together(token, slot, patience)?;
        Ok(Inside { gate: self, word, slot, exclusive: false, _held: held })
    }

    fn enter_together(&self, token: u64, slot: &Slot, patience: &Patience) -> Result<()> {
        loop {
            // Both sides store, then load the other's word: sequentially consistent, or both could pass.
            slot.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) != 0 {
                self.wait_until_open(slot, patience)?;
            }
            let exclusive = self.exclusive.load(Ordering::SeqCst);
            if exclusive == 0 || exclusive == token {
                break;
            }
            self.step_out(slot);
            self.revoke()?;
        }
        match self.writer.compare_exchange(0, token, Ordering::AcqRel, Ordering::Acquire) {
            Err(other) if other != token => self.writer.store(BETWEEN, Ordering::Release),
            _ => {}
        }
        Ok(())
    }

    #[cold]
    fn wait_until_open(&self, slot: &Slot, patience: &Patience) -> Result<()> {
        let mut rounds = 0;
        while rounds < patience.rounds {
            self.step_out(slot);
            for _ in 0..SPINS {
                if self.closed.load(Ordering::Relaxed) == 0 {
                    break;
                }
                spin_loop();
            }
            rounds += self.sleep_while_closed(patience);
            slot.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
        }
        self.step_out(slot);
        Err(Error::new(libc::EDEADLK))
    }

    /// Returns 1 if the same process had it closed for the whole wait: a gate that is closed and opened again and
    /// again is not stuck.
    fn sleep_while_closed(&self, patience: &Patience) -> u32 {
        let closer = self.closed.load(Ordering::Relaxed);
        if closer == 0 {
            return 0;
        }
        let waited = closer | WAITERS;
        if closer == waited || self.closed.compare_exchange(closer, waited, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            return timed_out(futex::wait(&self.closed, futex::Flags::empty(), waited, Some(&patience.each)));
        }
        0
    }

    #[inline]
    fn step_out(&self, slot: &Slot) {
        if slot.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&slot.inside, futex::Flags::empty(), 1);
        }
    }

    /// Strikes the process in slot `gone`, which was killed, or left, on its way in or with the gate closed. Called
    /// by the owner of the session. Changes that `gone` made inside it made as an owner: recovery deals with those.
    pub fn strike(&self, gone: u32, slot: &Slot) {
        slot.inside.store(0, Ordering::SeqCst);
        let closed = self.closed.load(Ordering::SeqCst);
        if closed & !WAITERS == gone + 1
            && self.closed.compare_exchange(closed, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            let _ = futex::wake(&self.closed, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether a thread of that slot is inside, or has the gate closed.
    pub fn is_held_by(&self, me: u32, slot: &Slot) -> bool {
        slot.inside.load(Ordering::SeqCst) != 0 || self.closed.load(Ordering::SeqCst) & !WAITERS == me + 1
    }

    /// Another process owns the session from now on: no thread of it has exclusive mode, or ever had. With the gate
    /// closed.
    pub fn begin_owner(&self) {
        self.reset();
        for word in &self.exclusive_words {
            word.inside.store(0, Ordering::Relaxed);
            word.forget();
        }
    }

    /// For a reader in another process: whether no thread had exclusive mode, as far as the bytes read until now can
    /// tell. To be asked before the sequence number of what was read is checked ([`is_joined`](Self::is_joined)).
    #[inline]
    pub fn is_nobodys(&self) -> bool {
        fence(Ordering::Acquire);
        self.exclusive.load(Ordering::Acquire) == 0
    }

    /// Closes the gate for the process in slot `me`, and waits until no thread of `slots` is inside.
    ///
    /// # Errors
    /// `EDEADLK`: it was closed, or a thread was inside, for longer than `patience`.
    pub fn close<'a>(&'a self, me: u32, slots: &[Slot], patience: &Patience) -> Result<Closed<'a>> {
        let held = Held::of_file();
        let (mut spins, mut rounds) = (0, 0);
        while self.closed.compare_exchange(0, me + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            if rounds >= patience.rounds {
                return Err(Error::new(libc::EDEADLK));
            }
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                rounds += self.sleep_while_closed(patience);
            }
        }
        let closed = Closed { gate: self, me, _held: held };
        let exclusive = self.exclusive.load(Ordering::SeqCst);
        if exclusive != 0 && exclusive != token(me) {
            self.revoke()?;
        }
        for slot in slots {
            let (mut spins, mut rounds) = (0, 0);
            loop {
                let inside = slot.inside.load(Ordering::SeqCst);
                if inside == 0 {
                    break;
                }
                if rounds >= patience.rounds {
                    return Err(Error::new(libc::EDEADLK));
                }
                if spins < SPINS {
                    spins += 1;
                    spin_loop();
                } else {
                    rounds += timed_out(futex::wait(&slot.inside, futex::Flags::empty(), inside, Some(&patience.each)));
                }
            }
        }
        Ok(closed)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.exclusive {
            compiler_fence(Ordering::SeqCst); // orders the stores inside before the look at the waiters
            if self.gate.exclusive.load(Ordering::Relaxed) == BETWEEN {
                // A thread waits, and its membarrier may have come before our last flushes. On x86 this fence orders
                // them.
                fence(Ordering::SeqCst);
                self.gate.owner.store(0, Ordering::Release);
            }
            self.word.inside.store(0, Ordering::Release);
        } else {
            self.gate.step_out(self.slot);
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let word = &self.gate.closed;
        loop {
            // Only if it is still ours: another process may have struck this one, and closed the gate itself.
            let closed = word.load(Ordering::SeqCst);
            if closed & !WAITERS != self.me + 1 {
                return;
            }
            if word.compare_exchange(closed, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if closed & WAITERS != 0 {
                    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
