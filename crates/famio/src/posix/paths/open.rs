//! The open family: opening a selected path gives an atomic file.

use super::open_atomic::{for_kernel, open_atomic, refused};
use super::open_plain;
use super::open_plain::{Opened, Tried, open_without_links, try_open};
use super::ordinary_writer;
use super::selected::{asks_for_data, is_open, may_match, wanted, wanted_now};
use crate::error::Error;
use crate::file::AtomicFile;
use crate::map::guard;
use crate::posix::call::lock;
use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::call::user;
use crate::posix::descriptors::attach::O_ATOMIC;
use crate::posix::descriptors::attach::attach;
use crate::posix::descriptors::description::KEPT;
use crate::posix::descriptors::{demote, inherit, table};
use crate::posix::life::process;
use crate::posix::run::run_notes;
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::{ordinary, path_text};
use crate::posix::{Ret, fail, raw, with_lowest};
use crate::sys::internal::{self, has_waited};
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};

/// `openat(2)`, and with `AT_FDCWD` `open` and `creat`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn openat(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // SAFETY: the caller's promise.
    match unsafe { try_open(dirfd, path, flags, mode) } {
        Ok(fd) => fd as Ret,
        // SAFETY: as above.
        Err(tried) => unsafe { open_selected(dirfd, path, flags, mode, tried) },
    }
}

/// [`openat`] after [`try_open`]: for paths that may be selected, or must be examined before they are opened.
///
/// # Safety
/// As [`openat`].
pub unsafe fn open_selected(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32, tried: Tried) -> Ret {
    // SAFETY: the caller's promise.
    let opened = match unsafe { open_plain::go_on(dirfd, path, flags, mode, tried) } {
        Opened::Done(result) => return result,
        Opened::MayBeSelected(fd) => Some(fd),
        Opened::Unknown => None,
    };
    if flags & O_ATOMIC != 0 {
        // SAFETY: the caller's promise.
        return unsafe { open_asked(dirfd, path, flags, mode) };
    }
    if opened.is_none()
        // SAFETY: the caller's promise.
        && let Some(result) = unsafe { make_selected(dirfd, path, flags, mode) }
    {
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let config = match opened {
            Some(fd) => wanted_now(fd, dirfd, path),
            None => wanted(dirfd, path, flags, true),
        };
        match (config, opened) {
            (Some(config), _) => demote::unless_standard(open_atomic(config, dirfd, path, flags, mode, opened)),
            (None, Some(fd)) => ordinary_writer::opened(fd as Ret, flags),
            (None, None) => ordinary_writer::open(dirfd, path, flags, |flags| open_other(dirfd, path, flags, mode)),
        }
    }
}

/// Creates a selected file for a program that expects it not to exist: the state of a new file is known without
/// further calls. `None`: nothing was done, and the file is to be opened like any other.
///
/// # Safety
/// As [`openat`].
unsafe fn make_selected(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Option<Ret> {
    let is_for_new = flags & libc::O_CREAT != 0 && flags & (libc::O_EXCL | libc::O_TRUNC) != 0;
    if !is_for_new || flags & libc::O_DIRECTORY != 0 || !asks_for_data(flags) || !guard::is_installed() {
        return None;
    }
    let config = process::config()?;
    // SAFETY: the caller's promise.
    let said = unsafe { user::path(path) }.ok()?;
    if !config.globs.matches(dirfd, said.to_bytes(), false) || lock::not_reentered().is_err() || in_vfork_child() {
        return None;
    }
    let (_, kernel_flags) = for_kernel(flags);
    // As no vfork child, which was just asked.
    // SAFETY: the path is good.
    let fd = internal::with_lowest(|| unsafe { open_without_links(dirfd, path, kernel_flags | libc::O_EXCL, mode) });
    if fd < 0 {
        return open_plain::is_final(fd).then_some(fd);
    }
    // A new file has nothing to truncate.
    let flags = flags & !libc::O_TRUNC;
    // SAFETY: as above.
    let made = unsafe { open_atomic(config, dirfd, path, flags, mode, Some(fd as RawFd)) };
    Some(demote::unless_standard(made))
}

/// Opens a file that was not selected, or did not exist, when it was looked at. It may have got this name since.
///
/// # Safety
/// As [`openat`].
unsafe fn open_other(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // SAFETY: the caller's promise; after success the path is good, and the descriptor ours until it is returned.
    unsafe {
        let open = || table::fresh(with_lowest(|| raw!(SYS_openat, dirfd, path, flags, mode)));
        let mut fd = open();
        if fd == fail(libc::EMFILE) && has_waited() {
            fd = open();
        }
        let is_late = fd >= 0
            && asks_for_data(flags)
            && may_match(CStr::from_ptr(path).to_bytes())
            && wanted_now(fd as RawFd, dirfd, path).is_some()
            && lock::not_reentered().is_ok()
            && !in_vfork_child();
        if !is_late {
            if fd >= 0 && flags & libc::O_DSYNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
                // Each write will be a SYNC.
                run_notes::synced(fd as RawFd);
            }
            return fd;
        }
        if stat_of(fd as RawFd).is_ok_and(|stat| is_open(&stat)) {
            return adopt(fd as RawFd, path);
        }
        // The file is not open here, so this close cannot drop locks of the process.
        raw!(SYS_close, fd);
        openat(dirfd, path, flags & !libc::O_EXCL, mode)
    }
}

