//! Opening a selected path as an atomic file: by a descriptor of the kernel's, attached to the file.

use super::open_plain;
use super::open_plain::open_without_links;
use super::{twin, unreadable};
use crate::error::{Error, Result};
use crate::file::{AtomicFile, OpenedBy};
use crate::posix::call::lock;
use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::descriptors::attach::O_ATOMIC;
use crate::posix::descriptors::attach::attach_as;
use crate::posix::descriptors::description::{EMULATED, Handle, KEPT};
use crate::posix::descriptors::table;
use crate::posix::run::run_notes;
use crate::posix::runtime::say::{Once, say, say_error, say_once};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::path_text;
use crate::posix::{Ret, fail, raw, with_lowest};
use crate::sys::internal::has_waited;
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// How often a path is opened again whose file was replaced or removed before it was attached.
pub(super) const OPENS: u32 = 16;

/// The access mode and the flags with which an atomic file is opened by the kernel, for the flags that the program
/// asks for.
pub(in crate::posix) fn for_kernel(flags: i32) -> (i32, i32) {
    let asked = flags & libc::O_ACCMODE;
    // Writing needs read access (a granule is filled from the file), and cutting needs both.
    let access = if asked == libc::O_WRONLY || flags & libc::O_TRUNC != 0 { libc::O_RDWR } else { asked };
    (access, flags & !(libc::O_ACCMODE | libc::O_TRUNC | EMULATED | O_ATOMIC) | access)
}

/// After an `open` that failed: if only the wider access that the library needs was refused, says so.
pub(in crate::posix) fn say_write_only(error: Ret, flags: i32, access: i32, dirfd: RawFd, path: &CStr) {
    // Without the right to write, the program's own request is what was refused.
    // SAFETY: the path is a C string.
    let may_write =
        || unsafe { raw!(SYS_faccessat2, dirfd, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) } != fail(libc::EACCES);
    if error == fail(libc::EACCES) && access != flags & libc::O_ACCMODE && may_write() && say_once(Once::WriteOnly) {
        say(path, "refused: an atomic file is written with read access too; give the user read permission");
    }
}

/// A file that may only be appended to (`chattr +a`) is opened for that and left to the kernel, since it cannot have
/// a mark.
///
/// # Safety
/// `path` is a C string.
unsafe fn open_append_only(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // SAFETY: the caller's promise.
    let fd = table::fresh(with_lowest(|| unsafe { raw!(SYS_openat, dirfd, path, flags, mode) }));
    if fd >= 0 {
        let what = "it may only be appended to (chattr +a), and can't be protected: it is an ordinary file";
        // SAFETY: the kernel has just read it.
        say(unsafe { CStr::from_ptr(path) }, what);
    }
    fd
}

/// `opened`: a descriptor that the kernel has opened with the flags of [`for_kernel`], through no link.
///
/// # Safety
/// `path` is a C string.
pub(in crate::posix) unsafe fn open_atomic(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    mode: u32,
    opened: Option<RawFd>,
) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { try_open_atomic(config, dirfd, path, flags, mode, opened, OPENS) }
}

/// As [`open_atomic`], of a descriptor whose path would not be opened again in the same way.
///
/// # Safety
/// As there.
pub(super) unsafe fn make_atomic(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    mode: u32,
    opened: RawFd,
) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { try_open_atomic(config, dirfd, path, flags, mode, Some(opened), 0) }
}

