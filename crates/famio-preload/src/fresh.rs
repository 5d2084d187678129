//! Calls that return two descriptors.

use famio::posix::{Ret, table};

/// After such a call: drops stale table entries of both numbers.
///
/// # Safety
/// The kernel has just filled in `fds`, if `result` is 0.
pub unsafe fn pair(result: Ret, fds: *const [i32; 2]) -> Ret {
    if result == 0 && table::any() {
        // SAFETY: the caller's promise.
        for fd in unsafe { *fds } {
            table::fresh(fd as isize);
        }
    }
    result
}
