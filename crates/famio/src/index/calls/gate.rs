//! The gate: writers enter it; a SYNC closes it and waits until all have left. A thread in exclusive mode
//! (`exclusive`) passes without a locked instruction.

use super::entered::{Entered, SLOTS};
use super::exclusive::{BETWEEN, EXCLUSIVE_WORDS, Exclusive, token};
use crate::index::lock::{Stuck, timed_out};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SPINS, compiler_fence, fence, futex, spin_loop};
use crate::thread::Held;
use rustix::time::Timespec;

/// How long a thread waits for others.
pub(crate) struct Patience {
    pub(super) each: Timespec,
    /// Waits of that length in which nothing changes.
    pub(super) rounds: u32,
}

impl Patience {
    /// Tries until it succeeds: first without pauses, then after sleeps, which get what the try has found and return
    /// 1 if nothing has changed meanwhile.
    pub(super) fn wait(&self, attempt: impl Fn() -> Result<u32, u32>, sleep: impl Fn(u32) -> u32) -> Result<(), Stuck> {
        let (mut spins, mut rounds) = (0, 0);
        while let Err(found) = attempt() {
            if rounds >= self.rounds {
                return Err(Stuck);
            }
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                rounds += sleep(found);
            }
        }
        Ok(())
    }
}

/// A minute: long enough for any call that is not stuck.
pub(crate) const LONG: Patience = Patience { each: Timespec { tv_sec: 1, tv_nsec: 0 }, rounds: 60 };
/// About 5 ms: then the caller checks whether the processes that it waits for live.
pub(crate) const SHORT: Patience = Patience { each: Timespec { tv_sec: 0, tv_nsec: 5_000_000 }, rounds: 1 };

/// In `closed`: a thread sleeps on it.
const WAITERS: u32 = 1 << 31;
/// In `closed`: the closer sleeps until those inside have left. As long as it spins, they leave without a system call.
const SLEEPS: u32 = 1 << 30;

/// The closer's slot plus one; 0: the gate is open.
fn closer_in(closed: u32) -> u32 {
    closed & !(WAITERS | SLEEPS)
}

/// A readers-writer lock for many processes, which name themselves by their slot on the control page. Threads inside
/// are counted beside it (`entered`). The words name the closer and the thread in exclusive mode.
#[repr(C)]
pub(crate) struct Gate {
    /// 0 when open, else the closer's slot plus one, with bits for sleeping threads.
    pub closed: AtomicU32,
    /// Processes in this slot or above were never inside.
    used: AtomicU32,
    /// The thread in exclusive mode; 0: none.
    pub(in crate::index) exclusive: AtomicU64,
    /// The thread that has written since the last grant; `BETWEEN`: several have.
    pub(in crate::index) writer: AtomicU64,
    /// The kernel's id of the thread that `exclusive` names; 0 once that thread knows of a revocation and has fenced.
    pub(in crate::index) owner: AtomicU32,
    /// 1: `membarrier` was refused, so exclusive mode is not granted any more; a thread that has it may keep it.
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
    /// Where the thread is counted, unless it is in exclusive mode.
    inside: &'a AtomicU32,
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
    /// Enters together with other writers. Waits while the gate is closed: no longer than `patience`.
    #[inline]
    pub fn enter<'a>(&'a self, me: u32, entered: &'a Entered, patience: &Patience) -> Result<Inside<'a>, Stuck> {
        // Counted first: a signal handler from here on is refused, instead of entering and leaving in between.
        let held = Held::of_file();
        let token = token(me);
        let (word, inside) = (self.exclusive_word(token), entered.mine(me));
        if self.exclusive.load(Ordering::Relaxed) == token {
            word.inside.store(1, Ordering::Relaxed);
            // The hardware's side of this fence is the revoker's membarrier.
            compiler_fence(Ordering::SeqCst);
            if self.exclusive.load(Ordering::Relaxed) == token && self.closed.load(Ordering::Relaxed) == 0 {
                return Ok(Inside { gate: self, word, inside, exclusive: true, _held: held });
            }
            word.inside.store(0, Ordering::SeqCst);
        }
        if self.used.load(Ordering::Acquire) <= me {
            self.used.fetch_max(me + 1, Ordering::SeqCst);
        }
        self.enter_together(token, inside, patience)?;
        Ok(Inside { gate: self, word, inside, exclusive: false, _held: held })
    }

