//! Weak memory: C11's, as far as an interpreter that executes one step after the other can model it.
//!
//! Each location has a history of values. A thread has a *view*: for each location, the oldest value that it may
//! still read. A store adds a value at the end; a load may return any value from the view on. Acquire takes over the
//! view with which the value was released; fences, read-modify-writes and sequentially consistent accesses are as in
//! C11. Loads are not delayed behind later stores ("load buffering"), and stores enter the history in the order of
//! execution.

use core::sync::atomic::Ordering;
use std::cell::RefCell;
use std::collections::HashMap;

/// For each location, an index into its history.
type View = Vec<usize>;

struct Value {
    bits: u64,
    /// The view that an acquire load of this value takes over.
    released: View,
}

#[derive(Default)]
struct Thread {
    now: View,
    /// Views of values read by relaxed loads; they count from the next acquire fence on.
    read: View,
    /// The view at the last release fence; it goes with relaxed stores.
    fenced: View,
}

#[derive(Default)]
pub(super) struct Memory {
    places: HashMap<usize, usize>,
    histories: Vec<Vec<Value>>,
    threads: Vec<Thread>,
    /// Sequentially consistent stores and fences.
    total: View,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

pub(super) fn with<R>(work: impl FnOnce(&mut Memory, usize) -> R) -> R {
    let me = usize::from(shuttle::current::me());
    MEMORY.with_borrow_mut(|memory| {
        while memory.threads.len() <= me {
            memory.threads.push(Thread::default());
        }
        work(memory, me)
    })
}

/// Resets to the beginning of an execution.
pub(super) fn reset() {
    MEMORY.with_borrow_mut(|memory| *memory = Memory::default());
}

fn join(into: &mut View, from: &View) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

fn raise(view: &mut View, place: usize, index: usize) {
    if view.len() <= place {
        view.resize(place + 1, 0);
    }
    view[place] = view[place].max(index);
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

impl Memory {
    /// The location at an address; `first` is its value when it is first seen.
    pub fn place(&mut self, address: usize, first: u64) -> usize {
        let next = self.histories.len();
        let place = *self.places.entry(address).or_insert(next);
        if place == next {
            self.histories.push(vec![Value { bits: first, released: View::new() }]);
        }
        place
    }

    /// `choose`: which of the possible values, the last being the newest.
    pub fn load(&mut self, me: usize, place: usize, order: Ordering, choose: impl FnOnce(usize) -> usize) -> u64 {
        if order == Ordering::SeqCst {
            let index = self.total.get(place).copied().unwrap_or(0);
            raise(&mut self.threads[me].now, place, index);
        }
        let oldest = self.threads[me].now.get(place).copied().unwrap_or(0);
        let index = oldest + choose(self.histories[place].len() - oldest);
        self.read(me, place, index, order)
    }

    fn read(&mut self, me: usize, place: usize, index: usize, order: Ordering) -> u64 {
        let value = &self.histories[place][index];
        let thread = &mut self.threads[me];
        raise(&mut thread.now, place, index);
        join(&mut thread.read, &value.released);
        if acquires(order) {
            join(&mut thread.now, &value.released);
        }
        value.bits
    }

    /// `after`: for a read-modify-write, the view with which the previous value was released.
    pub fn store(&mut self, me: usize, place: usize, bits: u64, order: Ordering, after: Option<View>) {
        let index = self.histories[place].len();
        let thread = &mut self.threads[me];
        raise(&mut thread.now, place, index);
        let mut released = if releases(order) { thread.now.clone() } else { thread.fenced.clone() };
        raise(&mut released, place, index);
        if let Some(before) = after {
            join(&mut released, &before);
        }
        self.histories[place].push(Value { bits, released });
        if order == Ordering::SeqCst {
            raise(&mut self.total, place, index);
        }
    }

    /// A read-modify-write reads the newest value. `change`: `None` if nothing is stored; then `failed` is the order.
    pub fn update(
        &mut self,
        me: usize,
        place: usize,
        (order, failed): (Ordering, Ordering),
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> (u64, bool) {
        let last = self.histories[place].len() - 1;
        let (old, released) = (self.histories[place][last].bits, self.histories[place][last].released.clone());
        match change(old) {
            Some(new) => {
                self.read(me, place, last, order);
                self.store(me, place, new, order, Some(released));
                (old, true)
            }
            None => {
                self.read(me, place, last, failed);
                (old, false)
            }
        }
    }

    pub fn fence(&mut self, me: usize, order: Ordering) {
        let thread = &mut self.threads[me];
        if acquires(order) {
            join(&mut thread.now, &thread.read);
        }
        if order == Ordering::SeqCst {
            join(&mut thread.now, &self.total);
            join(&mut self.total, &thread.now);
        }
        if releases(order) {
            thread.fenced = thread.now.clone();
        }
    }

    /// A full barrier in every thread at once.
    pub fn fence_all(&mut self) {
        for _ in 0..2 {
            for me in 0..self.threads.len() {
                self.fence(me, Ordering::SeqCst);
            }
        }
    }

    /// What `from` knows, `to` knows: `from` has started it, or was joined by it.
    pub fn hand_over(&mut self, from: usize, to: usize) {
        while self.threads.len() <= to {
            self.threads.push(Thread::default());
        }
        let known = self.threads[from].now.clone();
        join(&mut self.threads[to].now, &known);
    }
}
