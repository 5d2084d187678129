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
    // Bits of blocks that a partner has left to its leader; the changes that were made.
    let (left, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let running: Vec<_> = (0..3)
        .map(|me| {
            let (arena, pairs, blocks) = (arena.clone(), pairs.clone(), blocks.clone());
            let (left, made) = (left.clone(), made.clone());
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
                            let joined = pairs.join(number, |taken| {
                                is_taken = mine.map(|block| taken.has(block));
                                true
                            });
                            if let Some(joined) = joined {
                                for (block, is_taken) in mine.into_iter().zip(is_taken) {
                                    if is_taken {
                                        left.fetch_or(1 << block, Ordering::Relaxed);
                                    } else {
                                        add(block);
                                    }
                                }
                                made.fetch_add(1, Ordering::Relaxed);
                                assert!(joined.end(is_taken.contains(&true)).unwrap());
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
                        let partner = led.close();
                        assert!(partner != Partner::Failed);
                        if partner == Partner::LeftWork {
                            let left = left.fetch_and(0, Ordering::Relaxed);
                            (0..BLOCKS as u64).filter(|block| left >> block & 1 == 1).for_each(add);
                        }
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
