//! A mutex with a bias towards the thread in exclusive mode.

use super::arena;
use crate::index::Arena;
use crate::index::calls::biased::Bias;
use crate::index::calls::exclusive::prepare_process;
use crate::index::calls::gate::LONG;
use crate::sync::{AtomicU64, Ordering, spawn};
use std::sync::Arc;

/// A mutex with its bias, and a sum that it protects.
#[derive(Default)]
struct Protected {
    mutex: AtomicU64,
    bias: Bias,
    sum: AtomicU64,
}

impl Protected {
    fn add(&self) {
        self.sum.store(self.sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn try_mutex(&self) -> bool {
        self.mutex.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn take_mutex(&self) {
        while !self.try_mutex() {
            crate::sync::spin_loop();
        }
    }

    fn leave(&self) {
        self.bias.admit();
        self.mutex.store(0, Ordering::Release);
    }

    fn add_by_mutex(&self, arena: &Arena) {
        self.take_mutex();
        self.bias.exclude(&arena.shared().gate, 0);
        self.add();
        self.leave();
    }

    /// Whether it was free.
    fn try_add(&self, arena: &Arena) -> bool {
        if !self.try_mutex() {
            return false;
        }
        if !self.bias.try_exclude(&arena.shared().gate, 0) {
            self.mutex.store(0, Ordering::Release);
            return false;
        }
        self.add();
        self.leave();
        true
    }
}

/// One thread writes, and gets exclusive mode; a second one, outside the gate, and a third, which revokes that mode
/// once, use what it uses. No change is lost.
pub fn biased_mutex() {
    if !prepare_process() {
        return; // there is no exclusive mode here
    }
    const ROUNDS: u64 = 4;
    let (arena, protected) = (arena(), Arc::<Protected>::default());
    let writer = {
        let (arena, protected) = (arena.clone(), protected.clone());
        spawn(move || {
            let shared = arena.shared();
            for _ in 0..ROUNDS {
                {
                    let inside = shared.gate.enter(0, &shared.entered, &LONG).unwrap();
                    if inside.exclusive && protected.bias.begin() {
                        assert!(!protected.bias.begin(), "it is in the critical section already");
                        protected.add();
                        protected.bias.end();
                    } else {
                        protected.add_by_mutex(&arena);
                    }
                }
                let _closed = shared.gate.close(0, &shared.entered, &LONG).unwrap();
                shared.gate.grant(0, true);
            }
        })
    };
    let tried = Arc::new(AtomicU64::new(0));
    let outside = {
        let (arena, protected, tried) = (arena.clone(), protected.clone(), tried.clone());
        spawn(move || {
            let added = (0..ROUNDS).filter(|_| protected.try_add(&arena)).count();
            tried.store(added as u64, Ordering::Relaxed);
        })
    };
    let reader = {
        let (arena, protected) = (arena.clone(), protected.clone());
        spawn(move || {
            protected.add_by_mutex(&arena);
            arena.shared().gate.join(0).unwrap();
            protected.add_by_mutex(&arena);
        })
    };
    [writer, outside, reader].into_iter().for_each(crate::sync::Running::join);
    assert_eq!(
        protected.sum.load(Ordering::Relaxed),
        ROUNDS + tried.load(Ordering::Relaxed) + 2,
        "two used it at a time"
    );
}
