//! The state of one thread: a small block of words that needs no destructor, so that it works before the first
//! constructor, after the last destructor and in a signal handler.

mod held;
mod mutex;
mod passage;

pub(crate) use held::Held;
pub(crate) use mutex::{Guard, Mutex};
pub(crate) use passage::Passage;

use core::cell::Cell;
use core::marker::PhantomData;

/// The block of the current thread. `tls.c` holds it, zeroed.
#[repr(C)]
pub struct ThreadBlock {
    /// Where a fault inside a guarded copy resumes; zero outside (see `map::guard`).
    pub(crate) guard: Cell<usize>,
    /// How many locks of an atomic file this thread holds: a signal handler that finds some must not take more.
    pub(crate) locks_held: Cell<u64>,
    /// The kernel's id of this thread, once it was asked for; zero before.
    pub(crate) tid: Cell<u64>,
    /// Not zero: this thread lets the signals of a bad address through (see `map::guard`).
    pub(crate) guard_ready: Cell<u64>,
    /// How many locks of `posix` this thread holds: of descriptions and of the table.
    pub(crate) posix_locks: Cell<u64>,
    /// Which place in the list of calls is this thread's (see `file::calls`); zero before its first call.
    pub(crate) calls: Cell<u64>,
    /// This thread does what else a change takes: a shadow, others who wrote (see `file::shadow`, `file::turn`).
    pub(crate) with_shadow: Cell<u64>,
    spare: Cell<u64>,
    not_sync: PhantomData<*mut ()>,
}

const _: () = assert!(size_of::<ThreadBlock>() == 64);

unsafe extern "C" {
    fn famio_thread_block() -> *const ThreadBlock;
}

/// The current thread's block.
#[inline]
pub fn current() -> &'static ThreadBlock {
    // SAFETY: the block lives as long as its thread, all-zero bytes are a valid block, and `PhantomData<*mut ()>` keeps
    // the reference on this thread.
    unsafe { &*famio_thread_block() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_block() {
        current().locks_held.set(7);
        std::thread::spawn(|| assert_eq!(current().locks_held.get(), 0)).join().unwrap();
        assert_eq!(current().locks_held.get(), 7);
        current().locks_held.set(0);
    }
}
