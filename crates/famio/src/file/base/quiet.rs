//! Whether nobody has written for a while.

use crate::index::Shared;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

/// A file that was not written for this long gets its checkpoint, without haste.
pub(in crate::file) const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Whether the file was not written for a while.
pub(in crate::file) fn is_quiet(shared: &Shared) -> bool {
    let test_hooks = crate::pmem::TestHooks::current();
    if test_hooks.still {
        return !test_hooks.busy;
    }
    let now = crate::sys::coarse_now();
    let [seconds, nanos] = shared.modified.each_ref().map(|word| word.load(Ordering::Relaxed) as i64);
    let since = (now.tv_sec - seconds).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec - nanos);
    since >= IDLE.tv_sec * 1_000_000_000 + IDLE.tv_nsec
}