    fn enter_together(&self, token: u64, inside: &AtomicU32, patience: &Patience) -> Result<(), Stuck> {
        loop {
            // Both sides store, then load the other's word: sequentially consistent, or both could pass.
            inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) != 0 {
                self.wait_until_open(inside, patience)?;
            }
            let exclusive = self.exclusive.load(Ordering::SeqCst);
            if exclusive == 0 || exclusive == token {
                break;
            }
            self.step_out(inside);
            self.revoke()?;
        }
        self.note_writer(token);
        Ok(())
    }

    /// Notes that this thread writes in the open epoch. Changes nothing where that is known: all writers use the line.
    #[inline]
    fn note_writer(&self, token: u64) {
        let mut writer = self.writer.load(Ordering::Acquire);
        if writer == 0 {
            match self.writer.compare_exchange(0, token, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => writer = other,
            }
        }
        if writer != token && writer != BETWEEN {
            self.writer.store(BETWEEN, Ordering::Release);
        }
    }

    /// Notes that this thread, which has closed the gate, writes in the open epoch.
    #[inline]
    pub fn note_closer(&self, me: u32) {
        if !self.is_exclusively_of(me) {
            self.note_writer(token(me));
        }
    }

    #[cold]
    fn wait_until_open(&self, inside: &AtomicU32, patience: &Patience) -> Result<(), Stuck> {
        let mut rounds = 0;
        while rounds < patience.rounds {
            self.step_out(inside);
            for _ in 0..SPINS {
                if self.closed.load(Ordering::Relaxed) == 0 {
                    break;
                }
                spin_loop();
            }
            rounds += self.sleep_while_closed(patience);
            inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
        }
        self.step_out(inside);
        Err(Stuck)
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
    fn step_out(&self, inside: &AtomicU32) {
        // Both sides store, then load the other's word: the closer finds the count lower, or this thread the bit.
        if inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) & SLEEPS != 0 {
            let _ = futex::wake(inside, futex::Flags::empty(), 1);
        }
    }

    /// The closer is about to sleep until a thread has left. False: not noted yet.
    fn note_sleep(&self, me: u32) -> bool {
        let closed = self.closed.load(Ordering::SeqCst);
        // If another process has removed this one, there is no gate to be held: the sleep ends by itself.
        if closed & SLEEPS != 0 || closer_in(closed) != me + 1 {
            return true;
        }
        self.closed.compare_exchange(closed, closed | SLEEPS, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Removes the process in slot `gone`, which was killed, or left, on its way in or with the gate closed. Called
    /// by the owner of the session. Changes that `gone` made inside it made as an owner: recovery deals with those.
    pub fn remove_dead(&self, gone: u32, entered: &Entered) {
        entered.remove_dead(gone);
        let closed = self.closed.load(Ordering::SeqCst);
        if closer_in(closed) == gone + 1
            && self.closed.compare_exchange(closed, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            let _ = futex::wake(&self.closed, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether a thread has closed the gate, or waits for those inside. One that is, and could go on later, leaves.
    pub fn is_closing(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Whether a thread of that slot is inside, or has the gate closed.
    pub fn is_held_by(&self, me: u32, entered: &Entered) -> bool {
        entered.has(me) || closer_in(self.closed.load(Ordering::SeqCst)) == me + 1
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

    /// For tests: as if a thread of the process in slot `me` were inside.
    #[cfg(test)]
    pub fn pretend(&self, me: u32, entered: &Entered) {
        self.used.fetch_max(me + 1, Ordering::SeqCst);
        entered.mine(me).fetch_add(1, Ordering::SeqCst);
    }

    /// Closes the gate for the process in slot `me`, and waits until no thread is inside: no longer than `patience`.
    pub fn close<'a>(&'a self, me: u32, entered: &Entered, patience: &Patience) -> Result<Closed<'a>, Stuck> {
        let held = Held::of_file();
        let try_to_close = || match self.closed.load(Ordering::Relaxed) {
            // An exchange would take the line from the thread that is going to open it.
            0 => self.closed.compare_exchange(0, me + 1, Ordering::SeqCst, Ordering::SeqCst),
            closer => Err(closer),
        };
        patience.wait(try_to_close, |_| self.sleep_while_closed(patience))?;
        let closed = Closed { gate: self, me, _held: held };
        let exclusive = self.exclusive.load(Ordering::SeqCst);
        if exclusive != 0 && exclusive != token(me) {
            self.revoke()?;
        }
        // A thread that enters a slot for the first time raises `used` before it looks whether the gate is closed.
        for place in 0..self.used.load(Ordering::SeqCst).min(SLOTS as u32) {
            entered.of(place).try_for_each(|count| {
                let is_out = || match count.load(Ordering::SeqCst) {
                    0 => Ok(0),
                    inside => Err(inside),
                };
                let sleep = |inside| {
                    if !self.note_sleep(me) {
                        return 0; // the word has changed: look again
                    }
                    timed_out(futex::wait(count, futex::Flags::empty(), inside, Some(&patience.each)))
                };
                patience.wait(is_out, sleep)
            })?;
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
            self.gate.step_out(self.inside);
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let word = &self.gate.closed;
        loop {
            // Only if it is still ours: another process may have struck this one, and closed the gate itself.
            let closed = word.load(Ordering::SeqCst);
            if closer_in(closed) != self.me + 1 {
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
pub(super) mod tests;
