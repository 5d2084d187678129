//! `open` of what most programs open most: a file that no link leads to, and that is not cut. It is opened first and looked at
//! then, which saves the system calls by which the other way finds out beforehand.

use super::{Ret, fail, process, raw, table};
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// `openat` sets it for programs of 64 bits, `openat2` does not.
#[cfg(target_arch = "x86_64")]
const LARGE: i32 = 0o100_000;
#[cfg(not(target_arch = "x86_64"))]
const LARGE: i32 = 0o400_000;

/// Flags with which an atomic file is opened, or made, just so, and that `openat2` knows.
const PLAIN: i32 = libc::O_RDWR
    | libc::O_CREAT
    | libc::O_NONBLOCK
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_NOCTTY
    | LARGE;

/// What came of it.
pub(super) enum Tried {
    /// The call's result.
    Done(Ret),
    /// It is open, and may be meant. It must not be closed without need: the process would lose its locks on the file.
    MayBeMeant(RawFd),
    /// It can't be told like this.
    Unknown,
}

/// Opens the path, unless that may do more to it.
///
/// # Safety
/// As `openat`.
pub(super) unsafe fn try_open(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Tried {
    // A file that is open here has other names, and a lease of ours would keep the call waiting.
    let Some(config) = process::config().filter(|_| flags & !PLAIN == 0 && !table::any()) else {
        return Tried::Unknown;
    };
    // What `openat` ignores is an error of `openat2`.
    let mode = if flags & libc::O_CREAT != 0 { mode & 0o7777 } else { 0 };
    let how = [u64::from((flags | LARGE) as u32), u64::from(mode), libc::RESOLVE_NO_SYMLINKS];
    // SAFETY: the kernel checks the path; `how` is as long as is said.
    let fd = unsafe { raw!(SYS_openat2, dirfd, path, &raw const how, size_of_val(&how)) };
    if fd == fail(libc::ENOENT) || fd == fail(libc::EINTR) {
        return Tried::Done(fd);
    }
    if fd < 0 {
        // A link above all, or a kernel or a filter without this call.
        return Tried::Unknown;
    }
    table::fresh(fd);
    // SAFETY: the kernel has just read it to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if config.globs.may_match(bytes) { Tried::MayBeMeant(fd as RawFd) } else { Tried::Done(fd) }
}
