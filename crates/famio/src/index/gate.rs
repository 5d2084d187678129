//! The file lock: writers are inside, SYNC closes the gate and waits until all are out.
//!
//! A file that one thread alone writes is *its* file: that thread goes in and out by ordinary stores, and takes no lock of a
//! block either. On x86 a locked instruction waits for every flush under way, so that without them an epoch's flushes
//! overlap, and the one fence is SYNC's; what it stored around the cache it does not fence either. Whoever else comes, to
//! write or to read, first revokes that: `membarrier` is the owner's missing fence; where that is refused, whoever revokes
//! waits until the owner has passed a fence by itself.

use super::shared::Slot;
use crate::error::{Error, Result};
use crate::sync::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence, futex, sched_yield, spin_loop};
use crate::sys::membarrier;
use crate::thread::{self, Held, Passage};
use rustix::time::Timespec;

const SPINS: u32 = 1000;
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const ROUNDS: u32 = 60;
/// Yields before a wait for an owner that does not come out is given up.
const YIELDS: u32 = 50_000_000;
/// Sleeps before a wait for an owner that cannot be sent a barrier is given up, and how long each is.
const SLEEPS: u32 = 60_000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The longest pause is two to this.
const STRIKES_MAX: u32 = 12;
/// In `closed`: somebody sleeps on it.
const WAITERS: u32 = 1 << 31;
/// In `solo`: being revoked. In `writer`: several.
const BETWEEN: u64 = 1;

/// A readers-writer lock for many processes. Those inside are counted per process, in the process's own slot, so that
/// the count of a dead process can be struck; the words name who has closed it, and who has it alone.
#[repr(C)]
pub(crate) struct Gate {
    /// 0 when open, else the closer's slot plus one, with a bit for waiters.
    pub closed: AtomicU32,
    spare: AtomicU32,
    /// The thread that has the file alone; 0: none.
    solo: AtomicU64,
    /// The thread that has written since the last grant; `BETWEEN`: several have.
    writer: AtomicU64,
    /// The kernel's id of the thread that `solo` names; 0 once it knows that it is being revoked, and has fenced.
    owner: AtomicU32,
    /// 1: there was no `membarrier` to revoke with. Nobody gets the file alone any more.
    refused: AtomicU32,
    /// Epochs for which nobody is given the file alone; doubled by each revocation, as long as they come often.
    pause: AtomicU32,
    /// Logarithm of the next pause.
    strikes: AtomicU32,
    /// Whether the thread that has the file alone is inside; over these, threads are spread.
    pub alone: [Alone; ALONE],
}

/// Words for threads that may have the file alone.
pub(crate) const ALONE: usize = 8;

/// Where one thread, and never another, says that it is inside alone. An owner that was stopped on its way in may store to
/// its word at any later time, when another thread has the file alone already: in one word for all it would strike the other
/// out (found by `tests/interleavings`).
#[repr(C)]
#[derive(Default)]
pub(crate) struct Alone {
    /// The thread whose word it is; 0: nobody's yet.
    owner: AtomicU64,
    /// 1: it is inside.
    pub inside: AtomicU32,
    spare: AtomicU32,
}

/// A writer inside the gate; leaves when dropped.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    alone: &'a Alone,
    slot: &'a Slot,
    /// The thread has the file alone.
    pub solo: bool,
    _held: Held,
}

/// The gate is closed and nobody is inside; opens when dropped.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
    _held: Held,
}

