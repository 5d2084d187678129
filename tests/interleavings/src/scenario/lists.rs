//! The list of free entries.

use super::arena;
use crate::journal::{Free, Geometry};
use crate::sync::{AtomicU32, Ordering, spawn};
use std::sync::Arc;

/// Entries are taken, given back and added concurrently: no entry may be taken twice or lost.
pub fn free_entries() {
    let arena = arena();
    // Two entries are free, the others in use.
    let free = Free::of(&arena);
    free.make_links(Geometry::of(0)).unwrap();
    free.give_back(0);
    free.give_back(1);
    let owners: Arc<Vec<AtomicU32>> = Arc::new((0..192).map(|_| AtomicU32::new(0)).collect());
    let mut running: Vec<_> = (0..3)
        .map(|_| {
            let (arena, owners) = (arena.clone(), owners.clone());
            spawn(move || {
                let free = Free::of(&arena);
                for _ in 0..3 {
                    let mut mine = Vec::new();
                    for _ in 0..2 {
                        mine.extend(free.take().unwrap());
                    }
                    for &number in &mine {
                        assert_eq!(
                            owners[number as usize].swap(1, Ordering::Relaxed),
                            0,
                            "entry {number} in two hands"
                        );
                    }
                    for number in mine {
                        owners[number as usize].store(0, Ordering::Relaxed);
                        free.give_back(number);
                    }
                }
            })
        })
        .collect();
    let more = arena.clone();
    running.push(spawn(move || {
        let free = Free::of(&more);
        free.make_links(Geometry::of(1)).unwrap();
        free.add(Geometry::of(1).first as u32, 2).unwrap();
    }));
    running.into_iter().for_each(crate::sync::Running::join);
    let mut left: Vec<u32> = std::iter::from_fn(|| free.take().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 64, 65]);
}
