//! A short version of what `file/inplace` does with a block, over the real cell, lock, gate and list: checkpoints
//! concurrent with writers and readers (`checkpoint.rs`, `write.rs`, `read.rs`), and the words that name blocks with
//! dirty lines (`pending.rs`).

use super::arena;
use crate::index::calls::gate::LONG;
use crate::index::{Arena, Cell, Index, Version};
use crate::journal::{Free, Geometry};
use crate::sync::{AtomicU64, Ordering, spawn};
use std::sync::Arc;

const BLOCKS: usize = 2;

/// Bytes: one granule per block in the file, and one in each log block.
struct Bytes {
    file: [AtomicU64; BLOCKS],
    log: [AtomicU64; BLOCKS],
}

/// Two writers, one block each, with redo. A checkpointing thread takes their entries away as soon as they are
/// committed, and assigns them to the other block. A reader must see values that only grow.
pub fn checkpointing() {
    let arena = arena();
    let words = || core::array::from_fn(|_| AtomicU64::new(0));
    let bytes = Arc::new(Bytes { file: words(), log: words() });
    let free = Free::of(&arena);
    free.make_links(Geometry::of(0)).unwrap();
    (0..BLOCKS as u32).for_each(|number| free.give_back(number));
    for block in 0..BLOCKS as u64 {
        Index::new(&arena).cell(block).unwrap();
    }
    arena.shared().committed.store(1, Ordering::Relaxed);
    let mut running = Vec::new();
    for block in 0..BLOCKS {
        let (arena, bytes) = (arena.clone(), bytes.clone());
        running.push(spawn(move || {
            for value in 1..=3 {
                write(&arena, &bytes, block, value);
                if value == 2 {
                    commit(&arena);
                }
            }
        }));
    }
    let (arena_too, bytes_too) = (arena.clone(), bytes.clone());
    running.push(spawn(move || {
        for round in 0..4 {
            let shared = arena_too.shared();
            let _inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
            let cell = Index::new(&arena_too).lookup(round % 2).unwrap();
            if let Some(_locked) = cell.lock.try_lock(0) {
                checkpoint(&arena_too, &bytes_too, cell, (round % 2) as usize);
            }
        }
    }));
    let (arena_too, bytes_too) = (arena.clone(), bytes.clone());
    running.push(spawn(move || {
        let mut before = [0; BLOCKS];
        for round in 0..6 {
            let block = round % BLOCKS;
            if let Some(value) = read(&arena_too, &bytes_too, block) {
                assert!(value >= before[block] && value <= 3, "block {block}: {value} after {}", before[block]);
                before[block] = value;
            }
        }
    }));
    running.into_iter().for_each(crate::sync::Running::join);
    for block in 0..BLOCKS {
        assert_eq!(read(&arena, &bytes, block), Some(3));
    }
    let in_use =
        (0..BLOCKS as u64).filter(|&b| Index::new(&arena).lookup(b).unwrap().entry.load(Ordering::Relaxed) != 0);
    assert_eq!(
        arena.shared().used.load(Ordering::Relaxed) as u32 as usize,
        in_use.count().wrapping_sub(2) as u32 as usize
    );
}

fn write(arena: &Arena, bytes: &Bytes, block: usize, value: u64) {
    let shared = arena.shared();
    let _inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
    let cell = Index::new(arena).cell(block as u64).unwrap();
    let _locked = cell.lock.lock(0).unwrap();
    let committed = shared.committed();
    let entry = match cell.entry.load(Ordering::Relaxed) {
        0 => match Free::of(arena).take().unwrap() {
            Some(number) => {
                cell.set_version(0, Version::default());
                cell.set_version(1, Version::default());
                cell.entry.store(number + 1, Ordering::Relaxed);
                number
            }
            // The checkpoint of the other block holds it for a moment: write to the file, as if the granule were new.
            None => {
                let _changing = cell.changing();
                bytes.file[block].store(value, Ordering::Relaxed);
                return;
            }
        },
        entry => entry - 1,
    };
    let held = cell.holding(committed);
    let open = (0..2).find(|&which| cell.version(which).epoch == committed + 1);
    if let (Some((which, version)), None) = (held, open)
        && version.granules != 0
    {
        // The committed copy is where the new one must go: copy it to the file first, and say so in the committed
        // version.
        bytes.file[block].store(bytes.log[entry as usize].load(Ordering::Relaxed), Ordering::Relaxed);
        let _changing = cell.changing();
        cell.set_version(which, Version { granules: 0, ..version });
    }
    let _changing = cell.changing();
    bytes.log[entry as usize].store(value, Ordering::Relaxed);
    let which = open.unwrap_or_else(|| held.map_or(0, |(which, _)| 1 - which));
    cell.set_version(which, Version { epoch: committed + 1, granules: 1 });
}

