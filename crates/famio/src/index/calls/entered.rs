//! The threads inside the gate, counted by process, so that a dead process's threads can be struck, and within one by
//! group: a word that all threads change would go from processor to processor twice in each write.

use crate::sync::{AtomicU32, Ordering};
use crate::thread;

/// Processes that may have one file open at a time.
pub(crate) const SLOTS: usize = 64;

/// Groups of threads. Two threads in one are only slower.
const GROUPS: usize = 4;

/// For each group the counts of all processes, by their slot. Processes do not write at the same time, threads of one
/// do.
#[repr(C, align(64))]
pub(crate) struct Entered([[AtomicU32; SLOTS]; GROUPS]);

impl Default for Entered {
    fn default() -> Self {
        Self(core::array::from_fn(|_| core::array::from_fn(|_| AtomicU32::new(0))))
    }
}

impl Entered {
    /// The word in which this thread of the process in slot `me` is counted.
    #[inline]
    pub(super) fn mine(&self, me: u32) -> &AtomicU32 {
        &self.0[thread::current().group() % GROUPS][me as usize]
    }

    /// The words of the process in slot `place`.
    #[inline]
    pub(super) fn of(&self, place: u32) -> impl Iterator<Item = &AtomicU32> {
        self.0.iter().filter_map(move |all| all.get(place as usize))
    }

    /// Whether a thread of the process in slot `place` is inside.
    pub(super) fn has(&self, place: u32) -> bool {
        self.of(place).any(|inside| inside.load(Ordering::SeqCst) != 0)
    }

    /// No thread of the process in slot `place` is inside any more.
    pub(super) fn remove_dead(&self, place: u32) {
        self.of(place).for_each(|inside| inside.store(0, Ordering::SeqCst));
    }
}
