//! A mutex with a bias towards the thread in exclusive mode: see [`Bias`].

use crate::file::engine::context::Context;
use crate::index::calls::biased::Bias;
use crate::thread::{Guard, Mutex};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// Invariant: the value is used by one thread at a time: that which holds `mutex`, once the bias has kept out the
/// thread in exclusive mode, or that one, without `mutex`.
#[derive(Default)]
pub(super) struct Biased<T> {
    mutex: Mutex<()>,
    bias: Bias,
    value: UnsafeCell<T>,
}

// SAFETY: the invariant.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Has the value to itself until it is dropped.
pub(super) struct BiasedGuard<'a, T> {
    of: &'a Biased<T>,
    /// `None`: the thread is in exclusive mode.
    mutex: Option<Guard<'a, ()>>,
}

impl<T> Biased<T> {
    pub const fn new(value: T) -> Self {
        Self { mutex: Mutex::new(()), bias: Bias::new(), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self, cx: Context<'_>) -> BiasedGuard<'_, T> {
        if cx.exclusive && self.bias.begin() { BiasedGuard { of: self, mutex: None } } else { self.lock_mutex(cx) }
    }

    #[cold]
    fn lock_mutex(&self, cx: Context<'_>) -> BiasedGuard<'_, T> {
        let is_exclusive = cx.shared().gate.is_exclusively_of(cx.me);
        let mutex = if is_exclusive { self.bias.wait(|| self.mutex.lock()) } else { self.mutex.lock() };
        self.bias.exclude(&cx.shared().gate, cx.me);
        BiasedGuard { of: self, mutex: Some(mutex) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, cx: Context<'_>) -> Option<BiasedGuard<'_, T>> {
        let mutex = self.mutex.try_lock()?;
        let is_free = self.bias.try_exclude(&cx.shared().gate, cx.me);
        is_free.then_some(BiasedGuard { of: self, mutex: Some(mutex) })
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the invariant.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the invariant.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_some() {
            self.of.bias.admit();
        } else {
            self.of.bias.end();
        }
    }
}
