//! The vector forms of `read` and `write`.

use super::io::{Mode, after_kernel, append_by_kernel, get, put};
use crate::error::{Error, Result};
use crate::file::{UserBuf, Whole};
use crate::posix::call::user::Vectors;
use crate::posix::descriptors::description::Description;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::{area, failed};
use crate::posix::{Ret, fail, raw};
use std::os::fd::RawFd;

const RWF_HIPRI: i32 = 1;
const RWF_DSYNC: i32 = 2;
const RWF_SYNC: i32 = 4;
const RWF_NOWAIT: i32 = 8;
const RWF_APPEND: i32 = 16;
const RWF_NOAPPEND: i32 = 32;
/// From Linux 6.11 on.
const RWF_ATOMIC: i32 = 64;
const KNOWN: i32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND;

/// The smallest write that `statx` offers, and the most pieces it may consist of: the kernel's values.
pub(in crate::posix) const LEAST_AT_ONCE: u32 = 512;
pub(in crate::posix) const PIECES_AT_ONCE: u32 = 1;

/// The kernel's checks of a write with `RWF_ATOMIC`, except for `O_DIRECT`, with the limits that `statx` reports for
/// this file.
fn check_atomic(handle: &Description, at: Option<u64>, vectors: &Vectors) -> Result<()> {
    let total = vectors.total() as u64;
    let limits = u64::from(LEAST_AT_ONCE)..=u64::from(handle.file().most_at_once());
    let is_good = vectors.slice().len() == PIECES_AT_ONCE as usize
        && total.is_power_of_two()
        && limits.contains(&total)
        && at.is_none_or(|at| at.is_multiple_of(total));
    if is_good { Ok(()) } else { Err(Error::new(libc::EINVAL)) }
}

/// The kernel's check of the flags, made only if there is something to transfer; then of the offset.
fn check_flags(flags: i32, known: i32, at: Option<i64>, vectors: &Vectors) -> Result<()> {
    if let Some(at) = at.filter(|_| flags != 0) {
        area(at, vectors.total())?;
    }
    if vectors.total() > 0 && flags & !known != 0 {
        return Err(Error::new(libc::EOPNOTSUPP));
    }
    if flags & (RWF_APPEND | RWF_NOAPPEND) == RWF_APPEND | RWF_NOAPPEND {
        return Err(Error::new(libc::EINVAL));
    }
    Ok(())
}

/// # Safety
/// As `preadv2`.
unsafe fn get_all(fd: RawFd, bufs: *const UserBuf, count: usize, at: Option<i64>, flags: i32) -> Option<Ret> {
    let handle = table::borrow(fd)?;
    if !handle.may_read() {
        return Some(fail(libc::EBADF));
    }
    // SAFETY: the pointer is the caller's, and is checked.
    let vectors = match unsafe { Vectors::copy(bufs, count) } {
        Ok(vectors) => vectors,
        Err(error) => return Some(failed(&handle, &error)),
    };
    if let Err(error) = check_flags(flags, KNOWN, at, &vectors) {
        return Some(failed(&handle, &error));
    }
    // SAFETY: the caller's promise.
    unsafe { get(fd, &handle, at, vectors.slice(), vectors.total()) }
}

/// # Safety
/// As `pwritev2`. `kernel` makes the program's original call.
unsafe fn put_all(
    fd: RawFd,
    bufs: *const UserBuf,
    count: usize,
    at: Option<i64>,
    flags: i32,
    kernel: impl Fn() -> Ret,
) -> Ret {
    let Some(handle) = table::borrow(fd) else { return kernel() };
    if !handle.may_write() {
        return fail(libc::EBADF);
    }
    // SAFETY: the pointer is the caller's, and is checked.
    let mut vectors = match unsafe { Vectors::copy(bufs, count) } {
        Ok(vectors) => vectors,
        Err(error) => return failed(&handle, &error),
    };
    if let Err(error) = check_flags(flags, KNOWN | RWF_ATOMIC, at, &vectors) {
        return failed(&handle, &error);
    }
    let mut mode = Mode::of(fd, &handle);
    mode.append = (mode.append || flags & RWF_APPEND != 0) && flags & RWF_NOAPPEND == 0;
    let total = vectors.total();
    if flags & RWF_ATOMIC != 0 && total > 0 && !handle.is_demoted() {
        let at = match at {
            _ if mode.append => None,
            Some(at) => Some(at as u64),
            None => Some(handle.position(fd)),
        };
        if let Err(error) = check_atomic(&handle, at, &vectors) {
            return failed(&handle, &error);
        }
        mode.commits = Some(Whole::Protected);
    } else if flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        mode.commits = mode.commits.or(Some(Whole::Shorter));
    }
    // SAFETY: the caller's promise.
    let done = unsafe { put(fd, &handle, at, mode, vectors.slice_mut(), total) };
    done.unwrap_or_else(|| {
        let done = match flags & RWF_NOAPPEND == 0 && handle.appends_by_itself(fd) {
            // SAFETY: the caller's promise.
            true => unsafe { append_by_kernel(fd, vectors.slice_mut(), at) },
            false => kernel(),
        };
        after_kernel(fd, &handle, done)
    })
}

/// `readv(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn readv(fd: RawFd, bufs: *const UserBuf, count: usize) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { get_all(fd, bufs, count, None, 0).unwrap_or_else(|| raw!(SYS_readv, fd, bufs, count)) }
}

/// `writev(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn writev(fd: RawFd, bufs: *const UserBuf, count: usize) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { put_all(fd, bufs, count, None, 0, || raw!(SYS_writev, fd, bufs, count)) }
}

/// `preadv(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn preadv(fd: RawFd, bufs: *const UserBuf, count: usize, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        let here = if offset < 0 { None } else { get_all(fd, bufs, count, Some(offset), 0) };
        here.unwrap_or_else(|| raw!(SYS_preadv, fd, bufs, count, offset, 0))
    }
}

/// `pwritev(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn pwritev(fd: RawFd, bufs: *const UserBuf, count: usize, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_pwritev, fd, bufs, count, offset, 0) };
    if offset < 0 {
        return kernel();
    }
    // SAFETY: the caller's promise.
    unsafe { put_all(fd, bufs, count, Some(offset), 0, kernel) }
}

/// `preadv2(2)`; offset -1 is the position.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn preadv2(fd: RawFd, bufs: *const UserBuf, count: usize, offset: i64, flags: i32) -> Ret {
    let at = (offset != -1).then_some(offset);
    // SAFETY: the caller's promise.
    unsafe {
        let here = if offset < -1 { None } else { get_all(fd, bufs, count, at, flags) };
        here.unwrap_or_else(|| raw!(SYS_preadv2, fd, bufs, count, offset, 0, flags))
    }
}

/// `pwritev2(2)`; offset -1 is the position.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn pwritev2(fd: RawFd, bufs: *const UserBuf, count: usize, offset: i64, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_pwritev2, fd, bufs, count, offset, 0, flags) };
    if offset < -1 {
        return kernel();
    }
    let at = (offset != -1).then_some(offset);
    // SAFETY: the caller's promise.
    unsafe { put_all(fd, bufs, count, at, flags, kernel) }
}
