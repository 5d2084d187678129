//! Exclusive mode: a SYNC grants one thread the file to itself; any other thread revokes that.
//!
//! A thread in exclusive mode passes the gate by ordinary stores and takes no block locks. On x86 a locked
//! instruction waits for every flush under way; without them the flushes of an epoch overlap, and the SYNC's fence is
//! the only one. Any other reader or writer first revokes exclusive mode: `membarrier` takes the place of the owner's
//! missing fence or, where it is refused, the revoker waits until the owner has passed a fence by itself.

use super::entered::Entered;
use super::gate::Gate;
use crate::error::Error;
use crate::index::lock::Stuck;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, sched_yield};
use crate::sys::{Quiescence, membarrier};
use crate::thread;
use crate::thread::Held;
use rustix::time::Timespec;

/// Looks at an owner that does not leave the gate before the revoker gives up: about a minute.
const WAITS: u32 = YIELDS + 600_000;
/// The looks with only a yield between them. After them the revoker sleeps: the owner may need the processor.
const YIELDS: u32 = 4000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };
/// Sleeps before the revoker gives up on an owner that cannot be sent a barrier, and the length of each.
const SLEEPS: u32 = 60_000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Looks for a barrier of which nothing tells, `SLEEP` apart.
const LOOKS: u32 = 2000;
/// The logarithm of the longest pause.
const STRIKES_MAX: u32 = 12;
/// In `exclusive`: being revoked. In `writer`: several threads.
pub(in crate::index) const BETWEEN: u64 = 1;

/// Words for threads that may have exclusive mode.
pub(crate) const EXCLUSIVE_WORDS: usize = 8;

/// The word in which a single thread says that it is inside the gate in exclusive mode. A thread that was stopped on
/// its way in may store to its word much later, when another thread has exclusive mode: if threads shared a word, it
/// would overwrite that thread's state (found by `tests/interleavings`).
#[repr(C)]
#[derive(Default)]
pub(crate) struct Exclusive {
    /// The thread that the word belongs to; 0: free.
    pub(in crate::index) owner: AtomicU64,
    /// 1: the thread is inside.
    pub inside: AtomicU32,
    spare: AtomicU32,
}

