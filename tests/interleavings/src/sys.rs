//! The one system call that the gate makes by number.

use crate::error::{Error, Result};
use crate::sync;

pub(crate) fn check(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::new(-result as i32))
}

/// # Safety
/// As in the library; nothing is touched.
pub(crate) unsafe fn syscall(number: libc::c_long, _args: [usize; 6]) -> isize {
    if number != libc::SYS_membarrier {
        return -(libc::ENOSYS as isize);
    }
    sync::membarrier();
    0
}
