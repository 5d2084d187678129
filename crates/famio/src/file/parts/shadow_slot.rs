//! Where a file has its shadow, and the lock of who changes both. A shadow that another takes the place of stays as long as the
//! file: calls may still be at it.

use super::shadow_memory::Shadow;
use crate::file::base::doing::{Doing, doing};
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// See the module.
///
/// Invariant: `now` is null or points to a box in `all`, which only grows.
#[derive(Default)]
pub(in crate::file) struct Slot {
    now: AtomicPtr<Shadow>,
    #[allow(clippy::vec_box, reason = "what `now` points to stays where it is")]
    all: Mutex<Vec<Box<Shadow>>>,
    /// See [`Changing`].
    changing: Mutex<()>,
    /// Held by who tells the door of maps. Taken before the list of maps.
    pub(in crate::file) telling: Mutex<()>,
}

/// Held while bytes of the file and the shadow change, or are compared, and while the turn is given: this thread may change the
/// file meanwhile. Taken before `AtomicFile::inner`.
pub(in crate::file) struct Changing<'a> {
    _doing: Doing,
    _lock: Guard<'a, ()>,
}

impl Slot {
    /// The shadow, if one was ever made. It may have to be filled.
    #[inline]
    pub fn get(&self) -> Option<&Shadow> {
        // SAFETY: the invariant.
        unsafe { self.now.load(Ordering::Acquire).as_ref() }
    }

    /// Puts one there, unless the one that is there is `right`. Gives the one that is there then. `there` says that there is one.
    pub fn put(&self, made: Shadow, there: &AtomicBool, right: impl Fn(&Shadow) -> bool) -> &Shadow {
        let mut all = self.all.lock();
        if let Some(now) = self.get().filter(|now| right(now)) {
            return now;
        }
        let made = Box::new(made);
        let address = core::ptr::from_ref(&*made);
        all.push(made);
        self.now.store(address.cast_mut(), Ordering::Release);
        there.store(true, Ordering::SeqCst);
        // SAFETY: the invariant.
        unsafe { &*address }
    }

    /// Waits until nobody else changes the file.
    pub fn lock(&self) -> Changing<'_> {
        let lock = self.changing.lock();
        Changing { _doing: doing(), _lock: lock }
    }

    /// As [`lock`](Self::lock), if nobody else does now.
    pub fn try_lock(&self) -> Option<Changing<'_>> {
        let lock = self.changing.try_lock()?;
        Some(Changing { _doing: doing(), _lock: lock })
    }
}
