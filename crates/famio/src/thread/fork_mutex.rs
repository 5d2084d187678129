//! A mutex that a forked child can lock, whichever thread of its parent held it at the fork.

use super::{Guard, Mutex};
use core::mem::take;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// As [`Mutex`]. A parent's that was held at the fork stays locked for ever in the child, which then has another one.
#[derive(Debug)]
pub(crate) struct ForkMutex<T: 'static> {
    parents: Mutex<T>,
    /// Null: `parents` counts. Otherwise leaked by [`begin_child`](Self::begin_child).
    childs: AtomicPtr<Mutex<T>>,
}

impl<T: Default> ForkMutex<T> {
    pub const fn new(value: T) -> Self {
        Self { parents: Mutex::new(value), childs: AtomicPtr::new(null_mut()) }
    }

    fn current(&self) -> &Mutex<T> {
        // SAFETY: null, or leaked.
        unsafe { self.childs.load(Ordering::Acquire).as_ref() }.unwrap_or(&self.parents)
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        self.current().lock()
    }

    /// In a forked child, before its other threads: takes what the parent had, and leaves the default. `None`: another
    /// thread of the parent held it.
    pub fn begin_child(&self) -> Option<T> {
        let had = self.current().try_lock().map(|mut value| take(&mut *value));
        if had.is_none() {
            self.childs.store(Box::leak(Box::new(Mutex::new(T::default()))), Ordering::Release);
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_can_lock_it_though_it_was_held() {
        static FREE: ForkMutex<Vec<u8>> = ForkMutex::new(Vec::new());
        static HELD: ForkMutex<Vec<u8>> = ForkMutex::new(Vec::new());
        FREE.lock().push(1);
        assert_eq!(FREE.begin_child(), Some(vec![1]));
        assert!(FREE.lock().is_empty());
        let held = HELD.lock();
        assert_eq!(HELD.begin_child(), None);
        HELD.lock().push(2);
        assert_eq!((held.len(), HELD.lock().len()), (0, 1));
    }
}
