//! Counts of events that no file's memory has any more, for operators: in memory of this process or, if it belongs to
//! a run, of the run (`posix::run::run_record`).

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Counts since the process, or the run, began.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Events {
    /// Files that were demoted.
    pub demotions: AtomicU64,
    /// Files that could not be opened: file and journal contradict each other.
    pub conflicts: AtomicU64,
}

static OWN: Events = Events { demotions: AtomicU64::new(0), conflicts: AtomicU64::new(0) };
/// The run's; null: there is no run.
static SHARED: AtomicPtr<Events> = AtomicPtr::new(core::ptr::null_mut());

/// From now on events are counted in `events`.
pub(crate) fn share(events: &'static Events) {
    SHARED.store(core::ptr::from_ref(events).cast_mut(), Ordering::Release);
}

/// The counts that this process adds to.
pub(crate) fn events() -> &'static Events {
    // SAFETY: null, or stored by `share` from a `'static` reference; atomic words only.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }.unwrap_or(&OWN)
}

/// Counts a demoted file.
pub(crate) fn count_demotion() {
    events().demotions.fetch_add(1, Ordering::Relaxed);
}

/// Counts a file that cannot be opened: file and journal contradict each other.
pub(crate) fn count_conflict() {
    events().conflicts.fetch_add(1, Ordering::Relaxed);
}