fn commit(arena: &Arena) {
    let shared = arena.shared();
    let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
    shared.committed.store(shared.committed() + 1, Ordering::Release);
}

fn checkpoint(arena: &Arena, bytes: &Bytes, cell: &Cell, block: usize) {
    let committed = arena.shared().committed();
    let Some(entry) = cell.entry.load(Ordering::Relaxed).checked_sub(1) else { return };
    if (0..2).any(|which| cell.version(which).epoch > committed) {
        return;
    }
    if cell.holding(committed).is_some_and(|(_, version)| version.granules != 0) {
        bytes.file[block].store(bytes.log[entry as usize].load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let _changing = cell.changing();
    cell.entry.store(0, Ordering::Relaxed);
    cell.set_version(0, Version::default());
    cell.set_version(1, Version::default());
    Free::of(arena).give_back(entry);
}

/// `None`: writers were active.
fn read(arena: &Arena, bytes: &Bytes, block: usize) -> Option<u64> {
    let cell = Index::new(arena).lookup(block as u64)?;
    for _ in 0..8 {
        let Some(seen) = cell.begin_read() else { continue };
        let committed = arena.shared().committed();
        let version = (0..2).map(|which| cell.version(which)).find(|version| version.epoch == committed + 1);
        let version = version.or(cell.holding(committed).map(|(_, version)| version));
        let value = match (cell.entry.load(Ordering::Relaxed), version) {
            (entry, Some(version)) if entry != 0 && version.granules != 0 => {
                bytes.log[entry as usize - 1].load(Ordering::Relaxed)
            }
            _ => bytes.file[block].load(Ordering::Relaxed),
        };
        if cell.still(seen) {
            return Some(value);
        }
    }
    None
}

/// Three writers share two pending words. Everything stored must be flushed by some thread before a SYNC's slot, and
/// nothing by two threads at a time.
pub fn pending_words() {
    let arena = arena();
    for block in 0..3 {
        Index::new(&arena).cell(block).unwrap();
    }
    // Per block: the number of stores, and how many of them were flushed.
    let stored: Arc<[AtomicU64; 3]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
    let flushed: Arc<[AtomicU64; 3]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
    let running: Vec<_> = (0..3u64)
        .map(|thread| {
            let (arena, stored, flushed) = (arena.clone(), stored.clone(), flushed.clone());
            spawn(move || {
                let word = thread as usize % 2;
                for round in 0..2 {
                    stage(&arena, &stored, &flushed, word, (thread + round) % 3);
                }
                if thread < 2 {
                    let shared = arena.shared();
                    let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
                    for word in 0..2 {
                        let block = shared.pending[word].0.swap(0, Ordering::AcqRel);
                        if block != 0 {
                            take_over(&arena, &stored, &flushed, block - 1);
                        }
                    }
                    for block in 0..3 {
                        let all = stored[block].fetch_add(0, Ordering::Relaxed);
                        assert_eq!(flushed[block].load(Ordering::Relaxed), all, "block {block} is dirty at a SYNC");
                    }
                }
            })
        })
        .collect();
    running.into_iter().for_each(crate::sync::Running::join);
}

/// `turn_to`, the store, and `leave_dirty`.
fn stage(arena: &Arena, stored: &[AtomicU64; 3], flushed: &[AtomicU64; 3], word: usize, block: u64) {
    let shared = arena.shared();
    let _inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
    let pending = &shared.pending[word].0;
    if pending.load(Ordering::Relaxed) != block + 1 {
        let before = pending.swap(block + 1, Ordering::AcqRel);
        if before != 0 {
            take_over(arena, stored, flushed, before - 1);
        }
    }
    let cell = Index::new(arena).lookup(block).unwrap();
    let _locked = cell.lock.lock(0).unwrap();
    let at = block as usize;
    stored[at].store(stored[at].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    cell.unflushed.store(1, Ordering::Relaxed);
    if pending.load(Ordering::Acquire) != block + 1 {
        flush(cell, stored, flushed, at);
    }
}

fn take_over(arena: &Arena, stored: &[AtomicU64; 3], flushed: &[AtomicU64; 3], block: u64) {
    let cell = Index::new(arena).lookup(block).unwrap();
    let _locked = cell.lock.lock(0).unwrap();
    flush(cell, stored, flushed, block as usize);
}

/// Called with the block's lock held. The real code flushes after the lock; what matters is that this thread is
/// inside the gate until then.
fn flush(cell: &Cell, stored: &[AtomicU64; 3], flushed: &[AtomicU64; 3], at: usize) {
    if cell.unflushed.load(Ordering::Relaxed) != 0 {
        cell.unflushed.store(0, Ordering::Relaxed);
        flushed[at].store(stored[at].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
