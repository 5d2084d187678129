//! `crate::sync` for the library's files: atomics over real memory, with a choice of shuttle's before each access.

mod memory;

pub use core::sync::atomic::{Ordering, compiler_fence};
use shuttle::rand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

thread_local! {
    static BARRIERS: Cell<bool> = const { Cell::new(true) };
    static SLEEPING: RefCell<HashMap<usize, Vec<(u64, shuttle::thread::Thread)>>> = RefCell::default();
    static TICKETS: Cell<u64> = const { Cell::new(0) };
}

/// A point where another thread may continue.
fn point() {
    shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
}

/// Which of the possible values a load returns: mostly the newest.
fn choose(values: usize) -> usize {
    if values == 1 || shuttle::rand::thread_rng().gen_range(0..2) == 0 {
        values - 1
    } else {
        shuttle::rand::thread_rng().gen_range(0..values)
    }
}

macro_rules! atomic {
    ($name:ident, $real:ty, $word:ty) => {
        /// As the library's, over the memory model.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name($real);

        impl $name {
            /// A word.
            pub const fn new(value: $word) -> Self {
                Self(<$real>::new(value))
            }

            fn with<R>(&self, work: impl FnOnce(&mut memory::Memory, usize, usize) -> R) -> R {
                point();
                let (address, first) = (self as *const Self as usize, self.0.load(Ordering::Relaxed));
                memory::with(|memory, me| {
                    let place = memory.place(address, first.into());
                    work(memory, me, place)
                })
            }

            fn update(
                &self,
                orders: (Ordering, Ordering),
                change: impl FnOnce($word) -> Option<$word>,
            ) -> ($word, bool) {
                self.with(|memory, me, place| {
                    let (old, done) = memory.update(me, place, orders, |old| {
                        let new = change(old as $word);
                        if let Some(new) = new {
                            self.0.store(new, Ordering::Relaxed);
                        }
                        new.map(u64::from)
                    });
                    (old as $word, done)
                })
            }

            /// As the standard library's.
            pub fn load(&self, order: Ordering) -> $word {
                self.with(|memory, me, place| memory.load(me, place, order, choose)) as $word
            }

            /// As the standard library's.
            pub fn store(&self, value: $word, order: Ordering) {
                self.with(|memory, me, place| {
                    self.0.store(value, Ordering::Relaxed);
                    memory.store(me, place, value.into(), order, None);
                });
            }

            /// As the standard library's.
            pub fn swap(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |_| Some(value)).0
            }

            /// As the standard library's.
            pub fn fetch_add(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |old| Some(old.wrapping_add(value))).0
            }

            /// As the standard library's.
            pub fn fetch_sub(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |old| Some(old.wrapping_sub(value))).0
            }

            /// As the standard library's.
            pub fn fetch_or(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |old| Some(old | value)).0
            }

            /// As the standard library's.
            pub fn fetch_and(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |old| Some(old & value)).0
            }

            /// As the standard library's.
            pub fn fetch_max(&self, value: $word, order: Ordering) -> $word {
                self.update((order, order), |old| Some(old.max(value))).0
            }

            /// As the standard library's.
            pub fn compare_exchange(
                &self,
                old: $word,
                new: $word,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$word, $word> {
                match self.update((order, failed), |found| (found == old).then_some(new)) {
                    (found, true) => Ok(found),
                    (found, false) => Err(found),
                }
            }

            /// As the standard library's; fails sometimes.
            pub fn compare_exchange_weak(
                &self,
                old: $word,
                new: $word,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$word, $word> {
                let may = shuttle::rand::thread_rng().gen_range(0..8) != 0;
                match self.update((order, failed), |found| (found == old && may).then_some(new)) {
                    (found, true) => Ok(found),
                    (found, false) => Err(found),
                }
            }
        }
    };
}

atomic!(AtomicU32, core::sync::atomic::AtomicU32, u32);
atomic!(AtomicU64, core::sync::atomic::AtomicU64, u64);

/// As the standard library's.
pub fn fence(order: Ordering) {
    point();
    memory::with(|memory, me| memory.fence(me, order));
}

/// Few, so that threads sleep as well.
pub(crate) const SPINS: u32 = 2;

/// As the standard library's.
pub fn spin_loop() {
    shuttle::thread::yield_now();
}

/// As the system's.
pub fn sched_yield() {
    shuttle::thread::yield_now();
}

/// The system call, unless a test has disabled it.
pub(crate) fn membarrier() {
    point();
    if BARRIERS.get() {
        memory::with(|memory, _| memory.fence_all());
    }
}

/// For tests of this crate: whether `membarrier` has any effect.
pub fn set_membarrier(works: bool) {
    BARRIERS.set(works);
}

/// Begins an execution.
pub(crate) fn reset() {
    memory::reset();
    SLEEPING.with_borrow_mut(HashMap::clear);
}

/// Starts a thread that knows what this one knows.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> Running {
    let parent = usize::from(shuttle::current::me());
    let handle = shuttle::thread::spawn(move || {
        memory::with(|memory, me| memory.hand_over(parent, me));
        work();
        usize::from(shuttle::current::me())
    });
    Running(handle)
}

/// A started thread.
pub(crate) struct Running(shuttle::thread::JoinHandle<usize>);

impl Running {
    /// Waits for its end.
    pub fn join(self) {
        if let Ok(child) = self.0.join() {
            memory::with(|memory, me| memory.hand_over(child, me));
        }
    }
}

/// As in rustix. There are no time-outs: a lost wake is a deadlock, which shuttle reports.
pub mod futex {
    use super::{AtomicU32, SLEEPING, TICKETS, point};
    use core::sync::atomic::Ordering;
    use rustix::io::Errno;
    pub use rustix::thread::futex::Flags;
    use rustix::time::Timespec;

    /// Sleeps if the word has the expected value.
    pub fn wait(word: &AtomicU32, _: Flags, expected: u32, _: Option<&Timespec>) -> Result<(), Errno> {
        point();
        // The kernel reads the word itself.
        if word.0.load(Ordering::Relaxed) != expected {
            return Err(Errno::AGAIN);
        }
        let (address, ticket) = (core::ptr::from_ref(word) as usize, TICKETS.get());
        TICKETS.set(ticket + 1);
        let me = shuttle::thread::current();
        SLEEPING.with_borrow_mut(|all| all.entry(address).or_default().push((ticket, me)));
        let sleeps = || {
            SLEEPING.with_borrow(|all| all.get(&address).is_some_and(|these| these.iter().any(|(t, _)| *t == ticket)))
        };
        while sleeps() {
            shuttle::thread::park();
        }
        Ok(())
    }

    /// Wakes up to `count` threads.
    pub fn wake(word: &AtomicU32, _: Flags, count: u32) -> Result<usize, Errno> {
        point();
        let address = core::ptr::from_ref(word) as usize;
        let woken: Vec<_> = SLEEPING.with_borrow_mut(|all| match all.get_mut(&address) {
            Some(these) => these.drain(..these.len().min(count as usize)).collect(),
            None => Vec::new(),
        });
        woken.iter().for_each(|(_, thread)| thread.unpark());
        Ok(woken.len())
    }
}
