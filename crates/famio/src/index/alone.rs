//! The thread that has a file alone: given at SYNC, revoked by whoever else comes.
//!
//! A file that one thread alone uses is *its* file: that thread goes in and out by ordinary stores, and takes no lock of a
//! block either. On x86 a locked instruction waits for every flush under way, so that without them an epoch's flushes
//! overlap, and the one fence is SYNC's; what it stored around the cache it does not fence either. Whoever else comes, to
//! write or to read, first revokes that: `membarrier` is the owner's missing fence; where that is refused, whoever revokes
//! waits until the owner has passed a fence by itself.

use super::gate::Gate;
use crate::error::{Error, Result};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, sched_yield};
use crate::sys::membarrier;
use crate::thread::{self, Held, Passage};
use rustix::time::Timespec;

/// Looks at an owner that does not come out before that is given up: about a minute.
const WAITS: u32 = YIELDS + 600_000;
/// Of these, looks with a mere yield between them. Then the processor is left: whom it waits for may need it.
const YIELDS: u32 = 4000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };
/// Sleeps before a wait for an owner that cannot be sent a barrier is given up, and how long each is.
const SLEEPS: u32 = 60_000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The longest pause is two to this.
const STRIKES_MAX: u32 = 12;
/// In `solo`: being revoked. In `writer`: several.
pub(super) const BETWEEN: u64 = 1;

/// Words for threads that may have the file alone.
pub(crate) const ALONE: usize = 8;

/// Where one thread, and never another, says that it is inside alone. An owner that was stopped on its way in may store to
/// its word at any later time, when another thread has the file alone already: in one word for all it would strike the other
/// out (found by `tests/interleavings`).
#[repr(C)]
#[derive(Default)]
pub(crate) struct Alone {
    /// The thread whose word it is; 0: nobody's yet.
    pub(super) owner: AtomicU64,
    /// 1: it is inside.
    pub inside: AtomicU32,
    spare: AtomicU32,
}

