//! A block of state for each of shuttle's threads, all of which are one system thread.

use core::cell::{Cell, RefCell};

#[path = "../../../crates/famio/src/thread/held.rs"]
mod held;

pub(crate) use held::Held;

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct State {
    pub locks_held: Cell<u64>,
    pub posix_locks: Cell<u64>,
    pub postponed: Cell<u64>,
    number: Cell<usize>,
}

impl State {
    /// As the library's.
    pub(crate) fn group(&self) -> usize {
        self.number.get()
    }
}

/// There are no signals here.
mod handlers {
    pub fn deliver() {}
}

thread_local! {
    static STATES: RefCell<Vec<&'static State>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn current() -> &'static State {
    let me = usize::from(shuttle::current::me());
    STATES.with_borrow_mut(|states| {
        while states.len() <= me {
            states.push(Box::leak(Box::new(State { number: Cell::new(states.len()), ..State::default() })));
        }
        states[me]
    })
}