/// `again`: how often the path may be opened once more.
///
/// # Safety
/// As [`open_atomic`].
unsafe fn try_open_atomic(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    mode: u32,
    opened: Option<RawFd>,
    again: u32,
) -> Ret {
    // SAFETY: the caller's promise.
    let said = unsafe { CStr::from_ptr(path) };
    let reentered = lock::not_reentered().is_err();
    let in_vfork_child = in_vfork_child();
    if (reentered || in_vfork_child)
        && let Some(fd) = opened
    {
        // SAFETY: the descriptor is ours, and no other code has seen it.
        unsafe { raw!(SYS_close, fd) };
    }
    if reentered {
        return fail(libc::EDEADLK);
    }
    if in_vfork_child {
        say(said, "refused (EBUSY): an atomic file cannot be opened between vfork(2) and exec(3)");
        return fail(libc::EBUSY);
    }
    let (kernel_access, kernel_flags) = for_kernel(flags);
    if opened.is_none()
        && table::any()
        // SAFETY: the path is good.
        && let Ok(stat) = unsafe { stat_at(dirfd, path, 0) }
        && let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
    {
        // The file is open here already, and this process's lease would make the call wait. If `twin::open` cannot
        // open it, the kernel breaks the lease.
        // SAFETY: the path is good.
        if let Some((fd, handle)) = unsafe { twin::open(&file, dirfd, path, flags, kernel_access) } {
            return finish(Ok(handle), fd, dirfd, said, flags);
        }
        // An existing file would not be opened.
        if flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL {
            let _ = file.give_up_lease(); // if it fails, the kernel breaks the lease, for which the call waits
        }
    }
    let mut is_real = opened.is_some();
    let fd = match opened {
        Some(fd) => fd as Ret,
        None => {
            let mut open = || {
                with_lowest(|| {
                    // SAFETY: the caller's promise.
                    let through_none = unsafe { open_without_links(dirfd, path, kernel_flags, mode) };
                    is_real = through_none >= 0;
                    if is_real || open_plain::is_final(through_none) {
                        return through_none;
                    }
                    // SAFETY: as above.
                    unsafe { raw!(SYS_openat, dirfd, path, kernel_flags, mode) }
                })
            };
            match open() {
                full if full == fail(libc::EMFILE) && has_waited() => open(),
                made => made,
            }
        }
    };
    let is_unreadable = fd == fail(libc::EACCES) && kernel_access != flags & libc::O_ACCMODE && flags & O_ATOMIC == 0;
    let fd = match is_unreadable {
        false => fd,
        // SAFETY: the caller's promise.
        true => match unsafe { unreadable::open(config, dirfd, path, flags, mode, kernel_flags) } {
            unreadable::Opened::Both(fd) => fd as Ret,
            unreadable::Opened::Kernels(fd) if fd >= 0 => return fd,
            unreadable::Opened::Kernels(error) => error,
        },
    };
    if fd < 0 {
        say_write_only(fd, flags, kernel_access, dirfd, said);
        let may_be_kernels = || flags & O_ATOMIC == 0 && config.may_be_kernels(said);
        if fd == fail(libc::EPERM) && flags & libc::O_APPEND != 0 && may_be_kernels() {
            // SAFETY: the caller's promise.
            return unsafe { open_append_only(dirfd, path, flags, mode) };
        }
        return fd;
    }
    let fd = if flags & O_ATOMIC != 0 { above_standard(fd as RawFd, flags) } else { fd };
    if fd < 0 {
        return fd;
    }
    let fd = fd as RawFd;
    if table::is_managed(fd) {
        table::forget(fd);
    }
    let flags_kept = flags & (libc::O_ACCMODE | KEPT | O_ATOMIC);
    let real = path_text::path_without_links(dirfd, said).filter(|_| is_real);
    let opens_again = again > 0 && flags & libc::O_EXCL == 0;
    // SAFETY: the path is good.
    let leads_elsewhere = |key| opens_again && unsafe { leads_to_other_file(dirfd, path, key) };
    let name = OpenedBy { is_real: real.is_some(), leads_elsewhere: &leads_elsewhere };
    let path_now = real.unwrap_or_else(|| path_text::path_of(fd, said));
    let attached = attach_as(config, fd, path_now, Some(name), flags_kept, kernel_access, Some(0));
    if opens_again && attached.as_ref().is_err_and(Error::is_nameless) {
        // SAFETY: the descriptor is ours, and no other code has seen it; the path is good.
        return unsafe {
            raw!(SYS_close, fd);
            try_open_atomic(config, dirfd, path, flags, mode, None, again - 1)
        };
    }
    finish(attached, fd, dirfd, said, flags)
}

/// Whether a path leads to a regular file, which is not this one.
///
/// # Safety
/// `path` is a C string.
pub(in crate::posix) unsafe fn leads_to_other_file(dirfd: RawFd, path: *const c_char, key: (u64, u64)) -> bool {
    // SAFETY: the caller's promise.
    let found = unsafe { stat_at(dirfd, path, 0) };
    found.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG && (stat.st_dev, stat.st_ino) != key)
}

/// The end of [`open_atomic`]: `fd` is open, and the file's if attaching succeeded.
fn finish(attached: Result<Handle>, fd: RawFd, dirfd: RawFd, said: &CStr, flags: i32) -> Ret {
    let cut = flags & libc::O_TRUNC != 0;
    if let Ok(handle) = &attached {
        run_notes::opened(handle.file().key(), dirfd, said, handle.path(), flags);
    }
    match attached {
        Ok(handle) if !cut || has_nothing_to_cut(fd, handle.file()) => fd as Ret,
        Ok(handle) => match handle.file().set_size(0).and_then(|()| handle.file().sync_if_write_atomic()) {
            Ok(()) => fd as Ret,
            Err(error) => {
                crate::posix::close(fd);
                refused(said, &error)
            }
        },
        Err(error) => {
            // SAFETY: the descriptor is ours, and no other code has seen it.
            unsafe { raw!(SYS_close, fd) };
            refused(said, &error)
        }
    }
}

/// Whether cutting the file would change nothing: it has neither bytes nor anything that even a cut of no bytes
/// removes.
fn has_nothing_to_cut(fd: RawFd, file: &AtomicFile) -> bool {
    let Ok(stat) = stat_of(fd) else { return false };
    // The kernel's file may be empty while other processes have bytes that are not committed.
    let has_bytes = stat.st_size != 0 && file.is_unchanged_since_open();
    !has_bytes && file.size() == 0 && stat.st_mode & (libc::S_ISUID | libc::S_ISGID) == 0
}

pub(super) fn refused(path: &CStr, error: &Error) -> Ret {
    say_error(path, error);
    fail(error.errno())
}

/// Moves a new descriptor away from the numbers of the standard streams, which libc uses directly.
pub(super) fn above_standard(fd: RawFd, flags: i32) -> Ret {
    if fd > libc::STDERR_FILENO {
        return fd as Ret;
    }
    let command = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: a descriptor that no other thread has seen.
    unsafe {
        let moved = raw!(SYS_fcntl, fd, command, libc::STDERR_FILENO + 1);
        raw!(SYS_close, fd);
        moved
    }
}
