//! Changes of size and of allocated space through a descriptor.

use super::full_disk::demote_without_room;
use crate::error::{Error, Result};
use crate::file::{AtomicFile, waiting_for_room};
use crate::index::Positions;
use crate::posix::descriptors::description::Description;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::{answer, offset_fits};
use crate::posix::runtime::file_size;
use crate::posix::{Ret, fail, raw, steadily};
use crate::sys::check;
use std::os::fd::RawFd;
use std::sync::Arc;

/// `ftruncate(2)`: a cut or a growth, part of the epoch.
pub fn ftruncate(fd: RawFd, size: i64) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_ftruncate, fd, size) };
    let handle = match table::get(fd) {
        Some(handle) if size >= 0 => handle,
        _ if crate::posix::descriptors::close::is_hidden(fd) => return fail(libc::EBADF),
        _ => return kernel(),
    };
    if !handle.may_write() {
        return fail(libc::EINVAL);
    }
    let cut = || {
        resize(fd, &handle, size as u64)?;
        if handle.syncs() { handle.file().sync().map(|()| 0) } else { Ok(0) }
    };
    answer(fd, &handle, cut).unwrap_or_else(kernel)
}

/// Sets the size, as `ftruncate` and `truncate` do. Not a SYNC, unless each call on the file is committed by itself.
pub(in crate::posix) fn resize(fd: RawFd, handle: &Description, size: u64) -> Result<usize> {
    if size > handle.file().size() {
        file_size::check_size(size)?;
        if !offset_fits(fd, handle, size) {
            return Err(Error::new(libc::EFBIG));
        }
    }
    handle.file().set_size(size)?;
    handle.file().sync_if_write_atomic().map(|()| 0)
}

/// `fallocate(2)`. The kernel reserves space in the file without touching its contents. The library does the growth,
/// and writes zeros, which frees no space. Modes that move the rest of the file return `EOPNOTSUPP`, as on most file
/// systems.
pub fn fallocate(fd: RawFd, mode: i32, offset: i64, length: i64) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_fallocate, fd, mode, offset, length) };
    let handle = match table::get(fd) {
        Some(handle) if offset >= 0 && length > 0 => handle,
        _ => return kernel(),
    };
    let done = answer(fd, &handle, || {
        mode_exists(fd, mode)?;
        if !handle.may_write() {
            return Err(Error::new(libc::EBADF));
        }
        let end = offset.checked_add(length).ok_or(Error::new(libc::EFBIG))? as u64;
        if !offset_fits(fd, &handle, end) {
            return Err(Error::new(libc::EFBIG));
        }
        waiting_for_room(|| allocate(fd, &handle, mode, offset as u64, end))?;
        if handle.commits_each() {
            handle.file().sync()?;
        }
        Ok(0)
    });
    if done == Some(0) && mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
        demote_without_room(fd, &handle, length as u64);
    }
    done.unwrap_or_else(kernel)
}

/// The kernel's own check of the mode, the descriptor and the inode, which it makes before it checks the range: the
/// range given here is invalid for every file, so the call has no effect.
fn mode_exists(fd: RawFd, mode: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    match check(steadily(fd, || unsafe { raw!(SYS_fallocate, fd, mode, i64::MAX, i64::MAX) })) {
        Err(error) if error.errno() != libc::EFBIG => Err(error),
        _ => Ok(()),
    }
}

/// Keeps the positions that several processes share where they are; `None`: the file has none.
fn still(file: &Arc<AtomicFile>) -> Result<Option<Positions<'_>>> {
    let mut shared = false;
    table::for_each(0, u32::MAX, |_, handle| shared |= handle.is_shared() && Arc::ptr_eq(handle.file(), file));
    if shared { file.lock_positions() } else { Ok(None) }
}

fn allocate(fd: RawFd, handle: &Description, mode: i32, start: u64, end: u64) -> Result<()> {
    let file = handle.file();
    // Looking for holes moves the kernel's position for a moment. For a shared descriptor, that is the program's
    // position.
    let _still = match mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) {
        0 => None,
        _ => still(file)?,
    };
    let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let reserve = |mode: i32| {
        if !keep && end > file.size() {
            file_size::check_size(end)?;
        }
        let call = || {
            // SAFETY: reserves space, or makes it the file's own; neither bytes nor size change.
            check(unsafe { raw!(SYS_fallocate, fd, mode | libc::FALLOC_FL_KEEP_SIZE, start, end - start) })
        };
        file.preallocate(end, call)
    };
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        mode @ (0 | libc::FALLOC_FL_UNSHARE_RANGE) => {
            reserve(mode)?;
        }
        libc::FALLOC_FL_PUNCH_HOLE => return file.zero(start, end),
        libc::FALLOC_FL_ZERO_RANGE => {
            reserve(0)?;
            file.zero(start, end)?;
        }
        _ => return Err(Error::new(libc::EOPNOTSUPP)),
    }
    if !keep && end > file.size() { file.grow(end) } else { Ok(()) }
}
