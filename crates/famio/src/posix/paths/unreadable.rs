//! Opening a file that the program may write but not read. An atomic file needs both, since granules are filled from
//! the file.

use super::selected::is_open;
use crate::journal::control;
use crate::journal::pools::access::as_owner;
use crate::posix::call::look::stat_at;
use crate::posix::descriptors::table;
use crate::posix::runtime::say::say;
use crate::posix::selection::config::Config;
use crate::posix::selection::traces::has_journal;
use crate::posix::{Ret, fail, raw, with_lowest};
use crate::sys::internal::open_again_low;
use core::ffi::c_char;
use rustix::fs::OFlags;
use std::ffi::CStr;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The outcome.
pub(in crate::posix) enum Opened {
    /// Open for reading and writing.
    Both(RawFd),
    /// The kernel's answer to the program's own request: an ordinary file, or an error.
    Kernels(Ret),
}

/// After `EACCES` for reading and writing with `kernel_flags`; the program asked with `flags`.
///
/// # Safety
/// As `openat`; the kernel has read the path.
#[cold]
pub(in crate::posix) unsafe fn open(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    mode: u32,
    kernel_flags: i32,
) -> Opened {
    let refused = Opened::Kernels(fail(libc::EACCES));
    // Closing a descriptor of a file that is open here would drop the program's record locks on it.
    // SAFETY: the caller's promise.
    if unsafe { stat_at(dirfd, path, 0) }.is_ok_and(|stat| is_open(&stat)) {
        return refused;
    }
    let made = libc::O_CREAT | libc::O_EXCL | libc::O_ACCMODE;
    // SAFETY: the caller's promise.
    let fd = with_lowest(|| unsafe { raw!(SYS_openat, dirfd, path, kernel_flags & !made | libc::O_WRONLY, 0) });
    if fd < 0 {
        return refused;
    }
    // SAFETY: a new descriptor, which no other code has seen.
    let blind = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    // The owner of a file may read it, even if its mode denies that to everybody.
    let flags_again = OFlags::from_bits_retain(((kernel_flags & !made) | libc::O_RDWR) as u32);
    if let Ok(both) = as_owner(blind.as_fd(), || open_again_low(blind.as_fd(), flags_again)) {
        return Opened::Both(both.into_raw_fd());
    }
    // The mark cannot be read; but no process is attached to the file, and no journal lies under its name.
    let is_ordinary = matches!(control::find(blind.as_fd(), config.settings.pool.as_deref()), Ok(None))
        && matches!(has_journal(blind.as_fd(), &config.settings), Ok(false));
    // SAFETY: the kernel has read the path.
    if !config.may_be_kernels(unsafe { CStr::from_ptr(path) }) || !is_ordinary {
        return refused;
    }
    drop(blind);
    // SAFETY: the caller's promise.
    let fd = table::fresh(with_lowest(|| unsafe { raw!(SYS_openat, dirfd, path, flags, mode) }));
    if fd >= 0 {
        const WHAT: &str = "it may be written, but not read, and can't be protected: it is an ordinary file";
        // SAFETY: the kernel has read it.
        say(unsafe { CStr::from_ptr(path) }, WHAT);
    }
    Opened::Kernels(fd)
}
