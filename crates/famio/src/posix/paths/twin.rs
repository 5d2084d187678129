//! A second `open` of a file that is open here and has the lease, or grows, by duplicating an existing descriptor: an
//! `open` by the kernel would end either. The kernel's checks are repeated here; if they cannot be, the kernel opens
//! the file.

use super::open_plain::LARGE;
use crate::file::AtomicFile;
use crate::posix::call::look::{look, stat_of};
use crate::posix::descriptors::attach::{O_ATOMIC, twins_may_be};
use crate::posix::descriptors::description::{EMULATED, Handle, KEPT};
use crate::posix::descriptors::table;
use crate::posix::selection::path_text;
use crate::posix::{Ret, raw, with_lowest};
use crate::sys::identity;
use crate::thread::Held;
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Flags that the library emulates, or that matter only during `open`.
const KNOWN: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOCTTY
    | LARGE
    | EMULATED
    | O_ATOMIC;

/// Opens `path`, which leads to `file`, as a twin. `kernel_access`: the access mode with which the kernel would open
/// it. `None`: the kernel has to open it.
///
/// # Safety
/// `path` is a C string.
pub(in crate::posix) unsafe fn open(
    file: &Arc<AtomicFile>,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    kernel_access: i32,
) -> Option<(RawFd, Handle)> {
    if !twins_may_be() || flags & !KNOWN != 0 || kernel_access != libc::O_RDWR || file.is_demoted() {
        return None;
    }
    // SAFETY: the caller's promise.
    let look = unsafe { look(dirfd, path, flags & libc::O_NOFOLLOW != 0) }?;
    if identity(look.as_fd()).ok() != Some(file.key()) {
        return None;
    }
    // In folders where other users may create files, `O_CREAT` does not open their files (`fs.protected_regular`).
    let may_create = || stat_of(look.as_raw_fd()).is_ok_and(|stat| stat.st_uid == crate::sys::users::effective());
    if flags & libc::O_CREAT != 0 && !may_create() {
        return None;
    }
    let least = if flags & O_ATOMIC != 0 { libc::STDERR_FILENO + 1 } else { 0 };
    let command = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let fd = with_lowest(|| {
        // SAFETY: no memory is passed.
        let duplicate = |base: BorrowedFd<'_>| unsafe { raw!(SYS_fcntl, base.as_raw_fd(), command, least) };
        file.open_twin(look.as_fd(), duplicate).map_or(-1, |fd| fd as Ret)
    });
    let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    if table::is_managed(fd) {
        // The base descriptor was closed unseen, so its table entry is stale. The kernel opens the file.
        table::forget(fd);
        let _ = file.remove_descriptor(fd); // its close went past the library: no call could report an error
        // SAFETY: the program has not seen it; locks on the file are in memory.
        unsafe { raw!(SYS_close, fd) };
        return None;
    }
    // One uninterrupted section for signal handlers.
    let _held = Held::of_process();
    // SAFETY: the kernel has read it.
    let path = path_text::path_of(fd, unsafe { CStr::from_ptr(path) });
    let handle = Handle::new(file.clone(), path, flags & (libc::O_ACCMODE | KEPT), kernel_access, Some(0));
    table::install(fd, handle.share());
    Some((fd, handle))
}