/// A number that no other living thread has: where its block of state lies, and its process's slot.
fn token(me: u32) -> u64 {
    core::ptr::from_ref(thread::current()) as u64 & !63 | u64::from(me) | 2
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
    /// Goes in, together with other writers. Waits while the gate is closed.
    #[inline]
    pub fn enter<'a>(&'a self, me: u32, slot: &'a Slot) -> Result<Inside<'a>> {
        // Counted first: a signal handler that comes from here on is refused, and does not go in and out in between.
        let held = Held::of_file();
        let token = token(me);
        let alone = self.alone(token);
        if self.solo.load(Ordering::Relaxed) == token {
            alone.inside.store(1, Ordering::Relaxed);
            // The hardware's side of this fence is the membarrier of who revokes.
            compiler_fence(Ordering::SeqCst);
            if self.solo.load(Ordering::Relaxed) == token && self.closed.load(Ordering::Relaxed) == 0 {
                return Ok(Inside { gate: self, alone, slot, solo: true, _held: held });
            }
            alone.inside.store(0, Ordering::SeqCst);
        }
        self.enter_together(token, slot)?;
        Ok(Inside { gate: self, alone, slot, solo: false, _held: held })
    }

    /// The word of a thread, if it is that thread's.
    #[inline]
    fn alone(&self, token: u64) -> &Alone {
        // Blocks of thread state lie a stack apart: the bits above a page tell threads apart.
        let stripe = (token >> 6) ^ (token >> 12) ^ (token >> 23);
        &self.alone[stripe as usize % ALONE]
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
        if solo == 0 || solo == token(me) { Ok(()) } else { self.revoke() }
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

    fn enter_together(&self, token: u64, slot: &Slot) -> Result<()> {
        loop {
            // Both sides store, then load the other's word: sequentially consistent, or both could pass.
            slot.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) != 0 {
                self.wait_until_open(slot)?;
            }
            let solo = self.solo.load(Ordering::SeqCst);
            if solo == 0 || solo == token {
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

    /// Nobody has the file alone any more, and what the owner flushed is fenced.
    #[cold]
    fn revoke(&self) -> Result<()> {
        for _ in 0..YIELDS {
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
                    for _ in 0..YIELDS {
                        if self.alone(solo).inside.load(Ordering::SeqCst) == 0 {
                            self.solo.store(0, Ordering::SeqCst);
                            return Ok(());
                        }
                        sched_yield();
                    }
                }
                self.solo.store(solo, Ordering::SeqCst);
                return Err(Error::new(libc::EDEADLK));
            }
            self.answer();
            sched_yield();
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

    #[cold]
    fn wait_until_open(&self, slot: &Slot) -> Result<()> {
        for _ in 0..ROUNDS {
            self.step_out(slot);
            for _ in 0..SPINS {
                if self.closed.load(Ordering::Relaxed) == 0 {
                    break;
                }
                spin_loop();
            }
            self.sleep_while_closed();
            slot.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
        }
        self.step_out(slot);
        Err(Error::new(libc::EDEADLK))
    }

    fn sleep_while_closed(&self) {
        let closer = self.closed.load(Ordering::Relaxed);
        if closer == 0 {
            return;
        }
        let waited = closer | WAITERS;
        if closer == waited || self.closed.compare_exchange(closer, waited, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            let _ = futex::wait(&self.closed, futex::Flags::empty(), waited, Some(&PATIENCE));
        }
    }

    #[inline]
    fn step_out(&self, slot: &Slot) {
        if slot.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&slot.inside, futex::Flags::empty(), 1);
        }
    }

    /// Closes the gate for the process in slot number `me`, and waits until nobody of `slots` is inside.
    pub fn close<'a>(&'a self, me: u32, slots: &[Slot]) -> Result<Closed<'a>> {
        let held = Held::of_file();
        let mut rounds = 0;
        while self.closed.compare_exchange(0, me + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            rounds += 1;
            if rounds > ROUNDS + SPINS {
                return Err(Error::new(libc::EDEADLK));
            }
            if rounds <= SPINS {
                spin_loop();
            } else {
                self.sleep_while_closed();
            }
        }
        let closed = Closed { gate: self, _held: held };
        let solo = self.solo.load(Ordering::SeqCst);
        if solo != 0 && solo != token(me) {
            self.revoke()?;
        }
        for slot in slots {
            let mut rounds = 0;
            loop {
                let inside = slot.inside.load(Ordering::SeqCst);
                if inside == 0 {
                    break;
                }
                rounds += 1;
                if rounds > ROUNDS + SPINS {
                    return Err(Error::new(libc::EDEADLK));
                }
                if rounds <= SPINS {
                    spin_loop();
                } else {
                    let _ = futex::wait(&slot.inside, futex::Flags::empty(), inside, Some(&PATIENCE));
                }
            }
        }
        Ok(closed)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.solo {
            if self.gate.solo.load(Ordering::Relaxed) == BETWEEN {
                // Somebody waits, and its membarrier may have come before our last flushes. On x86 this orders them.
                fence(Ordering::SeqCst);
                self.gate.owner.store(0, Ordering::Release);
            }
            self.alone.inside.store(0, Ordering::Release);
        } else {
            self.gate.step_out(self.slot);
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if self.gate.closed.swap(0, Ordering::SeqCst) & WAITERS != 0 {
            let _ = futex::wake(&self.gate.closed, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        // SAFETY: a gate is made of atomic integers: zeros are a valid one.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let gate = gate();
        let slots = [Slot::default(), Slot::default()];
        let (inside, closings) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for i in 0..2 {
                let (gate, slots, inside, closings) = (&gate, &slots, &inside, &closings);
                scope.spawn(move || {
                    while closings.load(Ordering::Relaxed) < 500 {
                        let _in = gate.enter(i as u32, &slots[i]).unwrap();
                        inside.fetch_add(1, Ordering::Relaxed);
                        spin_loop();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..500 {
                let _closed = gate.close(0, &slots).unwrap();
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                closings.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(thread::current().locks_held.get(), 0);
    }

    /// As a sandbox that a program enters in the middle of its life: this thread's `membarrier` fails from now on.
    fn forbid_membarrier() {
        let word = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let (load, jump, end) = (0x20, 0x15, 0x06);
        let mut filter = [
            word(load, 0), // the call's number
            libc::sock_filter { jf: 1, ..word(jump, libc::SYS_membarrier as u32) },
            word(end, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            word(end, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program is alive during the calls; it allows all but one call.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
        }
        assert!(!membarrier::on_all_threads());
    }

    /// Gives the file to this thread alone.
    fn have_it_alone(gate: &Gate, slots: &[Slot]) {
        drop(gate.enter(0, &slots[0]).unwrap());
        let closed = gate.close(0, slots).unwrap();
        gate.grant(0, true);
        drop(closed);
        assert!(gate.enter(0, &slots[0]).unwrap().solo);
    }

    #[test]
    fn without_membarrier_an_owner_that_is_inside_is_waited_for() {
        if !prepare_process() {
            return;
        }
        let (gate, slots, done) = (gate(), [Slot::default()], AtomicU32::new(0));
        have_it_alone(&gate, &slots);
        std::thread::scope(|scope| {
            let inside = gate.enter(0, &slots[0]).unwrap();
            assert!(inside.solo);
            let (gate, slots, done) = (&gate, &slots, &done);
            scope.spawn(move || {
                forbid_membarrier();
                drop(gate.close(0, slots).unwrap());
                done.store(1, Ordering::SeqCst);
            });
            while gate.solo.load(Ordering::SeqCst) != BETWEEN {
                sched_yield();
            }
            assert_eq!(done.load(Ordering::SeqCst), 0);
            drop(inside);
        });
        // From now on nobody has it alone: the next revocation would have to wait, too.
        drop(gate.enter(0, &slots[0]).unwrap());
        let closed = gate.close(0, &slots).unwrap();
        gate.grant(0, true);
        drop(closed);
        assert!(!gate.enter(0, &slots[0]).unwrap().solo);
    }

    #[test]
    fn without_membarrier_an_owner_that_does_not_come_again_is_no_hindrance() {
        if !prepare_process() {
            return;
        }
        let (gate, slots) = (gate(), [Slot::default()]);
        have_it_alone(&gate, &slots);
        std::thread::scope(|scope| {
            // This thread sleeps meanwhile.
            let revoked = scope.spawn(|| {
                forbid_membarrier();
                gate.enter(0, &slots[0]).map(|inside| inside.solo)
            });
            assert!(!revoked.join().unwrap().unwrap());
        });
        assert_eq!((gate.solo.load(Ordering::SeqCst), gate.refused.load(Ordering::SeqCst)), (0, 1));
    }

    #[test]
    fn who_has_it_alone_is_never_inside_with_another() {
        if !prepare_process() {
            return; // nobody ever has it alone here
        }
        for forbidden in [false, true] {
            two_writers(forbidden);
        }
    }

    /// `forbidden`: one of them cannot send the other a barrier.
    fn two_writers(forbidden: bool) {
        let gate = gate();
        let slots = [Slot::default()];
        // Not atomic on purpose: two writers at a time would lose counts.
        struct Plain(core::cell::UnsafeCell<u64>);
        // SAFETY: what the test shows: one at a time, or by a lock.
        unsafe impl Sync for Plain {}
        let (count, lock) = (Plain(0.into()), std::sync::Mutex::new(()));
        let (granted, rounds) = (AtomicU64::new(0), 20_000u64);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (gate, slots, count, lock, granted) = (&gate, &slots, &count, &lock, &granted);
                scope.spawn(move || {
                    let count = count;
                    if forbidden && writer == 0 {
                        forbid_membarrier();
                    }
                    for round in 0..rounds {
                        {
                            let inside = gate.enter(0, &slots[0]).unwrap();
                            granted.fetch_add(inside.solo.into(), Ordering::Relaxed);
                            let _guard = (!inside.solo).then(|| lock.lock().unwrap());
                            // SAFETY: alone, or under the lock.
                            unsafe { *count.0.get() += 1 };
                        }
                        if round % 64 == 0 {
                            let _closed = gate.close(0, slots).unwrap();
                            gate.grant(0, true);
                        }
                    }
                });
            }
        });
        // SAFETY: the threads are gone.
        assert_eq!(unsafe { *count.0.get() }, 2 * rounds);
        assert!(forbidden || granted.load(Ordering::Relaxed) > 0, "nobody ever had it alone");
    }

    #[test]
    fn who_reads_sees_all_that_another_wrote_alone() {
        if !prepare_process() {
            return; // nobody ever has it alone here
        }
        let gate = gate();
        let slots = [Slot::default()];
        // Not atomic on purpose, and no fence: two words that are equal outside the gate.
        struct Plain(core::cell::UnsafeCell<[u64; 16]>);
        // SAFETY: what the test shows: a reader looks only after it was let in, and throws away what may be torn.
        unsafe impl Sync for Plain {}
        let (words, sequence) = (Plain([0; 16].into()), AtomicU64::new(0));
        let (done, read, alone) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (gate, slots, words, sequence) = (&gate, &slots, &words, &sequence);
            let (done, read, alone) = (&done, &read, &alone);
            scope.spawn(move || {
                let words = words;
                while read.load(Ordering::Relaxed) < 2000 {
                    for _ in 0..8 {
                        let inside = gate.enter(0, &slots[0]).unwrap();
                        alone.fetch_add(inside.solo.into(), Ordering::Relaxed);
                        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        fence(Ordering::Release);
                        let at = words.0.get().cast::<u64>();
                        // SAFETY: inside the array; this thread alone writes.
                        unsafe {
                            let next = at.read_volatile() + 1;
                            (0..16).for_each(|i| at.add(i).write_volatile(next));
                        }
                        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
                    }
                    let _closed = gate.close(0, slots).unwrap();
                    gate.grant(0, true);
                }
                done.store(1, Ordering::Relaxed);
            });
            scope.spawn(move || {
                let words = words;
                while done.load(Ordering::Relaxed) == 0 {
                    gate.join(0).unwrap();
                    let seen = sequence.load(Ordering::Acquire);
                    let at = words.0.get().cast::<u64>();
                    // SAFETY: inside the array.
                    let all: [u64; 16] = core::array::from_fn(|i| unsafe { at.add(i).read_volatile() });
                    let joined = gate.is_joined(0);
                    fence(Ordering::Acquire);
                    if joined && seen & 1 == 0 && sequence.load(Ordering::Relaxed) == seen {
                        assert!(all.iter().all(|word| *word == all[0]));
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
        assert!(alone.load(Ordering::Relaxed) > 0, "nobody ever had it alone");
    }

    #[test]
    fn revocations_that_come_often_make_the_pauses_longer() {
        let gate = gate();
        let mut epochs = [0; 5];
        for count in &mut epochs {
            while gate.solo.load(Ordering::SeqCst) == 0 {
                gate.writer.store(token(0), Ordering::SeqCst);
                gate.grant(0, true);
                *count += 1;
            }
            gate.revoke().unwrap();
        }
        assert_eq!(epochs, [1, 2, 3, 5, 9]);
        for _ in 0..40 {
            gate.writer.store(token(0), Ordering::SeqCst);
            gate.grant(0, true);
        }
        for _ in 0..10 {
            gate.grant(0, true); // kept
        }
        assert!(gate.strikes.load(Ordering::SeqCst) == 0 && gate.solo.load(Ordering::SeqCst) == token(0));
    }

    #[test]
    fn a_grant_leaves_a_revocation_under_way_alone() {
        let gate = gate();
        for writer in [0, token(0), BETWEEN] {
            gate.writer.store(writer, Ordering::SeqCst);
            gate.solo.store(BETWEEN, Ordering::SeqCst);
            gate.grant(0, true);
            assert_eq!(gate.solo.load(Ordering::SeqCst), BETWEEN);
        }
        gate.reset();
        assert_eq!(gate.solo.load(Ordering::SeqCst), BETWEEN);
        gate.solo.store(0, Ordering::SeqCst);
        gate.writer.store(token(0), Ordering::SeqCst);
        gate.grant(0, true);
        assert_eq!(gate.solo.load(Ordering::SeqCst), token(0));
        gate.grant(0, true);
        assert_eq!(gate.solo.load(Ordering::SeqCst), token(0));
        gate.grant(0, false);
        assert_eq!(gate.solo.load(Ordering::SeqCst), 0);
    }
}
