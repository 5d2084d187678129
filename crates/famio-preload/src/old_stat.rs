//! The stat functions of glibc before 2.33, which take a version of the structure.

use core::ffi::c_char;
use famio::posix::{self, Ret};

/// On 64-bit systems, all versions have always been the kernel's structure.
fn known(version: i32) -> bool {
    version == 0 || (cfg!(target_arch = "x86_64") && version == 1)
}

/// By path.
///
/// # Safety
/// As `fstatat`.
pub unsafe fn at(version: i32, dirfd: i32, path: *const c_char, shown: *mut libc::stat, flags: i32) -> Ret {
    if !known(version) {
        return -(libc::EINVAL as Ret);
    }
    // SAFETY: the caller's promise.
    unsafe { posix::fstatat(dirfd, path, shown, flags) }
}

/// By descriptor.
///
/// # Safety
/// As `fstat`.
pub unsafe fn of(version: i32, fd: i32, shown: *mut libc::stat) -> Ret {
    if !known(version) {
        return -(libc::EINVAL as Ret);
    }
    // SAFETY: the caller's promise.
    unsafe { posix::fstat(fd, shown) }
}
