//! A locked value that a forked child has anew: another thread of the parent may have held its lock at the fork.

use crate::thread::{Guard, Mutex};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// See the module.
pub(in crate::file) struct PerProcess<T: 'static> {
    first: Mutex<T>,
    /// Null: `first`.
    of_child: AtomicPtr<Mutex<T>>,
}

impl<T: Default> PerProcess<T> {
    pub const fn new(value: T) -> Self {
        Self { first: Mutex::new(value), of_child: AtomicPtr::new(null_mut()) }
    }

    fn mutex(&self) -> &Mutex<T> {
        // SAFETY: null, or leaked by `begin_child`.
        unsafe { self.of_child.load(Ordering::Acquire).as_ref() }.unwrap_or(&self.first)
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.mutex().lock()
    }

    /// In a forked child, which has no other thread yet. The parent's value is not dropped.
    pub fn begin_child(&self) {
        match self.mutex().try_lock() {
            Some(mut value) => core::mem::forget(core::mem::take(&mut *value)),
            None => self.of_child.store(Box::leak(Box::new(Mutex::new(T::default()))), Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_process_that_held_the_lock_has_its_own_value() {
        let value: PerProcess<Vec<u32>> = PerProcess::new(Vec::new());
        value.lock().push(1);
        let held = value.lock();
        value.begin_child();
        assert_eq!(*value.lock(), []);
        drop(held);
        value.lock().push(2);
        value.begin_child();
        assert_eq!(*value.lock(), []);
    }
}
