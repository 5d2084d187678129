//! Threads of our own, and where they may be started. A new thread takes memory from libc's allocator, which the caller of a call
//! of ours may have interrupted: POSIX lets a signal handler call `open`, `write`, `fsync` and the like. So a thread is started by
//! another of ours, or in a call that certainly is no handler's; what it is for waits, or is done by who needs it.
//!
//! Not in the library's constructor, though nothing could be interrupted there: every process of a run would have two threads
//! then, of which libc and the C++ library take notice (locks in `malloc` and `stdio`, locked reference counts), and
//! `unshare(CLONE_NEWUSER)` and `setns` refuse.

use super::{current, handlers};
use crate::sys::{ALL_BUT_LIBCS, block_signals, restore_signals};

/// Whether this thread may start another.
pub(crate) fn may_start() -> bool {
    current().ours.get() != 0 || !handlers::may_be_in_handler()
}

/// Starts a thread, on which no handler of the host's runs. Whether it did.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    if !may_start() {
        return false;
    }
    // No signal of the host's is to run its handler on a thread that the host does not know.
    let before = block_signals(ALL_BUT_LIBCS);
    let started = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(move || {
        current().ours.set(1);
        work();
    });
    restore_signals(before);
    started.is_ok()
}

/// How many threads may share a piece of work that the caller waits for, of `most`.
pub(crate) fn sharing(most: usize) -> usize {
    if most > 1 && may_start() { most } else { 1 }
}