impl Exclusive {
    /// Frees the word.
    pub(in crate::index) fn forget(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

/// A number that no other living thread has: the address of its state and its process's slot.
pub(in crate::index) fn token(me: u32) -> u64 {
    core::ptr::from_ref(thread::current()) as u64 & !63 | u64::from(me)
}

/// Spreads threads over lines of memory, by the address of a thread's block of state: the line's number is the
/// remainder. The blocks lie a stack apart; a product with the golden ratio has all their bits in its upper half.
#[inline]
fn stripe(block: u64) -> usize {
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

/// Pauses between two looks at another thread's progress.
pub(in crate::index) fn rest(round: u32) {
    if round < YIELDS {
        sched_yield();
    } else {
        let _ = rustix::thread::nanosleep(&REST);
    }
}

/// The kernel's id of this thread.
pub(in crate::index) fn own_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Registers this process for `membarrier`. Returns whether it can use it; without, no thread gets exclusive mode.
pub(crate) fn prepare_process() -> bool {
    // On Arm a barrier executed by another thread does not order flushes.
    cfg!(target_arch = "x86_64") && membarrier::register()
}

impl Gate {
    /// The word that a thread may use.
    #[inline]
    pub(in crate::index) fn exclusive_word(&self, token: u64) -> &Exclusive {
        &self.exclusive_words[stripe(token) % EXCLUSIVE_WORDS]
    }

    /// Whether the thread has a word. With the gate closed. Words are not given back: it is not known when a thread
    /// stops using the file.
    fn has_word(&self, token: u64) -> bool {
        let owner = &self.exclusive_word(token).owner;
        match owner.compare_exchange(0, token, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(theirs) => theirs == token,
        }
    }

    /// A thread begins to read: if another thread has exclusive mode, that is revoked.
    #[inline]
    pub fn join(&self, me: u32) -> Result<(), Error> {
        let exclusive = self.exclusive.load(Ordering::SeqCst);
        if exclusive == 0 || exclusive == token(me) {
            return Ok(());
        }
        if thread::current().locks_held.get() > 0 {
            return Err(Error::new(libc::EDEADLK)); // a signal handler, which may have interrupted a revocation
        }
        let _held = Held::of_file();
        Ok(self.revoke()?)
    }

    /// Whether this thread has exclusive mode, or had it at this moment.
    #[inline]
    pub fn is_exclusively_of(&self, me: u32) -> bool {
        self.exclusive.load(Ordering::Relaxed) == token(me)
    }

    /// Returns once the thread that has exclusive mode, if that is another one, has passed a full barrier, as
    /// `has_answered` may tell, too, by the kernel's id of that thread. It keeps that mode.
    #[inline]
    pub(in crate::index) fn fence_exclusive_thread(&self, me: u32, has_answered: impl Fn(u32) -> bool) {
        let exclusive = self.exclusive.load(Ordering::SeqCst);
        if exclusive != 0 && exclusive != token(me) && !membarrier::on_all_threads() {
            self.wait_for_barrier(exclusive, &has_answered);
        }
    }

    /// As [`fence_exclusive_thread`](Self::fence_exclusive_thread), where `membarrier` is refused.
    #[cold]
    fn wait_for_barrier(&self, exclusive: u64, has_answered: &dyn Fn(u32) -> bool) {
        self.refused.store(1, Ordering::SeqCst);
        let owner = self.owner.load(Ordering::SeqCst);
        let quiescence = Quiescence::of(owner);
        for _ in 0..LOOKS {
            // One that has lost exclusive mode has passed a fence, and so has one that got it since.
            let now = self.exclusive.load(Ordering::SeqCst);
            let is_another = exclusive != BETWEEN && now != exclusive && now != BETWEEN;
            let is_over = now == 0 || is_another || self.owner.load(Ordering::SeqCst) != owner;
            if is_over || owner == 0 || has_answered(owner) || quiescence.has_passed() {
                break;
            }
            // It may be asleep for a lock that the caller holds, and the kernel tells nothing of it. By the end of this
            // loop its processor has long carried out what it had under way.
            let _ = rustix::thread::nanosleep(&SLEEP);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether no other thread has had exclusive mode since this one called [`join`](Self::join), as far as the bytes
    /// read until now can tell. To be asked before the sequence number of what was read is checked.
    #[inline]
    pub fn is_joined(&self, me: u32) -> bool {
        // A thread that gets exclusive mode is named before it stores anything: what was read of that is older than
        // this load.
        fence(Ordering::Acquire);
        let exclusive = self.exclusive.load(Ordering::Acquire);
        exclusive == 0 || exclusive == token(me)
    }

    /// Ends exclusive mode, and makes sure that its owner's flushes are fenced.
    #[cold]
    pub(in crate::index) fn revoke(&self) -> Result<(), Stuck> {
        for round in 0..WAITS {
            let exclusive = self.exclusive.load(Ordering::SeqCst);
            if exclusive == 0 {
                return Ok(());
            }
            if exclusive != BETWEEN
                && self.exclusive.compare_exchange(exclusive, BETWEEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                let owner = self.owner.load(Ordering::SeqCst);
                // From here on, if we do not see the owner inside, it will see our word, and its flushes so far are
                // fenced. An owner that is inside sees the word when it leaves, and fences its later flushes.
                if membarrier::on_all_threads() || self.wait_for_owner() {
                    crate::pmem::fenced_by_all();
                    let strikes = self.strikes.load(Ordering::Relaxed).min(STRIKES_MAX);
                    self.pause.store(1 << strikes, Ordering::Relaxed);
                    self.strikes.store(strikes + 1, Ordering::Relaxed);
                    for round in 0..WAITS {
                        if self.exclusive_word(exclusive).inside.load(Ordering::SeqCst) == 0 {
                            self.exclusive.store(0, Ordering::SeqCst);
                            return Ok(());
                        }
                        rest(round);
                    }
                }
                // It may have answered just now, and keeps its mode.
                let _ = self.owner.compare_exchange(0, owner, Ordering::SeqCst, Ordering::SeqCst);
                self.exclusive.store(exclusive, Ordering::SeqCst);
                return Err(Stuck);
            }
            self.answer();
            rest(round);
        }
        Err(Stuck)
    }

    /// A thread without `membarrier` revokes: if it waits for this thread, this thread records that it has fenced.
    fn answer(&self) {
        if self.owner.load(Ordering::Relaxed) == own_id() {
            fence(Ordering::SeqCst);
            self.owner.store(0, Ordering::Release);
        }
    }

    /// Revokes without `membarrier`, which a sandbox may have forbidden since the attach: waits until the owner
    /// answers or was off its processor. Either is the missing fence. False if neither happens.
    #[cold]
    fn wait_for_owner(&self) -> bool {
        self.refused.store(1, Ordering::SeqCst);
        let owner = self.owner.load(Ordering::SeqCst);
        if owner == 0 || owner == own_id() {
            return true;
        }
        let quiescence = Quiescence::of(owner);
        for _ in 0..SLEEPS {
            if self.owner.load(Ordering::SeqCst) != owner || quiescence.has_passed() {
                fence(Ordering::SeqCst);
                return true;
            }
            let _ = rustix::thread::nanosleep(&SLEEP);
        }
        false
    }

    /// At the end of an epoch, with the gate closed by this thread: grants it exclusive mode if it alone has written.
    pub fn grant(&self, me: u32, possible: bool) {
        let token = token(me);
        let writer = self.writer.swap(0, Ordering::AcqRel);
        // Not a plain store: a thread that came to the open gate may be revoking, and ends that by storing 0. If the
        // word named the owner again before that, both could be inside.
        let exclusive = self.exclusive.load(Ordering::Acquire);
        if exclusive == BETWEEN {
            return;
        }
        let possible = possible && self.refused.load(Ordering::Relaxed) == 0;
        let keeps = writer == 0 && exclusive == token;
        let pause = self.pause.load(Ordering::Relaxed);
        if keeps {
            self.lower_strikes();
        } else if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        let granted = possible && (keeps || writer == token && pause == 0) && self.has_word(token);
        let next = if granted { token } else { 0 };
        if exclusive != next {
            if exclusive == 0 {
                self.owner.store(own_id(), Ordering::Relaxed); // no thread revokes
            }
            let _ = self.exclusive.compare_exchange(exclusive, next, Ordering::SeqCst, Ordering::SeqCst);
            // Before all later stores of the owner: a thread that reads one of those finds the owner named (see
            // `is_joined`).
            fence(Ordering::SeqCst);
        }
    }

    /// Whether this thread is to be granted exclusive mode within an epoch: since the last call, by any thread, it alone
    /// has written, and no pause is left. For the pauses, a call counts as an epoch. Not while another is inside, perhaps
    /// with a long write: this one would have to wait for it.
    pub fn is_to_be_granted(&self, me: u32, entered: &Entered) -> bool {
        let token = token(me);
        match self.exclusive.load(Ordering::Relaxed) {
            0 => {}
            exclusive => {
                if exclusive == token {
                    self.lower_strikes();
                }
                return false;
            }
        }
        if self.writer.load(Ordering::Relaxed) != token {
            self.writer.store(0, Ordering::Relaxed); // watched anew from here on
            return false;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0 && self.refused.load(Ordering::Relaxed) == 0 && !entered.has(me)
    }

    /// At the end of an epoch, by the thread in exclusive mode, inside: it keeps that until it has left.
    pub fn go_on(&self) {
        if self.writer.load(Ordering::Relaxed) != 0 {
            self.writer.store(0, Ordering::Release);
        }
        self.lower_strikes();
    }

    /// A thread has had exclusive mode for a whole epoch.
    fn lower_strikes(&self) {
        let strikes = self.strikes.load(Ordering::Relaxed);
        if strikes != 0 {
            self.strikes.store(strikes - 1, Ordering::Relaxed);
        }
    }

    /// As at the beginning, for a new session.
    pub fn reset(&self) {
        let exclusive = self.exclusive.load(Ordering::SeqCst);
        if exclusive != BETWEEN {
            let _ = self.exclusive.compare_exchange(exclusive, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.writer.store(0, Ordering::SeqCst);
        self.pause.store(0, Ordering::Relaxed);
        self.strikes.store(0, Ordering::Relaxed);
    }
}
