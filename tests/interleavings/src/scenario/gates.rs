//! The gate: writers and SYNC, and a thread in exclusive mode.

use super::arena;
use crate::error::Result;
use crate::index::calls::exclusive::prepare_process;
use crate::index::calls::gate::LONG;
use crate::index::{Arena, DeferredWrite, PLACES};
use crate::sync::{AtomicU64, Ordering, Running, fence, spawn};
use std::sync::Arc;

/// No thread is inside while the gate is closed, and the thread that closed it sees everything done inside.
pub fn together() {
    let arena = arena();
    let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut running = Vec::new();
    for me in 0..2 {
        let (arena, begun, ended) = (arena.clone(), begun.clone(), ended.clone());
        running.push(spawn(move || {
            let shared = arena.shared();
            for _ in 0..2 {
                let _inside = shared.gate.enter(me, &shared.entered, &LONG).unwrap();
                begun.fetch_add(1, Ordering::Relaxed);
                ended.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for me in 0..2 {
        let (arena, begun, ended) = (arena.clone(), begun.clone(), ended.clone());
        running.push(spawn(move || {
            let shared = arena.shared();
            let _closed = shared.gate.close(me, &shared.entered, &LONG).unwrap();
            // The newest value of one, and any visible value of the other.
            let begun = begun.fetch_add(0, Ordering::Relaxed);
            assert_eq!(ended.load(Ordering::Relaxed), begun, "a thread is inside, or was and is not seen");
        }));
    }
    running.into_iter().for_each(crate::sync::Running::join);
    let shared = arena.shared();
    assert_eq!(ended.load(Ordering::Relaxed), 4);
    assert!((0..2).all(|me| !shared.gate.is_held_by(me, &shared.entered)));
}

/// A thread in exclusive mode enters and leaves by plain stores, and changes what other threads change under a lock:
/// no change may be lost, through grants, revocations and SYNCs.
pub fn one_alone() {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    const ROUNDS: u64 = 4;
    let arena = arena();
    let (count, lock) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let running: Vec<_> = (0..2)
        .map(|thread| {
            let (arena, count, lock) = (arena.clone(), count.clone(), lock.clone());
            spawn(move || {
                let shared = arena.shared();
                for round in 0..ROUNDS {
                    {
                        let inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
                        while !inside.exclusive
                            && lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
                        {
                            crate::sync::spin_loop();
                        }
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                        if !inside.exclusive {
                            lock.store(0, Ordering::Release);
                        }
                    }
                    if round == thread || round == 2 {
                        let closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
                        let seen = count.load(Ordering::Relaxed);
                        shared.gate.grant(0, true);
                        assert_eq!(count.load(Ordering::Relaxed), seen, "a thread wrote while the gate was closed");
                        drop(closed);
                    }
                }
            })
        })
        .collect();
    running.into_iter().for_each(crate::sync::Running::join);
    assert_eq!(count.load(Ordering::Relaxed), 2 * ROUNDS, "two wrote at a time");
}

/// Four rounds of writes, with a SYNC after each of the first two, after which the thread is in exclusive mode. Then
/// it uses non-temporal stores, without fences.
fn writes_alone(arena: &Arc<Arena>, words: &Arc<[AtomicU64; 3]>, told: &Arc<AtomicU64>) -> Running {
    let (arena, words, told) = (arena.clone(), words.clone(), told.clone());
    spawn(move || {
        let shared = arena.shared();
        let [sequence, a, b] = &*words;
        for round in 1..=4u64 {
            {
                let inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
                let fenced = || {
                    if !inside.exclusive {
                        fence(Ordering::SeqCst);
                    }
                };
                sequence.store(2 * round - 1, Ordering::Relaxed);
                fenced();
                a.store(round, Ordering::Relaxed);
                b.store(round, Ordering::Relaxed);
                fenced();
                sequence.store(2 * round, Ordering::Relaxed);
            }
            told.store(round, Ordering::Release);
            if round < 3 {
                let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
                shared.gate.grant(0, true);
            }
        }
    })
}

/// A thread that revokes the other thread's exclusive mode, at some moment after that thread's second write.
fn joins_once_two_are_written(arena: &Arc<Arena>, told: &Arc<AtomicU64>) -> crate::sync::Running {
    let (arena, told) = (arena.clone(), told.clone());
    spawn(move || {
        for _ in 0..60 {
            if told.load(Ordering::Relaxed) >= 2 && arena.shared().gate.join(0).is_ok() {
                break;
            }
        }
    })
}

/// The data read after the sequence was `seen`, if it is consistent.
fn read_since(seen: u64, arena: &Arena, [sequence, a, b]: &[AtomicU64; 3]) -> Option<(u64, u64)> {
    let read = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
    let joined = arena.shared().gate.is_joined(0);
    fence(Ordering::Acquire);
    (joined && seen & 1 == 0 && sequence.load(Ordering::Relaxed) == seen).then_some(read)
}

/// A thread in exclusive mode uses non-temporal stores without fences, which may become visible in any order. A
/// reader must see no mixture all the same, and everything that was written before it came.
pub fn read_alone() {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    let arena = arena();
    let words: Arc<[AtomicU64; 3]> = Arc::default();
    let told = Arc::new(AtomicU64::new(0));
    let writer = writes_alone(&arena, &words, &told);
    let reader = {
        let (arena, words, told) = (arena.clone(), words.clone(), told.clone());
        spawn(move || {
            for _ in 0..3 {
                let before = told.load(Ordering::Acquire);
                arena.shared().gate.join(0).unwrap();
                let seen = words[0].load(Ordering::Acquire);
                if let Some(read) = read_since(seen, &arena, &words) {
                    assert_eq!(read.0, read.1, "a mix");
                    assert!(read.0 >= before, "what was written before is not seen");
                }
            }
        })
    };
    writer.join();
    reader.join();
}

/// A reader that was let in before the exclusive mode began goes from block to block: it checks again before each
/// block, since a third thread may have revoked the mode by the time of the check after it (found by a review).
pub fn read_in_a_long_call() {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    let arena = arena();
    let words: Arc<[AtomicU64; 3]> = Arc::default();
    let told = Arc::new(AtomicU64::new(0));
    let writer = writes_alone(&arena, &words, &told);
    let reader = {
        let (arena, words) = (arena.clone(), words.clone());
        spawn(move || {
            let gate = &arena.shared().gate;
            gate.join(0).unwrap();
            for _ in 0..12 {
                let seen = words[0].load(Ordering::Acquire);
                if !gate.is_joined(0) {
                    continue;
                }
                if let Some(read) = read_since(seen, &arena, &words) {
                    assert_eq!(read.0, read.1, "a mix");
                }
            }
        })
    };
    let third = joins_once_two_are_written(&arena, &told);
    third.join();
    writer.join();
    reader.join();
}

/// A reader in another process (`file/state/owner_session.rs`) revokes nothing: it checks for exclusive mode before it
/// reads a block's sequence, between that and the bytes (unless `looks_between` is false), and after them.
fn read_from_outside(looks_between: bool) {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    let arena = arena();
    let words: Arc<[AtomicU64; 3]> = Arc::default();
    let told = Arc::new(AtomicU64::new(0));
    let writer = writes_alone(&arena, &words, &told);
    let reader = {
        let (arena, words, told) = (arena.clone(), words.clone(), told.clone());
        spawn(move || {
            let gate = &arena.shared().gate;
            for _ in 0..12 {
                let before = told.load(Ordering::Acquire);
                if !gate.is_nobodys() {
                    continue;
                }
                let seen = words[0].load(Ordering::Acquire);
                if looks_between && !gate.is_nobodys() {
                    continue;
                }
                let read = (words[1].load(Ordering::Relaxed), words[2].load(Ordering::Relaxed));
                let holds = gate.is_nobodys() && seen & 1 == 0;
                fence(Ordering::Acquire);
                if holds && words[0].load(Ordering::Relaxed) == seen {
                    assert_eq!(read.0, read.1, "a mix");
                    assert!(read.0 >= before, "what was written before is not seen");
                }
            }
        })
    };
    let third = joins_once_two_are_written(&arena, &told);
    third.join();
    writer.join();
    reader.join();
}

/// The real protocol.
pub fn read_along() {
    read_from_outside(true);
}

/// Without the check between sequence and bytes: a sequence stored in exclusive mode may become visible before the
/// bytes, and the mode may have ended by the check after them.
pub fn read_along_without_a_look() {
    read_from_outside(false);
}

/// What `file/session/deferred/` does with its queue, over plain values: two blocks, and a buffer for each deferred
/// write. Writes to block 1 stay deferred for one call more, as small ones do.
struct Blocks {
    arena: Arc<Arena>,
    values: [AtomicU64; 2],
    places: [AtomicU64; PLACES],
    /// Held by a thread that writes together with others.
    lock: AtomicU64,
}

impl Blocks {
    fn carry_out(&self, alone: bool) {
        self.arena.shared().deferred.carry_out(alone, |what, place| self.store_deferred(alone, what, place)).unwrap();
    }

    fn store_deferred(&self, alone: bool, what: DeferredWrite, place: usize) -> Result<()> {
        self.store(alone, what.block as usize, self.places[place].load(Ordering::Relaxed));
        Ok(())
    }

    fn store(&self, alone: bool, block: usize, value: u64) {
        while !alone && self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            crate::sync::spin_loop();
        }
        self.values[block].store(value, Ordering::Relaxed);
        if !alone {
            self.lock.store(0, Ordering::Release);
        }
    }

    fn write(&self, block: usize, value: u64) {
        let shared = self.arena.shared();
        let inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
        if !inside.exclusive {
            self.carry_out(false);
            return self.store(false, block, value);
        }
        let deferred = &shared.deferred;
        let place = deferred.free_place();
        self.places[place].store(value, Ordering::Relaxed);
        let next = DeferredWrite { block: block as u64, start: 0, len: 8, shift: 0 };
        if deferred.is_one() && deferred.newest().is_some_and(|newest| newest.block == next.block) {
            return deferred.replace(place, next);
        }
        deferred.carry_out_oldest(block, |what, place| self.store_deferred(true, what, place)).unwrap();
        deferred.put(place, next);
    }

    fn show(&self) {
        let shared = self.arena.shared();
        if shared.deferred.is_any() {
            let inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
            self.carry_out(inside.exclusive);
        }
    }

    fn sync(&self) {
        let shared = self.arena.shared();
        self.show();
        let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
        self.carry_out(false);
        shared.gate.grant(0, true);
    }
}

/// A deferred write must be seen by every later reader, and must not overwrite a later write.
pub fn deferred_writes() {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    let arena = arena();
    let blocks =
        Arc::new(Blocks { arena, values: Default::default(), places: Default::default(), lock: Default::default() });
    let (told, over): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    let writer = {
        let (blocks, told) = (blocks.clone(), told.clone());
        spawn(move || {
            for round in 1..=5u64 {
                blocks.write(round as usize % 2, round);
                told.store(round, Ordering::Release);
                if round < 3 {
                    blocks.sync();
                }
            }
        })
    };
    let reader = {
        let (blocks, told) = (blocks.clone(), told.clone());
        spawn(move || {
            let gate = &blocks.arena.shared().gate;
            for _ in 0..3 {
                let before = told.load(Ordering::Acquire);
                gate.join(0).unwrap();
                blocks.show();
                let seen = blocks.values[before as usize % 2].load(Ordering::Relaxed);
                if gate.is_joined(0) {
                    assert!(seen >= before, "{seen} is read after {before} was written");
                }
            }
        })
    };
    let other = {
        let (blocks, told, over) = (blocks.clone(), told.clone(), over.clone());
        spawn(move || {
            for _ in 0..40 {
                // The last but one: a deferred write may be this one, which is older.
                if told.load(Ordering::Acquire) == 4 {
                    blocks.write(0, 10);
                    return over.store(1, Ordering::Relaxed);
                }
            }
        })
    };
    writer.join();
    reader.join();
    other.join();
    blocks.sync();
    assert!(!blocks.arena.shared().deferred.is_any());
    let last = blocks.values.each_ref().map(|value| value.load(Ordering::Relaxed));
    assert!(last == [4, 5] || last == [10, 5], "{last:?}");
    if over.load(Ordering::Relaxed) == 1 {
        assert_eq!(last[0], 10, "an older write came over a later one");
    }
}
