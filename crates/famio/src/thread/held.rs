//! Records that this thread holds a lock, or is about to: the handler of a signal meanwhile waits (`handlers`), and a
//! handler that cannot wait sees it.

use super::{current, handlers};
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

/// One more lock of this thread, until it is dropped. It is made before the lock is tried and dropped after the
/// release: a handler in between would wait for what it interrupted.
#[derive(Debug)]
pub(crate) struct Held(&'static Cell<u64>);

impl Held {
    /// A lock of an atomic file.
    #[inline]
    pub fn of_file() -> Self {
        Self::count(&current().locks_held)
    }

    /// A lock of the process, or a step that must not be interrupted.
    #[inline]
    pub fn of_process() -> Self {
        Self::count(&current().posix_locks)
    }

    #[inline]
    fn count(count: &'static Cell<u64>) -> Self {
        count.set(count.get() + 1);
        // A handler runs on this thread: it sees the order that the compiler keeps.
        compiler_fence(Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.set(self.0.get() - 1);
        // A signal that comes after the count was lowered is not postponed.
        compiler_fence(Ordering::SeqCst);
        if current().postponed.get() != 0 {
            handlers::deliver();
        }
    }
}
