//! Counts of what an operator wants to hear of, though no file has memory for it any more: in memory of this process, or of its
//! run, where there is one (`posix::run_record`).

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Counts since the process, or the run, began.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Events {
    /// Files that were handed back to the kernel.
    pub demotions: AtomicU64,
    /// Files that could not be opened: file and journal contradict each other.
    pub conflicts: AtomicU64,
}

static OWN: Events = Events { demotions: AtomicU64::new(0), conflicts: AtomicU64::new(0) };
/// Those of the run; null: of this process.
static SHARED: AtomicPtr<Events> = AtomicPtr::new(core::ptr::null_mut());

/// They are counted there from now on.
pub(crate) fn share(events: &'static Events) {
    SHARED.store(core::ptr::from_ref(events).cast_mut(), Ordering::Release);
}

/// The counts that this process adds to.
pub(crate) fn events() -> &'static Events {
    // SAFETY: null, or put there by `share`, from a reference for good; atomic words only.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }.unwrap_or(&OWN)
}

/// A file was handed back to the kernel.
pub(crate) fn count_demotion() {
    events().demotions.fetch_add(1, Ordering::Relaxed);
}

/// A file can't be opened: file and journal contradict each other.
pub(crate) fn count_conflict() {
    events().conflicts.fetch_add(1, Ordering::Relaxed);
}
