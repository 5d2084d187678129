//! The blocks of the open epoch.

use crate::file::engine::context::Context;
use crate::thread::{Guard, Mutex};
use core::cell::UnsafeCell;

/// The blocks of the open epoch, each once, but that a cut may have removed one that came again.
///
/// Invariant: a thread uses the list with the lock held, or in exclusive mode, when no other thread is inside the gate
/// and those outside wait for its end before they use the list.
#[derive(Default)]
pub(super) struct OpenBlocks {
    lock: Mutex<()>,
    list: UnsafeCell<Vec<u64>>,
}

// SAFETY: the invariant.
unsafe impl Sync for OpenBlocks {}

/// The list, with its lock.
pub(super) struct Locked<'a> {
    list: &'a mut Vec<u64>,
    _lock: Guard<'a, ()>,
}

impl OpenBlocks {
    /// Adds a block. In exclusive mode without the lock: a locked instruction waits until everything that was stored
    /// before has its cache line.
    #[inline]
    pub fn push(&self, cx: Context<'_>, block: u64) {
        let _locked = (!cx.exclusive).then(|| self.lock.lock());
        // SAFETY: the invariant.
        unsafe { &mut *self.list.get() }.push(block);
    }

    /// With the gate closed, or in exclusive mode.
    pub fn lock(&self) -> Locked<'_> {
        let _lock = self.lock.lock();
        // SAFETY: the invariant; the lock lives as long as the reference.
        Locked { list: unsafe { &mut *self.list.get() }, _lock }
    }
}

impl core::ops::Deref for Locked<'_> {
    type Target = Vec<u64>;

    fn deref(&self) -> &Vec<u64> {
        self.list
    }
}

impl core::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u64> {
        self.list
    }
}
