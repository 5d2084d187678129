//! The blocks of the open epoch.

use crate::file::engine::context::Context;
use crate::thread::Mutex;
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

impl OpenBlocks {
    /// Adds a block. In exclusive mode without the lock: a locked instruction waits until everything that was stored
    /// before has its cache line.
    #[inline]
    pub fn push(&self, cx: Context<'_>, block: u64) {
        let _locked = (!cx.exclusive).then(|| self.lock.lock());
        // SAFETY: the invariant.
        unsafe { &mut *self.list.get() }.push(block);
    }

    /// Calls `work` with the list, with the gate closed or in exclusive mode.
    #[inline]
    pub fn with<R>(&self, cx: Context<'_>, work: impl FnOnce(&mut Vec<u64>) -> R) -> R {
        let _locked = (!cx.exclusive).then(|| self.lock.lock());
        // SAFETY: the invariant.
        work(unsafe { &mut *self.list.get() })
    }
}
