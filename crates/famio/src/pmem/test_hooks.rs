//! Test hooks that replace parts of the machine for the thread that sets them: the medium, the domain of files, the
//! boot, and random values. With them, a crash simulator can have a file of any domain on a tmpfs, start a new boot
//! without a reboot, and get the same bytes for the same calls.

use super::{Domain, Medium};
use crate::settings::PolicyChoice;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module. `None` or false: no change.
#[doc(hidden)]
#[derive(Clone, Copy, Default)]
pub struct TestHooks {
    /// The medium of files that are attached or recovered.
    pub medium: Option<&'static dyn Medium>,
    /// The domain of every file and folder; nothing is mapped with `MAP_SYNC`.
    pub domain: Option<Domain>,
    /// The domain of journals, if different.
    pub journals: Option<Domain>,
    pub boot: Option<[u8; 16]>,
    /// New journals get the ids after this one.
    pub ids: Option<u64>,
    /// The medium is a recorder of a file system that keeps the order of changes of names and marks.
    pub keeps_order: bool,
    /// Sizes of the segments of new journals of records: the first, the second, the longest.
    pub segments: Option<[u64; 3]>,
    /// No moment counts as idle, though no checkpoint starts by itself: a write cache keeps as much as it may.
    pub busy: bool,
    /// Blocks that one round of a pass writes.
    pub blocks_a_round: Option<usize>,
    /// A write cache always logs blocks again rather than writing them back.
    pub logs_again: bool,
    /// Size up to which a file is mapped with a shadow.
    pub shadow_limit: Option<u64>,
    /// Shadows belong to one process, as without room in `/dev/shm`.
    pub own_shadow: bool,
    /// Maps are compared as a whole, as on a kernel that cannot tell which pages were stored to.
    pub unwatched: bool,
    /// Maps of large files are refused, as on a kernel that cannot tell which pages were copied.
    pub unscanned: bool,
    /// This thread counts as the program's only thread.
    pub alone: bool,
    /// No checkpoint starts by itself; every moment counts as idle, unless `busy`.
    pub still: bool,
    /// How long a writer waits for room in a pool with a size, in nanoseconds.
    pub patience: Option<u64>,
    /// The policy from the next SYNC on.
    pub policy: Option<PolicyChoice>,
    /// A journal of records that is taken over is taken for one whose header another process has stored.
    pub reads_again: bool,
    /// Called before the record of a commit of several files is written, with false; and when it is durable, before
    /// any of the files is committed, with true.
    pub joint: Option<fn(bool)>,
}

/// Whether any thread has test hooks. Programs never have, and pay one load.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    // A pointer only: libraries that are loaded at run time share little room for thread-local variables.
    static TEST_HOOKS: Cell<Option<&'static Cell<TestHooks>>> = const { Cell::new(None) };
}

impl TestHooks {
    /// Sets the hooks of this thread; the default removes them.
    pub fn enter(self) {
        ANY.store(true, Ordering::Relaxed);
        match TEST_HOOKS.get() {
            Some(hooks) => hooks.set(self),
            None => TEST_HOOKS.set(Some(Box::leak(Box::new(Cell::new(self))))),
        }
    }

    /// This thread's hooks.
    #[inline]
    pub fn current() -> TestHooks {
        if ANY.load(Ordering::Relaxed) {
            TEST_HOOKS.get().map(Cell::get).unwrap_or_default()
        } else {
            TestHooks::default()
        }
    }

    /// The next of the consecutive ids.
    pub(crate) fn next_id() -> Option<u64> {
        let test_hooks = Self::current();
        let id = test_hooks.ids?.wrapping_add(1);
        TestHooks { ids: Some(id), ..test_hooks }.enter();
        Some(id)
    }
}

/// For tests: the medium of this thread from now on, whatever is asked for. A recorder then records the operations on
/// files that the thread attaches or recovers meanwhile.
#[doc(hidden)]
pub fn stand_in(medium: Option<&'static dyn Medium>) {
    TestHooks { medium, ..TestHooks::current() }.enter();
}
