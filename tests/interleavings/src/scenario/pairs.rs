//! Pairs: two threads that change different blocks while one of them has the gate closed.

use super::arena;
use crate::index::calls::gate::LONG;
use crate::index::calls::pair::{Arrival, Pairs, Partner};
use crate::sync::{AtomicU64, Ordering, spawn};
use std::sync::Arc;

const BLOCKS: usize = 4;

/// Each change adds 1 to two blocks, one of which all threads change. No addition is lost, and a leader that commits
/// finds every change as a whole.
pub fn two_change_at_once() {
    let (arena, pairs) = (arena(), Arc::new(Pairs::default()));
    let blocks: Arc<[AtomicU64; BLOCKS]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
    let made = Arc::new(AtomicU64::new(0));
    let running: Vec<_> = (0..3)
        .map(|me| {
            let (arena, pairs, blocks, made) = (arena.clone(), pairs.clone(), blocks.clone(), made.clone());
            spawn(move || {
                let shared = arena.shared();
                let mine = [me, BLOCKS as u64 - 1];
                // Two threads at one block would lose an addition.
                let add = |block: u64| {
                    let word = &blocks[block as usize];
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                };
                for _ in 0..2 {
                    let mut leads = None;
                    match pairs.arrive(|| {}) {
                        Arrival::Leads(leading) => leads = Some(leading),
                        Arrival::Joins(number) => {
                            let mut is_taken = [false; 2];
                            let joined = pairs.join(number, |taken| is_taken = mine.map(|block| taken.has(block)));
                            if let Some(joined) = joined {
                                // First those that the leader does not change.
                                for common in [false, true] {
                                    if common && is_taken.contains(&true) {
                                        joined.wait_for_leader().unwrap();
                                    }
                                    let these = mine.into_iter().zip(is_taken).filter(|(_, taken)| *taken == common);
                                    these.for_each(|(block, _)| add(block));
                                }
                                made.fetch_add(1, Ordering::Relaxed);
                                assert!(joined.end().unwrap());
                                continue;
                            }
                        }
                        Arrival::Alone => {}
                    }
                    let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
                    let led = leads.as_ref().map(|leading| leading.open(mine.into_iter()));
                    mine.into_iter().for_each(add);
                    made.fetch_add(1, Ordering::Relaxed);
                    if let Some(led) = &led {
                        assert!(led.close() != Partner::Failed);
                    }
                    let sum: u64 = blocks.iter().map(|block| block.load(Ordering::Relaxed)).sum();
                    assert_eq!(sum, 2 * made.fetch_add(0, Ordering::Relaxed), "a change is there in part, or lost");
                    if let Some(led) = led {
                        led.end();
                    }
                }
            })
        })
        .collect();
    running.into_iter().for_each(crate::sync::Running::join);
    assert_eq!(made.load(Ordering::Relaxed), 6);
}
