//! Cells: optimistic readers concurrent with writers.

use super::arena;
use crate::index::{Index, Version};
use crate::sync::{AtomicU64, Ordering, spawn};
use std::sync::Arc;

/// A writer changes, under the lock, a cell's two versions, its entry and the bytes. A reader without a lock must see
/// one consistent state, and never an older one than before.
pub fn optimistic_reads() {
    let arena = arena();
    let bytes: Arc<[AtomicU64; 3]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
    Index::new(&arena).cell(5).unwrap();
    let mut running = Vec::new();
    for _ in 0..2 {
        let (arena, bytes) = (arena.clone(), bytes.clone());
        running.push(spawn(move || {
            let cell = Index::new(&arena).lookup(5).unwrap();
            for _ in 0..2 {
                let _locked = cell.lock.lock(0).unwrap();
                let _changing = cell.changing();
                let next = bytes[0].load(Ordering::Relaxed) + 1;
                cell.set_version(0, Version { epoch: next, granules: next });
                cell.entry.store(next as u32, Ordering::Relaxed);
                bytes.iter().for_each(|word| word.store(next, Ordering::Relaxed));
                cell.set_version(1, Version { epoch: next, granules: next });
            }
        }));
    }
    let (arena_too, read) = (arena.clone(), bytes.clone());
    running.push(spawn(move || {
        let cell = Index::new(&arena_too).lookup(5).unwrap();
        let mut before = 0;
        for _ in 0..6 {
            let Some(seen) = cell.begin_read() else { continue };
            let (a, b) = (cell.version(0), cell.version(1));
            let entry = u64::from(cell.entry.load(Ordering::Relaxed));
            let words = [0, 1, 2].map(|i| read[i].load(Ordering::Relaxed));
            if cell.still(seen) {
                let all = [a.epoch, a.granules, b.epoch, b.granules, entry, words[0], words[1], words[2]];
                assert!(all.iter().all(|value| *value == all[0]), "a mix: {all:?}");
                assert!(all[0] >= before, "back from {before} to {}", all[0]);
                before = all[0];
            }
        }
    }));
    running.into_iter().for_each(crate::sync::Running::join);
    assert_eq!(bytes[0].load(Ordering::Relaxed), 4);
}
