//! The signals of faults, which the guard of copies (`map/guard/`) handles in front of the program.

use super::ThreadBlock;
use crate::kernel::{signal_bit, unblock_signals};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The signals.
pub(crate) const FAULTS: [i32; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// The address of the guard's handler, once it is installed; else 0.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// The guard installs its handler.
pub(crate) fn is_handled_by(handler: usize) {
    HANDLER.store(handler, Ordering::Relaxed);
}

/// Its address, or 0.
pub(super) fn handler() -> usize {
    HANDLER.load(Ordering::Relaxed)
}

/// Unblocks these signals in this thread, once: many libraries start their threads with every signal blocked, and a
/// fault whose signal is blocked ends the process without calling any handler. Before a thread's first guarded copy,
/// and before it first uses shared memory that zeros may stand in for. A thread that blocks them again later has to
/// live with that.
pub(crate) fn let_through(thread: &ThreadBlock) {
    if thread.guard_ready.get() == 0 {
        unblock(thread);
    }
}

#[cold]
fn unblock(thread: &ThreadBlock) {
    unblock_signals(FAULTS.into_iter().map(signal_bit).sum());
    thread.guard_ready.set(1);
}
