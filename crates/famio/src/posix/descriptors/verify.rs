//! The checks at the beginning of every call, and the conversion of its result.

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

/// Every supported file system has offsets below this; above it, the kernel is asked.
const SURE: u64 = 1 << 40;

/// Whether the library handles a call on `fd` (true) or the kernel does (false), because the file is demoted.
#[inline]
pub(in crate::posix) fn enter(fd: RawFd, handle: &Description) -> Result<bool> {
    if handle.is_demoted() {
        return Ok(false);
    }
    lock::not_reentered()?;
    handle.check_ours()?;
    if handle.file().is_demoted() {
        handle.demote(fd)?;
        return Ok(false);
    }
    Ok(true)
}

/// Runs `act` if the library handles the call; `None`: the kernel has to. That includes a call during which the file
/// was demoted.
#[inline]
pub(in crate::posix) fn answer(fd: RawFd, handle: &Description, act: impl FnOnce() -> Result<usize>) -> Option<Ret> {
    match enter(fd, handle) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return Some(failed(handle, &error)),
    }
    match act() {
        Ok(value) => Some(value as Ret),
        Err(_) if handle.file().is_demoted() => handle.demote(fd).err().map(|error| failed(handle, &error)),
        Err(error) => Some(failed(handle, &error)),
    }
}

/// Turns an error into a result, and prints its message on stderr.
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

/// How many of `count` bytes at `offset` the file system can hold; `EFBIG` if none.
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
        // The first guess is all of it, which is nearly always right.
        let middle = if too_many > count { count } else { fits + (too_many - fits) / 2 };
        if offset_fits(fd, handle, offset.saturating_add(middle as u64)) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    if fits == 0 { Err(Error::new(libc::EFBIG)) } else { Ok(fits) }
}

/// Whether the file system has this offset. The kernel's position of an atomic file has no meaning, so this may move
/// it. For a shared description it is the program's position, so only the write itself can tell.
pub(in crate::posix) fn offset_fits(fd: RawFd, handle: &Description, offset: u64) -> bool {
    if offset <= SURE {
        return true;
    }
    // SAFETY: no memory is passed.
    let takes = || unsafe { raw!(SYS_lseek, fd, offset, libc::SEEK_SET) } >= 0;
    offset <= i64::MAX as u64 && (handle.is_shared() || takes())
}

/// A system call on `fd`, repeated while the number leads to a descriptor that the kernel refuses: an atomic file's may
/// for a moment (`file::operations::twins`).
pub(in crate::posix) fn steadily(fd: RawFd, call: impl Fn() -> Ret) -> Ret {
    let done = call();
    if done != fail(libc::EBADF) || !table::is_managed(fd) {
        return done;
    }
    match table::get(fd) {
        Some(handle) if may_wait_for(&handle) => handle.file().while_numbers_stay(call),
        _ => done,
    }
}

/// Whether this call may wait for a thread that leads the file's numbers to other descriptions.
pub(super) fn may_wait_for(handle: &Description) -> bool {
    handle.is_ours() && !in_vfork_child() && lock::not_reentered().is_ok()
}

/// The close-on-exec flag of `fd`; negative: it is not open.
pub(in crate::posix) fn descriptor_flags(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    steadily(fd, || unsafe { raw!(SYS_fcntl, fd, libc::F_GETFD) })
}

/// Whether the kernel's descriptor still is the file that the table says.
pub(in crate::posix) fn is_still(fd: RawFd, handle: &Description) -> bool {
    let mut stat = stat_of(fd);
    // For a moment its number may be closed (`file::operations::twins`).
    if matches!(stat, Err(libc::EBADF)) && may_wait_for(handle) {
        stat = handle.file().while_numbers_stay(|| stat_of(fd));
    }
    match stat {
        Ok(stat) => AtomicFile::find(stat.st_dev, stat.st_ino).is_some_and(|file| Arc::ptr_eq(&file, handle.file())),
        Err(_) => false,
    }
}