/// Opens a file that the program asks to be atomic.
///
/// # Safety
/// As [`openat`].
unsafe fn open_asked(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    if let Err(error) = crate::posix::life::by_program::start() {
        return refused(c"O_ATOMIC", &error);
    }
    let Some(config) = process::config() else { return fail(libc::ESHUTDOWN) };
    // SAFETY: the kernel checks the path, and returns another error only after reading it to its end.
    let found =
        unsafe { stat_at(dirfd, path, if flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 }) };
    if let Err(error) = found
        && (error != libc::ENOENT || flags & libc::O_CREAT == 0)
    {
        return fail(error);
    }
    // SAFETY: the path is good.
    let said = unsafe { CStr::from_ptr(path) };
    if !asks_for_data(flags) {
        return refused(said, &Error::with(libc::EINVAL, "an atomic file is opened to be read or written"));
    }
    if let Ok(stat) = found {
        if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return fail(libc::ELOOP);
        }
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return refused(said, &Error::with(libc::EINVAL, "not a regular file: it can't be atomic"));
        }
        // SAFETY: the path is good.
        if unsafe { ordinary::is(dirfd, path, &stat, true) } {
            let what = "it was demoted to an ordinary file before, and can't be atomic in this process";
            return refused(said, &Error::with(libc::EBUSY, what));
        }
    }
    // SAFETY: the path is good.
    unsafe { open_atomic(config, dirfd, path, flags, mode, None) }
}

/// Whether `open` of `path` with `flags` may give an atomic file.
///
/// # Safety
/// As [`openat`].
pub unsafe fn may_be_atomic(path: *const c_char, flags: i32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { wanted(libc::AT_FDCWD, path, flags, true) }.is_some()
}

/// After a call that made `fd` by its own means (`mkstemp`; without a path `open_by_handle_at`, `pidfd_getfd`): if the
/// file is selected, or open here as an atomic file, `fd` becomes one of its descriptors. If that is impossible, the
/// file is demoted.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn adopt(fd: RawFd, path: *const c_char) -> Ret {
    // SAFETY: the caller's promise.
    demote::unless_standard(unsafe { join(fd, path) })
}

/// A selected file that is not open here, by a descriptor that can't be an atomic file's: it is the kernel's.
#[cold]
fn leave_ordinary(config: &Config, fd: RawFd, flags: i32) -> Ret {
    const WHY: &str = "it can't be protected by a write-only or O_SYNC descriptor that was not opened by a name";
    let path = path_text::path_of(fd, c"?");
    if config.settings_of(&path).require {
        // SAFETY: the program never sees the descriptor.
        unsafe { raw!(SYS_close, fd) };
        return refused(&path, &Error::with(libc::EBUSY, WHY));
    }
    say(&path, &format!("{WHY}: ordinary"));
    ordinary_writer::note(fd, flags)
}

/// # Safety
/// As [`adopt`].
unsafe fn join(fd: RawFd, path: *const c_char) -> Ret {
    table::fresh(fd as isize);
    let Some(config) = process::config() else { return fd as Ret };
    if fd < 0 || lock::not_reentered().is_err() || in_vfork_child() {
        return fd as Ret;
    }
    // SAFETY: the caller's promise.
    let said = if path.is_null() { c"?" } else { unsafe { CStr::from_ptr(path) } };
    if path.is_null() {
        // Another process's description may have a mark.
        if let Err(error) = inherit::receive(config, fd) {
            return fail(error.errno());
        }
        if table::is_managed(fd) {
            return fd as Ret;
        }
    }
    let Ok(stat) = stat_of(fd) else { return fd as Ret };
    let open = AtomicFile::find(stat.st_dev, stat.st_ino);
    let selected = match path.is_null() {
        true => config.globs.matches_open(fd),
        false => config.globs.matches(libc::AT_FDCWD, said.to_bytes(), true),
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG
        || !(selected || open.is_some())
        // SAFETY: as above.
        || unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) }
    {
        return fd as Ret;
    }
    // SAFETY: no memory is passed.
    let (flags, position) = unsafe { (raw!(SYS_fcntl, fd, libc::F_GETFL), raw!(SYS_lseek, fd, 0, libc::SEEK_CUR)) };
    let flags = flags as i32;
    if flags & libc::O_PATH != 0 {
        return fd as Ret;
    }
    if flags & libc::O_ACCMODE == libc::O_WRONLY || flags & libc::O_DSYNC != 0 {
        if let Some(file) = open
            && let Err(error) = demote::demote_file(&file, &path_text::path_of(fd, said), fd, "a write-only descriptor")
        {
            // SAFETY: the program never sees the descriptor.
            unsafe { raw!(SYS_close, fd) };
            return refused(said, &error);
        }
        return leave_ordinary(config, fd, flags);
    }
    if flags & (libc::O_APPEND | libc::O_DIRECT) != 0 {
        // SAFETY: no memory is passed.
        unsafe { raw!(SYS_fcntl, fd, libc::F_SETFL, flags & !(libc::O_APPEND | libc::O_DIRECT)) };
    }
    if open.is_none() {
        // SAFETY: the descriptor is open, and the program has not seen it.
        crate::file::end_lease_of_others(unsafe { BorrowedFd::borrow_raw(fd) });
    }
    let access = flags & libc::O_ACCMODE;
    match attach(config, fd, said, flags & (libc::O_ACCMODE | KEPT), access, Some(position.max(0) as u64)) {
        Ok(handle) => {
            run_notes::opened(handle.file().key(), libc::AT_FDCWD, said, handle.path(), flags);
            fd as Ret
        }
        Err(error) => {
            // SAFETY: the program never sees the descriptor.
            unsafe { raw!(SYS_close, fd) };
            refused(said, &error)
        }
    }
}
