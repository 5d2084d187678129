//! What a path or a descriptor leads to, by the kernel's words alone.

use crate::posix::raw;
use core::ffi::c_char;
use libc::stat as Stat;
use std::os::fd::RawFd;

/// An `O_PATH` descriptor of what a path leads to, by the kernel alone; with `nofollow`, of the link itself.
///
/// # Safety
/// The path is a C string.
pub(in crate::posix) unsafe fn look(
    dirfd: i32,
    path: *const core::ffi::c_char,
    nofollow: bool,
) -> Option<crate::sys::InternalFd> {
    use core::ffi::CStr;
    use rustix::fs::{CWD, Mode, OFlags};
    use std::os::fd::BorrowedFd;
    let flags = OFlags::PATH | if nofollow { OFlags::NOFOLLOW } else { OFlags::empty() };
    // SAFETY: `borrow_raw` is not given -1, which is valid with an absolute path; the rest is the caller's promise.
    let (at, path) = unsafe { (if dirfd == -1 { CWD } else { BorrowedFd::borrow_raw(dirfd) }, CStr::from_ptr(path)) };
    crate::sys::openat(at, path, flags, Mode::empty()).ok()
}

/// # Safety
/// `path` is a C string.
pub(in crate::posix) unsafe fn stat_at(
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
) -> core::result::Result<Stat, i32> {
    // SAFETY: all-zero bytes are a valid stat; the kernel fills it in.
    unsafe {
        let mut stat: Stat = core::mem::zeroed();
        match raw!(SYS_newfstatat, dirfd, path, &raw mut stat, flags) {
            0 => Ok(stat),
            error => Err(-error as i32),
        }
    }
}

/// As [`stat_at`], of an open file.
pub(in crate::posix) fn stat_of(fd: RawFd) -> core::result::Result<Stat, i32> {
    // SAFETY: all-zero bytes are a valid stat; the kernel fills it in.
    unsafe {
        let mut stat: Stat = core::mem::zeroed();
        match raw!(SYS_fstat, fd, &raw mut stat) {
            0 => Ok(stat),
            error => Err(-error as i32),
        }
    }
}
