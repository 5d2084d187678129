//! Changes of size and space through a descriptor.

use super::description::Description;
use super::verify::{answer, offset_fits};
use super::{Ret, fail, limits, raw, table};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use std::os::fd::RawFd;

/// A range of zeros that is written rather than punched may be this long.
const ZEROS: u64 = 16 << 20;

/// `ftruncate(2)`: a cut or a growth, part of the epoch.
pub fn ftruncate(fd: RawFd, size: i64) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_ftruncate, fd, size) };
    let handle = match table::get(fd) {
        Some(handle) if size >= 0 => handle,
        _ => return kernel(),
    };
    if !handle.may_write() {
        return fail(libc::EINVAL);
    }
    answer(fd, &handle, || resize(fd, &handle, size as u64)).unwrap_or_else(kernel)
}

/// Sets the size as `ftruncate` and `truncate` do.
pub(super) fn resize(fd: RawFd, handle: &Description, size: u64) -> Result<usize> {
    if size > handle.file().size() {
        limits::check_size(size)?;
        if !offset_fits(fd, size) {
            return Err(Error::new(libc::EFBIG));
        }
    }
    handle.file().set_size(size)?;
    if handle.syncs() {
        handle.file().sync()?;
    }
    Ok(0)
}

/// `fallocate(2)`. Space is reserved in the file by the kernel without touching what it holds, and growth is ours.
/// Holes and zeros are written as zeros, up to 16 MiB; moving ranges is `EOPNOTSUPP`, as on many file systems.
pub fn fallocate(fd: RawFd, mode: i32, offset: i64, length: i64) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_fallocate, fd, mode, offset, length) };
    let handle = match table::get(fd) {
        Some(handle) if offset >= 0 && length > 0 => handle,
        _ => return kernel(),
    };
    // The kernel looks at the mode before it looks at the descriptor.
    if mode & !libc::FALLOC_FL_KEEP_SIZE == libc::FALLOC_FL_PUNCH_HOLE && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
        return fail(libc::EOPNOTSUPP);
    }
    if !handle.may_write() {
        return fail(libc::EBADF);
    }
    let done = answer(fd, &handle, || {
        let end = offset.checked_add(length).ok_or(Error::new(libc::EFBIG))? as u64;
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => {
                if !keep && end > handle.file().size() {
                    limits::check_size(end)?;
                }
                // SAFETY: reserves space; neither bytes nor size change.
                crate::sys::check(unsafe { raw!(SYS_fallocate, fd, libc::FALLOC_FL_KEEP_SIZE, offset, length) })?;
            }
            libc::FALLOC_FL_PUNCH_HOLE if keep => zero(&handle, offset as u64, end)?,
            libc::FALLOC_FL_ZERO_RANGE => {
                if !keep && end > handle.file().size() {
                    limits::check_size(end)?;
                }
                zero(&handle, offset as u64, end)?;
            }
            _ => return Err(Error::new(libc::EOPNOTSUPP)),
        }
        if !keep && end > handle.file().size() {
            handle.file().set_size(end)?;
        }
        if handle.syncs() {
            handle.file().sync()?;
        }
        Ok(0)
    });
    done.unwrap_or_else(kernel)
}

fn zero(handle: &Description, start: u64, end: u64) -> Result<()> {
    static ZERO: [u8; 4096] = [0; 4096];
    let end = end.min(handle.file().size());
    if end.saturating_sub(start) > ZEROS {
        return Err(Error::new(libc::EOPNOTSUPP));
    }
    let mut at = start;
    while at < end {
        let piece = [UserBuf { base: ZERO.as_ptr().cast_mut(), len: (end - at).min(ZERO.len() as u64) as usize }];
        // SAFETY: the buffer is a static, and is only read.
        let done = unsafe { handle.file().write(at, &piece) }?;
        at += done as u64;
    }
    Ok(())
}
