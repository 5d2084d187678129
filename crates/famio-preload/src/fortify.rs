//! The checked forms that `_FORTIFY_SOURCE` puts in place of the plain ones.

use core::ffi::c_char;
use famio::posix::{self, Ret};

unsafe extern "C" {
    /// libc's: says "buffer overflow detected", and aborts.
    fn __chk_fail() -> !;
}

/// `open` without a mode.
///
/// # Safety
/// As `openat`.
pub unsafe fn open(dirfd: i32, path: *const c_char, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
            __chk_fail();
        }
        posix::openat(dirfd, path, flags, 0)
    }
}

/// `read` into a buffer of known size.
///
/// # Safety
/// As `read`.
pub unsafe fn read(fd: i32, buf: *mut u8, count: usize, size: usize) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        if count > size {
            __chk_fail();
        }
        posix::read(fd, buf, count)
    }
}

/// `pread` into a buffer of known size.
///
/// # Safety
/// As `pread`.
pub unsafe fn pread(fd: i32, buf: *mut u8, count: usize, offset: i64, size: usize) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        if count > size {
            __chk_fail();
        }
        posix::pread(fd, buf, count, offset)
    }
}
