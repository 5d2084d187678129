//! How many threads the library has, and whether the program has others.

use core::sync::atomic::{AtomicU32, Ordering};

/// The library's threads in this process.
static OURS: AtomicU32 = AtomicU32::new(0);

/// Starts that have begun, and starts that have ended.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicU32 = AtomicU32::new(0);

/// One of the library's threads, until it is dropped.
pub(super) struct Counted(());

impl Counted {
    /// Before it is started; [`is_started`] follows.
    pub fn begin() -> Self {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        OURS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OURS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The kernel has the thread, or it could not be started.
pub(super) fn is_started() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

/// Whether the library has threads, or is about to.
pub(super) fn has_ours() -> bool {
    OURS.load(Ordering::SeqCst) != 0
}

/// In a forked child: the threads are the parent's.
pub(crate) fn forget_parents() {
    OURS.store(0, Ordering::Relaxed);
    ENDED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether the program has no thread but the main one.
pub(crate) fn is_programs_only() -> bool {
    // A thread that is about to be started counts before the kernel has it, which would hide another one.
    let begun = BEGUN.load(Ordering::SeqCst);
    let starting = begun != ENDED.load(Ordering::SeqCst);
    // A folder's link count is two more than its subfolders.
    let threads = rustix::fs::stat(c"/proc/self/task").map_or(0, |stat| stat.st_nlink as u32);
    threads == OURS.load(Ordering::SeqCst) + 3 && !starting && begun == BEGUN.load(Ordering::SeqCst)
}
