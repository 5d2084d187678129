//! That this thread holds a lock, or is about to: a handler of a signal that comes meanwhile waits (`handlers`), and one that
//! can't be kept waiting must see so.

use super::{current, handlers};
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

/// One more lock of this thread, until it is dropped. To be made before the lock is tried and dropped after it is free: a
/// handler in between would wait for what it interrupted.
#[derive(Debug)]
pub(crate) struct Held(&'static Cell<u64>);

impl Held {
    /// A lock of an atomic file.
    #[inline]
    pub fn of_file() -> Self {
        Self::count(&current().locks_held)
    }

    /// A lock of the process, or what is to happen in one piece.
    #[inline]
    pub fn of_process() -> Self {
        Self::count(&current().posix_locks)
    }

    #[inline]
    fn count(count: &'static Cell<u64>) -> Self {
        count.set(count.get() + 1);
        // A handler runs on this thread: what the compiler leaves in order, it sees in order.
        compiler_fence(Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.set(self.0.get() - 1);
        // A signal that comes after the count is low enough is not postponed.
        compiler_fence(Ordering::SeqCst);
        if current().postponed.get() != 0 {
            handlers::deliver();
        }
    }
}
