//! Parts of the library that are disabled on a thread and on those that it starts.

use famio::rule::Rule;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A part that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The barriers of a call site, by its number.
    Site(usize),
    /// A check, or an order.
    Rule(Rule),
}

/// See the module. By default, nothing is disabled.
#[derive(Clone, Default)]
pub struct Away {
    part: Option<Part>,
    /// The parts that were passed.
    passed: Arc<Mutex<BTreeSet<Part>>>,
}

thread_local! {
    static MINE: RefCell<Away> = RefCell::default();
}

impl Away {
    /// Disables this part.
    pub fn without(part: Option<Part>) -> Self {
        Self { part, ..Self::default() }
    }

    /// Applies to this thread from now on.
    pub fn enter(&self) {
        MINE.replace(self.clone());
    }

    /// This thread's.
    pub fn current() -> Self {
        MINE.with_borrow(Clone::clone)
    }

    /// The parts passed since the last call.
    pub fn take_passed(&self) -> BTreeSet<Part> {
        std::mem::take(&mut self.passed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that this thread passes a part; returns whether it is disabled.
    pub fn is_missing(part: Part) -> bool {
        MINE.with_borrow(|mine| {
            mine.passed.lock().unwrap_or_else(PoisonError::into_inner).insert(part);
            mine.part == Some(part)
        })
    }
}
