//! A second `open` of a file that is open here already, and has the lease or grows, by a duplicate of a descriptor that is there: an `open` by the
//! kernel would end either. What the kernel would ask for is asked for; where that can't be done the same way, the kernel opens it.

use super::open_plain::LARGE;
use crate::file::AtomicFile;
use crate::posix::call::look::{look, stat_of};
use crate::posix::descriptors::attach::{O_ATOMIC, twins_may_be};
use crate::posix::descriptors::description::{EMULATED, Handle, KEPT};
use crate::posix::descriptors::table;
use crate::posix::selection::policy;
use crate::posix::{Ret, raw, with_lowest};
use crate::sys::identity;
use crate::thread::Held;
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Flags that are the library's, or matter to the `open` alone.
const KNOWN: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOCTTY
    | LARGE
    | EMULATED
    | O_ATOMIC;

/// Opens `path`, which leads to `file`, so. `kernel_access`: with which access the kernel would open it. `None`: it is to open it.
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
    // In folders where others may make files, `O_CREAT` does not open theirs (`fs.protected_regular`).
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
        // Closed out of our sight before, perhaps by this file's name in the table: once more, by the kernel.
        table::forget(fd);
        let _ = file.remove_descriptor(fd);
        // SAFETY: the program has not seen it; locks on the file are in memory.
        unsafe { raw!(SYS_close, fd) };
        return None;
    }
    // In one piece, for handlers.
    let _held = Held::of_process();
    // SAFETY: the kernel has read it.
    let path = policy::path_of(fd, unsafe { CStr::from_ptr(path) });
    let handle = Handle::new(file.clone(), path, flags & (libc::O_ACCMODE | KEPT), kernel_access, Some(0));
    table::install(fd, handle.share());
    Some((fd, handle))
}
