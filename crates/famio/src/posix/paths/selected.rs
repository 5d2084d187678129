//! Whether an open file, or the file that a path leads to, is selected to be atomic.

use crate::file::AtomicFile;
use crate::posix::call::lock;
use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::descriptors::table;
use crate::posix::life::process;
use crate::posix::selection::config::Config;
use crate::posix::selection::ordinary;
use core::ffi::c_char;
use libc::stat as Stat;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// The configuration, if the path may lead to an atomic file and the flags ask for its data. `descriptor`: the call
/// will open one.
///
/// # Safety
/// As `openat`.
pub(in crate::posix) unsafe fn wanted(
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    descriptor: bool,
) -> Option<&'static Config> {
    let config = process::config().filter(|_| asks_for_data(flags))?;
    // SAFETY: the kernel checks the path, and `stat` is ours.
    let found = unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) };
    if found.is_err_and(|error| error != libc::ENOENT) {
        return None;
    }
    let linked = found.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK);
    let exclusive = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    let follow = linked && flags & libc::O_NOFOLLOW == 0 && !exclusive;
    // SAFETY: the kernel has just read the path to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let selected = config.globs.matches(dirfd, bytes, follow);
    if !selected && !table::any() {
        return None;
    }
    // A regular file, or nothing yet. Under another name it may be a file that is open here. A demoted file is not
    // wanted.
    // SAFETY: the path is good, and `stat` is ours.
    match if linked && flags & libc::O_NOFOLLOW == 0 { unsafe { stat_at(dirfd, path, 0) } } else { found } {
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFREG => None,
        Ok(stat) => {
            // SAFETY: the path is good.
            ((selected || is_open(&stat)) && !unsafe { ordinary::is(dirfd, path, &stat, descriptor) }).then_some(config)
        }
        Err(libc::ENOENT) => (selected && flags & libc::O_CREAT != 0).then_some(config),
        Err(_) => None,
    }
}

/// As [`wanted`], for a descriptor just opened by `path`. The file may have got or lost that name since, so no name
/// is looked up: it could be another file's by now.
///
/// # Safety
/// `path` is a C string.
pub(in crate::posix) unsafe fn wanted_now(fd: RawFd, dirfd: RawFd, path: *const c_char) -> Option<&'static Config> {
    // SAFETY: the caller's promise.
    let said = unsafe { CStr::from_ptr(path) };
    let config = process::config()?;
    let stat = stat_of(fd).ok()?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let is_selected = || config.globs.matches(dirfd, said.to_bytes(), false) || config.globs.matches_open(fd);
    // SAFETY: an empty path is the descriptor itself.
    ((is_open(&stat) || is_selected()) && !unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) }).then_some(config)
}

/// Whether the file is open in this process as an atomic one. False in a signal handler that interrupted the library,
/// where this cannot be told.
pub(in crate::posix) fn is_open(stat: &Stat) -> bool {
    lock::not_reentered().is_ok() && AtomicFile::find(stat.st_dev, stat.st_ino).is_some()
}

/// Whether a path without symbolic links may be selected.
#[cold]
pub(in crate::posix) fn may_match(path: &[u8]) -> bool {
    process::config_to_look().is_some_and(|config| config.globs.may_match(path))
}

/// Whether a descriptor with these flags reads or writes.
pub(in crate::posix) fn asks_for_data(flags: i32) -> bool {
    flags & (libc::O_PATH | libc::O_DIRECTORY) == 0 && flags & libc::O_ACCMODE != libc::O_ACCMODE
}
