//! `membarrier(2)`: a full barrier on every running thread of the process, so that hot paths need none.

use super::internal::undisturbed;
use crate::kernel::{check, syscall};

const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

fn call(command: usize) -> bool {
    // SAFETY: touches no memory.
    check(unsafe { syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }).is_ok()
}

/// Registers the process for it. Returns whether it can be used.
pub(crate) fn register() -> bool {
    static DONE: undisturbed::Number = undisturbed::Number::new();
    DONE.get(|| call(REGISTER_PRIVATE_EXPEDITED).into()) != 0
}

/// Returns true if every thread of the process has passed a full barrier during the call. False if the kernel
/// refuses: a sandbox may forbid the call at any time.
#[must_use]
pub(crate) fn on_all_threads() -> bool {
    call(PRIVATE_EXPEDITED)
}
