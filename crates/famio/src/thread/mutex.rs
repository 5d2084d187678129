//! A mutex that tells signal handlers when the interrupted thread holds it.

use super::Held;
use core::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};

/// A mutex of the process. While a thread holds it or waits for it, its thread block says so, and a call that a
/// signal handler makes on that thread is refused instead of waiting for what it interrupted.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// Holds a [`Mutex`] until it is dropped.
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock. If a thread panicked with it, its data is used as it is.
    pub fn lock(&self) -> Guard<'_, T> {
        let held = Held::of_process();
        Guard { inner: self.0.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let held = Held::of_process();
        self.0.try_lock().ok().map(|inner| Guard { inner, _held: held })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::super::current;
    use super::*;

    #[test]
    fn the_thread_says_what_it_holds() {
        let (a, b) = (Mutex::new(1), Mutex::new(2));
        let before = current().posix_locks.get();
        let held = a.lock();
        assert!(a.try_lock().is_none());
        assert_eq!(current().posix_locks.get(), before + 1);
        *b.lock() += *held;
        drop(held);
        assert_eq!((current().posix_locks.get(), *b.lock()), (before, 3));
    }
}
