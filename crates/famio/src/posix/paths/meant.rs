//! Whether an open file, or what a path leads to, is meant to be atomic.

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

/// The configuration, where the path may lead to an atomic file and the flags ask for its data; `descriptor`: to open one.
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
    // SAFETY: the kernel has just read it to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let meant = config.globs.matches(dirfd, bytes, follow);
    if !meant && !table::any() {
        return None;
    }
    // A regular file or nothing yet; by another name it may be one that is open here. Not what demotion made ordinary.
    // SAFETY: the path is good, and `stat` is ours.
    match if linked && flags & libc::O_NOFOLLOW == 0 { unsafe { stat_at(dirfd, path, 0) } } else { found } {
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFREG => None,
        Ok(stat) => {
            // SAFETY: the path is good.
            ((meant || is_open(&stat)) && !unsafe { ordinary::is(dirfd, path, &stat, descriptor) }).then_some(config)
        }
        Err(libc::ENOENT) => (meant && flags & libc::O_CREAT != 0).then_some(config),
        Err(_) => None,
    }
}

/// The same of what was just opened by `path`, which may have got or lost that name since: no name is looked up that could be
/// another file's by now.
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
    let is_meant = || config.globs.matches(dirfd, said.to_bytes(), false) || config.globs.matches_open(fd);
    // SAFETY: an empty path is the descriptor itself.
    ((is_open(&stat) || is_meant()) && !unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) }).then_some(config)
}

/// Whether the file is open in this process as an atomic one. Not by who interrupted one of our calls, who can't be told.
pub(in crate::posix) fn is_open(stat: &Stat) -> bool {
    lock::not_reentered().is_ok() && AtomicFile::find(stat.st_dev, stat.st_ino).is_some()
}

/// Whether a path may be meant that leads over no links.
#[cold]
pub(in crate::posix) fn may_match(path: &[u8]) -> bool {
    process::config_to_look().is_some_and(|config| config.globs.may_match(path))
}

/// Whether a descriptor with these flags reads or writes.
pub(in crate::posix) fn asks_for_data(flags: i32) -> bool {
    flags & (libc::O_PATH | libc::O_DIRECTORY) == 0 && flags & libc::O_ACCMODE != libc::O_ACCMODE
}
