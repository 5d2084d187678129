use super::super::exclusive::*;
use super::*;
use crate::sync::sched_yield;
use crate::sys::membarrier;
use crate::thread;
pub(in crate::index) fn gate() -> Gate {
    // SAFETY: a gate consists of atomic integers: zeros are a valid one.
    unsafe { core::mem::zeroed() }
}

#[test]
fn nobody_is_inside_while_it_is_closed() {
    let gate = gate();
    let entered = Entered::default();
    let (inside, closings) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for i in 0..2 {
            let (gate, entered, inside, closings) = (&gate, &entered, &inside, &closings);
            scope.spawn(move || {
                while closings.load(Ordering::Relaxed) < 500 {
                    let _in = gate.enter(i as u32, entered, &LONG).unwrap();
                    inside.fetch_add(1, Ordering::Relaxed);
                    spin_loop();
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..500 {
            let _closed = gate.close(0, &entered, &LONG).unwrap();
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            closings.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(thread::current().locks_held.get(), 0);
}

/// As in a sandbox that a program enters later: this thread's `membarrier` and `call` fail from now on.
pub(in crate::index) fn forbid_membarrier_and(call: i64) {
    let word = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let (load, jump, end) = (0x20, 0x15, 0x06);
    let mut filter = [
        word(load, 0), // the call's number
        libc::sock_filter { jt: 1, ..word(jump, call as u32) },
        libc::sock_filter { jf: 1, ..word(jump, libc::SYS_membarrier as u32) },
        word(end, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        word(end, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives during the calls; it allows all calls but one.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
    assert!(!membarrier::on_all_threads());
}

/// Gives this thread exclusive mode.
pub(in crate::index) fn have_it_alone(gate: &Gate, entered: &Entered) {
    drop(gate.enter(0, entered, &LONG).unwrap());
    let closed = gate.close(0, entered, &LONG).unwrap();
    gate.grant(0, true);
    drop(closed);
    assert!(gate.enter(0, entered, &LONG).unwrap().exclusive);
}

#[test]
fn without_membarrier_an_owner_that_is_inside_is_waited_for() {
    if !prepare_process() {
        return;
    }
    let (gate, entered, done) = (gate(), Entered::default(), AtomicU32::new(0));
    have_it_alone(&gate, &entered);
    std::thread::scope(|scope| {
        let inside = gate.enter(0, &entered, &LONG).unwrap();
        assert!(inside.exclusive);
        let (gate, entered, done) = (&gate, &entered, &done);
        scope.spawn(move || {
            forbid_membarrier_and(libc::SYS_membarrier);
            drop(gate.close(0, entered, &LONG).unwrap());
            done.store(1, Ordering::SeqCst);
        });
        while gate.exclusive.load(Ordering::SeqCst) != BETWEEN {
            sched_yield();
        }
        assert_eq!(done.load(Ordering::SeqCst), 0);
        drop(inside);
    });
    // Exclusive mode is not granted any more: the next revocation would have to wait, too.
    drop(gate.enter(0, &entered, &LONG).unwrap());
    let closed = gate.close(0, &entered, &LONG).unwrap();
    gate.grant(0, true);
    drop(closed);
    assert!(!gate.enter(0, &entered, &LONG).unwrap().exclusive);
}

#[test]
fn without_membarrier_an_owner_that_does_not_come_again_is_no_hindrance() {
    if !prepare_process() {
        return;
    }
    let (gate, entered) = (gate(), Entered::default());
    have_it_alone(&gate, &entered);
    std::thread::scope(|scope| {
        // This thread sleeps meanwhile.
        let revoked = scope.spawn(|| {
            forbid_membarrier_and(libc::SYS_membarrier);
            gate.enter(0, &entered, &LONG).map(|inside| inside.exclusive)
        });
        assert!(!revoked.join().unwrap().unwrap());
    });
    assert_eq!((gate.exclusive.load(Ordering::SeqCst), gate.refused.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn who_has_it_alone_is_never_inside_with_another() {
    if !prepare_process() {
        return; // no exclusive mode here
    }
    for forbidden in [false, true] {
        two_writers(forbidden);
    }
}

/// `forbidden`: one of the threads cannot send the other a barrier.
fn two_writers(forbidden: bool) {
    let gate = gate();
    let entered = Entered::default();
    // Not atomic on purpose: two writers at a time would lose counts.
    struct Plain(core::cell::UnsafeCell<u64>);
    // SAFETY: as the test shows, accessed in exclusive mode or under a lock.
    unsafe impl Sync for Plain {}
    let (count, lock) = (Plain(0.into()), std::sync::Mutex::new(()));
    let (granted, rounds) = (AtomicU64::new(0), 20_000u64);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (gate, entered, count, lock, granted) = (&gate, &entered, &count, &lock, &granted);
            scope.spawn(move || {
                let count = count;
                if forbidden && writer == 0 {
                    forbid_membarrier_and(libc::SYS_membarrier);
                }
                for round in 0..rounds {
                    {
                        let inside = gate.enter(0, entered, &LONG).unwrap();
                        granted.fetch_add(inside.exclusive.into(), Ordering::Relaxed);
                        let _guard = (!inside.exclusive).then(|| lock.lock().unwrap());
                        // SAFETY: in exclusive mode, or under the lock.
                        unsafe { *count.0.get() += 1 };
                    }
                    if round % 64 == 0 {
                        let _closed = gate.close(0, entered, &LONG).unwrap();
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
    let entered = Entered::default();
    // Not atomic on purpose, and no fence: two words that are equal outside the gate.
    struct Plain(core::cell::UnsafeCell<[u64; 16]>);
    // SAFETY: as the test shows, a reader looks only after it was let in, and discards what may be torn.
    unsafe impl Sync for Plain {}
    let (words, sequence) = (Plain([0; 16].into()), AtomicU64::new(0));
    let (done, read, alone) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (gate, entered, words, sequence) = (&gate, &entered, &words, &sequence);
        let (done, read, alone) = (&done, &read, &alone);
        scope.spawn(move || {
            let words = words;
            while read.load(Ordering::Relaxed) < 2000 || alone.load(Ordering::Relaxed) == 0 {
                for _ in 0..8 {
                    let inside = gate.enter(0, entered, &LONG).unwrap();
                    alone.fetch_add(inside.exclusive.into(), Ordering::Relaxed);
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
                let _closed = gate.close(0, entered, &LONG).unwrap();
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
}

#[test]
fn revocations_that_come_often_make_the_pauses_longer() {
    if !prepare_process() {
        return; // nobody ever has it alone here
    }
    let gate = gate();
    let mut epochs = [0; 5];
    for count in &mut epochs {
        while gate.exclusive.load(Ordering::SeqCst) == 0 {
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
    assert!(gate.strikes.load(Ordering::SeqCst) == 0 && gate.exclusive.load(Ordering::SeqCst) == token(0));
}

#[test]
fn a_grant_leaves_a_revocation_under_way_alone() {
    let gate = gate();
    for writer in [0, token(0), BETWEEN] {
        gate.writer.store(writer, Ordering::SeqCst);
        gate.exclusive.store(BETWEEN, Ordering::SeqCst);
        gate.grant(0, true);
        assert_eq!(gate.exclusive.load(Ordering::SeqCst), BETWEEN);
    }
    gate.reset();
    assert_eq!(gate.exclusive.load(Ordering::SeqCst), BETWEEN);
    gate.exclusive.store(0, Ordering::SeqCst);
    gate.writer.store(token(0), Ordering::SeqCst);
    gate.grant(0, true);
    assert_eq!(gate.exclusive.load(Ordering::SeqCst), token(0));
    gate.grant(0, true);
    assert_eq!(gate.exclusive.load(Ordering::SeqCst), token(0));
    gate.grant(0, false);
    assert_eq!(gate.exclusive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_killed_process_that_is_inside_or_has_it_closed_is_struck() {
    let (gate, entered) = (gate(), Entered::default());
    gate.pretend(1, &entered);
    assert!(matches!(gate.close(0, &entered, &SHORT), Err(Stuck)));
    assert!(gate.is_held_by(1, &entered) && !gate.is_held_by(0, &entered));
    gate.remove_dead(1, &entered);
    let closed = gate.close(0, &entered, &SHORT).unwrap();
    assert!(matches!(gate.enter(1, &entered, &SHORT), Err(Stuck)));
    core::mem::forget(closed);
    gate.remove_dead(0, &entered);
    drop(gate.enter(1, &entered, &SHORT).unwrap());
    assert!(!gate.is_held_by(1, &entered));
}
