//! What every call asks before it does anything, and how it ends.

use super::description::Description;
use super::table;
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::posix::call::lock;
use crate::posix::call::look::stat_of;
use crate::posix::runtime::say::{Once, say, say_error, say_once};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Offsets below this exist on every file system that we take; above it the kernel is asked.
const SURE: u64 = 1 << 40;

/// Whether the library answers a call on `fd` (true) or the kernel does, because the file was handed back.
#[inline]
pub(in crate::posix) fn enter(fd: RawFd, handle: &Description) -> Result<bool> {
    if handle.is_handed_back() {
        return Ok(false);
    }
    lock::not_reentered()?;
    handle.check_ours()?;
    if handle.file().is_demoted() {
        handle.hand_back(fd)?;
        return Ok(false);
    }
    Ok(true)
}

/// Runs `act` where the library answers; `None`: let the kernel answer. A call that demotion overtook is the kernel's
/// too.
#[inline]
pub(in crate::posix) fn answer(fd: RawFd, handle: &Description, act: impl FnOnce() -> Result<usize>) -> Option<Ret> {
    match enter(fd, handle) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return Some(failed(handle, &error)),
    }
    match act() {
        Ok(value) => Some(value as Ret),
        Err(_) if handle.file().is_demoted() => handle.hand_back(fd).err().map(|error| failed(handle, &error)),
        Err(error) => Some(failed(handle, &error)),
    }
}

/// An error as a result; its sentence goes to stderr.
#[cold]
pub(in crate::posix) fn failed(handle: &Description, error: &Error) -> Ret {
    say_error(handle.path(), error);
    if error.detail().is_none() && error.errno() == libc::EDEADLK && say_once(Once::Reentered) {
        say(handle.path(), "a signal handler interrupted a call on an atomic file and made another (EDEADLK)");
    }
    fail(error.errno())
}

/// The kernel's `rw_verify_area`.
#[inline]
pub(in crate::posix) fn area(offset: i64, count: usize) -> Result<()> {
    if offset < 0 || count as i64 > i64::MAX - offset || count as isize <= -1 {
        return Err(Error::new(libc::EINVAL));
    }
    Ok(())
}

/// How many of `count` bytes at `offset` the file system can hold: `EFBIG` for none.
#[inline]
pub(in crate::posix) fn room(fd: RawFd, handle: &Description, offset: u64, count: usize) -> Result<usize> {
    if offset.saturating_add(count as u64) <= SURE { Ok(count) } else { ask_room(fd, handle, offset, count) }
}

#[cold]
fn ask_room(fd: RawFd, handle: &Description, offset: u64, count: usize) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    let (mut fits, mut too_many) = (0, count + 1);
    while too_many - fits > 1 {
        // The first question is for all of it, which is nearly always the answer.
        let middle = if too_many > count { count } else { fits + (too_many - fits) / 2 };
        if offset_fits(fd, handle, offset.saturating_add(middle as u64)) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    if fits == 0 { Err(Error::new(libc::EFBIG)) } else { Ok(fits) }
}

/// Whether the file system has this offset. The kernel's own position of a file of ours means nothing, so it may move; that of a
/// shared description is the program's, so that only the write itself can tell.
pub(in crate::posix) fn offset_fits(fd: RawFd, handle: &Description, offset: u64) -> bool {
    if offset <= SURE {
        return true;
    }
    // SAFETY: no memory is passed.
    let takes = || unsafe { raw!(SYS_lseek, fd, offset, libc::SEEK_SET) } >= 0;
    offset <= i64::MAX as u64 && (handle.is_shared() || takes())
}

/// A system call by `fd`. For a moment a descriptor of an atomic file may be one that the kernel refuses (`file::operations::twins`): again then.
pub(in crate::posix) fn steadily(fd: std::os::fd::RawFd, call: impl Fn() -> Ret) -> Ret {
    let done = call();
    if done != fail(libc::EBADF) || !table::is_managed(fd) || in_vfork_child() || lock::not_reentered().is_err() {
        return done;
    }
    match table::get(fd) {
        Some(handle) if handle.is_ours() => handle.file().while_numbers_stay(call),
        _ => done,
    }
}

/// Whether the kernel's descriptor still is the file that the table says.
pub(in crate::posix) fn is_still(fd: RawFd, handle: &Description) -> bool {
    match stat_of(fd) {
        Ok(stat) => AtomicFile::find(stat.st_dev, stat.st_ino).is_some_and(|file| Arc::ptr_eq(&file, handle.file())),
        Err(_) => false,
    }
}
