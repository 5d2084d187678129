//! The lock that names its holder.

use super::arena;
use crate::index::Index;
use crate::sync::{AtomicU64, Ordering, spawn};
use std::sync::Arc;

/// One thread at a time holds it, each sees what the previous one did, and none sleeps forever.
pub fn mutual_exclusion() {
    let arena = arena();
    let sum = Arc::new(AtomicU64::new(0));
    Index::new(&arena).cell(0).unwrap();
    let running: Vec<_> = (0..3)
        .map(|slot| {
            let (arena, sum) = (arena.clone(), sum.clone());
            spawn(move || {
                let cell = Index::new(&arena).lookup(0).unwrap();
                for round in 0..3 {
                    let locked =
                        if round == 1 { cell.lock.try_lock(slot) } else { Some(cell.lock.lock(slot).unwrap()) };
                    if locked.is_some() {
                        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    } else {
                        sum.fetch_add(0, Ordering::Relaxed);
                        let _locked = cell.lock.lock(slot).unwrap();
                        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                }
                assert_eq!(crate::thread::current().locks_held.get(), 0);
            })
        })
        .collect();
    running.into_iter().for_each(crate::sync::Running::join);
    assert_eq!(sum.load(Ordering::Relaxed), 9);
}