impl Alone {
    /// It is nobody's.
    pub(super) fn forget(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

/// A number that no other living thread has: where its block of state lies, and its process's slot.
pub(super) fn token(me: u32) -> u64 {
    core::ptr::from_ref(thread::current()) as u64 & !63 | u64::from(me)
}

/// Spreads threads over lines of memory, by the address of a thread's block of state: the line's number is the remainder. The blocks lie a
/// stack apart; a product with the golden ratio has all their bits in its upper half.
#[inline]
pub(crate) fn stripe(block: u64) -> usize {
    (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

/// Between two looks at what another thread is to do.
fn rest(round: u32) {
    if round < YIELDS {
        sched_yield();
    } else {
        let _ = rustix::thread::nanosleep(&REST);
    }
}

/// The kernel's id of this thread.
fn own_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Tells the kernel that this process will use `membarrier`. Whether it can; elsewhere nobody ever has a file alone.
pub(crate) fn prepare_process() -> bool {
    // On Arm a barrier of the other thread is not the one that flushes need.
    cfg!(target_arch = "x86_64") && membarrier::register()
}

impl Gate {
    /// The word of a thread, if it is that thread's.
    #[inline]
    pub(super) fn alone(&self, token: u64) -> &Alone {
        &self.alone[stripe(token) % ALONE]
    }

    /// Whether the thread has a word. For good: nobody can tell when a thread does not come any more. With the gate closed.
    fn has_word(&self, token: u64) -> bool {
        let owner = &self.alone(token).owner;
        match owner.compare_exchange(0, token, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(theirs) => theirs == token,
        }
    }

    /// A thread that only reads comes: if another thread has the file alone, it has it no longer.
    #[inline]
    pub fn join(&self, me: u32) -> Result<()> {
        let solo = self.solo.load(Ordering::SeqCst);
        if solo == 0 || solo == token(me) {
            return Ok(());
        }
        if thread::current().locks_held.get() > 0 {
            return Err(Error::new(libc::EDEADLK)); // a handler, which may have interrupted a revocation
        }
        let _held = Held::of_file();
        self.revoke()
    }

    /// Whether no other thread has had the file alone since this one came by [`join`](Self::join), as far as what was read
    /// until now can tell. To be asked before the sequence of what was read.
    #[inline]
    pub fn is_joined(&self, me: u32) -> bool {
        // Who is given the file alone says so before it stores anything: what was read of that is older than this load.
        fence(Ordering::Acquire);
        let solo = self.solo.load(Ordering::Acquire);
        solo == 0 || solo == token(me)
    }

    /// Nobody has the file alone any more, and what the owner flushed is fenced.
    #[cold]
    pub(super) fn revoke(&self) -> Result<()> {
        for round in 0..WAITS {
            let solo = self.solo.load(Ordering::SeqCst);
            if solo == 0 {
                return Ok(());
            }
            if solo != BETWEEN && self.solo.compare_exchange(solo, BETWEEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                // From here on the owner sees the word if we do not see it inside, and its flushes so far are fenced; an
                // owner that is inside sees the word when it leaves, and fences what it flushed later.
                if membarrier::on_all_threads() || self.wait_for_owner() {
                    crate::pmem::fenced_by_all();
                    let strikes = self.strikes.load(Ordering::Relaxed).min(STRIKES_MAX);
                    self.pause.store(1 << strikes, Ordering::Relaxed);
                    self.strikes.store(strikes + 1, Ordering::Relaxed);
                    for round in 0..WAITS {
                        if self.alone(solo).inside.load(Ordering::SeqCst) == 0 {
                            self.solo.store(0, Ordering::SeqCst);
                            return Ok(());
                        }
                        rest(round);
                    }
                }
                self.solo.store(solo, Ordering::SeqCst);
                return Err(Error::new(libc::EDEADLK));
            }
            self.answer();
            rest(round);
        }
        Err(Error::new(libc::EDEADLK))
    }

    /// Somebody revokes, and has no `membarrier`: if it is this thread that is waited for, it says that it has fenced.
    fn answer(&self) {
        if self.owner.load(Ordering::Relaxed) == own_id() {
            fence(Ordering::SeqCst);
            self.owner.store(0, Ordering::Release);
        }
    }

    /// Revoking without `membarrier`, which a sandbox may have forbidden since the file was attached: waits until the owner
    /// answers, or was off its processor. Either is the fence that is missing. False if neither comes.
    #[cold]
    fn wait_for_owner(&self) -> bool {
        self.refused.store(1, Ordering::SeqCst);
        let owner = self.owner.load(Ordering::SeqCst);
        if owner == 0 || owner == own_id() {
            return true;
        }
        let passage = Passage::of(owner);
        for _ in 0..SLEEPS {
            if self.owner.load(Ordering::SeqCst) != owner || passage.has_passed() {
                fence(Ordering::SeqCst);
                return true;
            }
            let _ = rustix::thread::nanosleep(&SLEEP);
        }
        false
    }

    /// With the gate closed by this thread, at the end of an epoch: if it alone has written, it has the file alone.
    pub fn grant(&self, me: u32, possible: bool) {
        let token = token(me);
        let writer = self.writer.swap(0, Ordering::AcqRel);
        // Never a plain store: a thread that came to the open gate may be revoking, which it ends by storing 0. If the word
        // named the owner again before that, the owner could go in and the other behind it.
        let solo = self.solo.load(Ordering::Acquire);
        if solo == BETWEEN {
            return;
        }
        let possible = possible && self.refused.load(Ordering::Relaxed) == 0;
        let keeps = writer == 0 && solo == token;
        let pause = self.pause.load(Ordering::Relaxed);
        if keeps {
            let strikes = self.strikes.load(Ordering::Relaxed);
            self.strikes.store(strikes.saturating_sub(1), Ordering::Relaxed);
        } else if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        let alone = possible && (keeps || writer == token && pause == 0) && self.has_word(token);
        let next = if alone { token } else { 0 };
        if solo != next {
            if solo == 0 {
                self.owner.store(own_id(), Ordering::Relaxed); // nobody revokes
            }
            let _ = self.solo.compare_exchange(solo, next, Ordering::SeqCst, Ordering::SeqCst);
            // Before anything that the owner stores from here on: who reads that finds the owner named (see `is_joined`).
            fence(Ordering::SeqCst);
        }
    }

    /// As at the beginning: for a new session.
    pub fn reset(&self) {
        let solo = self.solo.load(Ordering::SeqCst);
        if solo != BETWEEN {
            let _ = self.solo.compare_exchange(solo, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.writer.store(0, Ordering::SeqCst);
        self.pause.store(0, Ordering::Relaxed);
        self.strikes.store(0, Ordering::Relaxed);
    }
}
