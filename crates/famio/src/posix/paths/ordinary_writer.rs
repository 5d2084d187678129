//! The open of a file that is ordinary in this process. If that is for writing, another process may have a session of
//! it, which would overwrite what this one writes: it sees the note that a demoted file gets, but only when it begins a
//! session. The description is marked: the program after an `exec` would otherwise take the file for an atomic one, and
//! write it past a log by this description.

use crate::file::AtomicFile;
use crate::journal::mark;
use crate::posix::call::lock::not_reentered;
use crate::posix::call::look::{look, stat_at};
use crate::posix::descriptors::description::KEPT;
use crate::posix::descriptors::{description_mark, inherit, table};
use crate::posix::life::process;
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::{ordinary, path_text};
use crate::posix::{Ret, fail, raw};
use core::ffi::{CStr, c_char};
use std::os::fd::{AsFd, RawFd};

const IN_SESSION: &str = "open for writing refused (EBUSY): this process uses it as an ordinary file, and another process has changed it as an atomic file, or was killed then; close it there, or run famio recover";

/// Opens a path by `open`, which gets the flags. If it leads to such a file, that is noted; or it is `EBUSY`, before the
/// file is opened: `O_TRUNC` would have cut it, and closing it again would drop the program's locks.
///
/// # Safety
/// As [`openat`](super::open::openat).
pub(super) unsafe fn open(dirfd: RawFd, path: *const c_char, flags: i32, open: impl FnOnce(i32) -> Ret) -> Ret {
    // SAFETY: the caller's promise.
    if !writes(flags) || !may_be_one(flags) || !unsafe { is_ordinary(dirfd, path, flags) } {
        return opened(open(flags), flags); // it may have become one
    }
    // SAFETY: the kernel has just read the path to its end.
    if unsafe { is_in_session(dirfd, path, flags) } {
        // SAFETY: as above.
        say(unsafe { CStr::from_ptr(path) }, IN_SESSION);
        return fail(libc::EBUSY);
    }
    let fd = opened(open(flags & !libc::O_TRUNC), flags);
    if fd < 0 || flags & libc::O_TRUNC == 0 {
        return fd;
    }
    // SAFETY: no memory is passed.
    let cut = unsafe { raw!(SYS_ftruncate, fd, 0) };
    if cut < 0 {
        crate::posix::close(fd as RawFd);
        return cut;
    }
    fd
}

fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

fn may_be_one(flags: i32) -> bool {
    let makes = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    flags & libc::O_PATH == 0 && !makes && ordinary::any() && !in_vfork_child() && not_reentered().is_ok()
}

/// # Safety
/// As [`open`].
unsafe fn is_ordinary(dirfd: RawFd, path: *const c_char, flags: i32) -> bool {
    let nofollow = if flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    // SAFETY: the kernel checks the path; afterwards it is good.
    unsafe {
        stat_at(dirfd, path, nofollow)
            .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG && ordinary::is(dirfd, path, &stat, true))
    }
}

/// Whether another process has a session, or was killed in one, and this one does not write the file already.
///
/// # Safety
/// The path is good.
unsafe fn is_in_session(dirfd: RawFd, path: *const c_char, flags: i32) -> bool {
    // SAFETY: the caller's promise.
    let Some(looked) = (unsafe { look(dirfd, path, flags & libc::O_NOFOLLOW != 0) }) else { return false };
    let key = crate::sys::identity(looked.as_fd());
    let writes = |key: (u64, u64)| AtomicFile::find(key.0, key.1).is_some_and(|file| file.is_open_for_writing());
    let access = if flags & libc::O_ACCMODE == libc::O_RDWR { libc::R_OK | libc::W_OK } else { libc::W_OK };
    // SAFETY: as above.
    if unsafe { raw!(SYS_faccessat2, dirfd, path, access, libc::AT_EACCESS) } < 0 {
        return false; // the kernel says why it can't be opened
    }
    // Without the right to look, or without /proc, the descriptor tells later.
    !key.is_ok_and(writes) && matches!(mark::of_looked_at(looked.as_fd()), Ok(Some(_)))
}

/// After an `open` with `flags` that returned `fd`, or an error: marks the description, and notes if this process
/// writes the file. If another process has begun a session meanwhile, closes the descriptor again and returns `EBUSY`.
pub(super) fn opened(fd: Ret, flags: i32) -> Ret {
    if fd < 0 || !may_be_one(flags) || table::is_managed(fd as RawFd) { fd } else { mark_or_note(fd as RawFd, flags) }
}

#[cold]
fn mark_or_note(fd: RawFd, flags: i32) -> Ret {
    if !inherit::is_ordinary(fd) {
        return fd as Ret;
    }
    description_mark::mark_demoted(fd, flags);
    if writes(flags) { note(fd, flags) } else { fd as Ret }
}

/// Makes the file behind `fd` ordinary in this process, and notes that it writes it. `EBUSY`: another process has
/// begun a session; then `fd` is closed.
pub(super) fn note(fd: RawFd, flags: i32) -> Ret {
    let Some(config) = process::config() else { return fd as Ret };
    let access = flags & libc::O_ACCMODE;
    let path = path_text::path_of(fd, c"?");
    match inherit::install_demoted(config, fd, path.clone(), access | flags & KEPT, access) {
        Ok(file) if !file.may_be_written_demoted(fd) => {
            crate::posix::close(fd);
            say(&path, IN_SESSION);
            fail(libc::EBUSY)
        }
        // It cannot be noted; it is written like any ordinary file.
        _ => fd as Ret,
    }
}
