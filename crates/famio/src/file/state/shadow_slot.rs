//! Holds a file's shadow, and the lock for changes of both. A replaced shadow stays as long as the file, since calls
//! may still use it.

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
    /// Held by a thread that publishes which maps this process has. Taken before the list of maps.
    pub(in crate::file) publishing: Mutex<()>,
}

/// Held while bytes of the file and the shadow change or are compared, and during a hand-over of ownership: this
/// thread may change the file meanwhile. Taken before `AtomicFile::inner`.
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

    /// Sets the shadow to `made`, unless the present shadow is `right`. Returns the shadow that is then set. `there`
    /// records that there is a shadow.
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

    /// Waits until no other thread changes the file.
    pub fn lock(&self) -> Changing<'_> {
        let lock = self.changing.lock();
        Changing { _doing: doing(), _lock: lock }
    }

    /// As [`lock`](Self::lock), if no other thread does now.
    pub fn try_lock(&self) -> Option<Changing<'_>> {
        let lock = self.changing.try_lock()?;
        Some(Changing { _doing: doing(), _lock: lock })
    }
}
