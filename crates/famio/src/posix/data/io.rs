//! `read`, `write` and their forms with an offset.

use super::direct;
use crate::error::{Error, Result};
use crate::file::{UserBuf, Whole, waiting_for_room};
use crate::posix::call::user::{MOST, range_ok};
use crate::posix::descriptors::description::Description;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::{answer, area, failed, room};
use crate::posix::runtime::file_size;
use crate::posix::{Ret, fail, raw};
use std::os::fd::{BorrowedFd, RawFd};

/// How a write behaves.
#[derive(Clone, Copy)]
pub(in crate::posix) struct Mode {
    /// It goes to the end of the file.
    pub(in crate::posix) append: bool,
    /// It is committed by itself.
    pub(in crate::posix) commits: Option<Whole>,
}

/// Whether, and how, writes through this description are committed by themselves.
#[inline]
fn commits(handle: &Description) -> Option<Whole> {
    if handle.file().is_write_atomic() {
        Some(Whole::All)
    } else if handle.syncs() {
        Some(Whole::Shorter)
    } else {
        None
    }
}

impl Mode {
    #[inline]
    pub(in crate::posix) fn of(fd: RawFd, handle: &Description) -> Self {
        Mode { append: handle.flags_now(fd) & libc::O_APPEND != 0, commits: commits(handle) }
    }
}

/// Reads into `bufs`; `asked` is the number of bytes before the kernel's limit was applied. At the position if `at`
/// is `None`. Returns `None` if the kernel has to answer.
///
/// # Safety
/// `bufs` is the caller's memory, bad or good.
#[inline(always)]
pub(in crate::posix) unsafe fn get(
    fd: RawFd,
    handle: &Description,
    at: Option<i64>,
    bufs: &[UserBuf],
    asked: usize,
) -> Option<Ret> {
    answer(fd, handle, || {
        if let Some(offset) = at {
            area(offset, asked)?;
            before_read(fd, handle, offset as u64, bufs)?;
            // SAFETY: the caller's promise.
            return unsafe { handle.file().read(offset as u64, bufs) };
        }
        let position = handle.lock_position(fd)?;
        let offset = position.get()?;
        area(offset as i64, asked)?;
        before_read(fd, handle, offset, bufs)?;
        // SAFETY: the caller's promise.
        let done = unsafe { handle.file().read(offset, bufs) }?;
        position.set(offset + done as u64)?;
        Ok(done)
    })
}

/// Errors that a direct read may cause; none at the end of the file.
#[inline]
fn before_read(fd: RawFd, handle: &Description, offset: u64, bufs: &[UserBuf]) -> Result<()> {
    if handle.flags() & libc::O_DIRECT == 0 || offset >= handle.file().size() {
        return Ok(());
    }
    direct::check(fd, offset, bufs)
}

/// Writes `bufs`; otherwise as [`get`].
///
/// # Safety
/// `bufs` is the caller's memory, bad or good.
#[inline(always)]
pub(in crate::posix) unsafe fn put(
    fd: RawFd,
    handle: &Description,
    at: Option<i64>,
    mode: Mode,
    bufs: &mut [UserBuf],
    asked: usize,
) -> Option<Ret> {
    answer(fd, handle, || {
        let done = match at {
            Some(offset) => {
                area(offset, asked)?;
                // SAFETY: the caller's promise.
                unsafe { store(fd, handle, offset as u64, mode, bufs, &mut 0)? }
            }
            None => {
                // SAFETY: the caller's promise.
                let done = unsafe { store_at_position(fd, handle, mode, bufs, asked)? };
                if done < UserBuf::total(bufs) && done > 0 && mode.commits.is_none() {
                    // SAFETY: the caller's promise.
                    unsafe { store_rest(fd, handle, mode, bufs, done) }
                } else {
                    done
                }
            }
        };
        Ok(done)
    })
}

/// Others may move the position while this waits for room in a pool with a size.
///
/// # Safety
/// `bufs` is the caller's memory, bad or good.
#[inline(always)]
unsafe fn store_at_position(
    fd: RawFd,
    handle: &Description,
    mode: Mode,
    bufs: &mut [UserBuf],
    asked: usize,
) -> Result<usize> {
    waiting_for_room(|| {
        let position = handle.lock_position(fd)?;
        let offset = position.get()?;
        area(offset as i64, asked)?;
        let mut start = offset;
        // SAFETY: the caller's promise.
        let done = unsafe { store(fd, handle, offset, mode, bufs, &mut start)? };
        if done > 0 {
            position.set(start + done as u64)?;
        }
        Ok(done)
    })
}

/// A write at the position has ended after `done` bytes. In a pool with a size it goes on, as `AtomicFile::write` does,
/// which cannot wait for room while the position is locked. Returns how many bytes are written in all.
///
/// # Safety
/// As [`put`].
#[cold]
#[inline(never)]
unsafe fn store_rest(fd: RawFd, handle: &Description, mode: Mode, bufs: &[UserBuf], mut done: usize) -> usize {
    while done < UserBuf::total(bufs) && handle.file().is_in_shared_pool() {
        let mut rest = UserBuf::after(bufs, done);
        let asked = UserBuf::total(&rest);
        // SAFETY: the caller's promise, as for the first part.
        match unsafe { store_at_position(fd, handle, mode, &mut rest, asked) } {
            Ok(more) if more > 0 => done += more,
            _ => break, // the next call has the error
        }
    }
    done
}

/// `start` is set to the offset of the write if it differs from `offset`.
///
/// # Safety
/// `bufs` is the caller's memory, bad or good.
#[inline]
unsafe fn store(
    fd: RawFd,
    handle: &Description,
    offset: u64,
    mode: Mode,
    bufs: &mut [UserBuf],
    start: &mut u64,
) -> Result<usize> {
    let count: usize = bufs.iter().map(|buf| buf.len).sum();
    if count == 0 {
        return Ok(0);
    }
    let from = if mode.append { handle.file().size() } else { offset };
    let allowed = file_size::clip(from, room(fd, handle, from, count)?)?;
    if allowed < count {
        shorten(bufs, allowed);
    }
    if handle.flags() & libc::O_DIRECT != 0 {
        // After the limits, as in the kernel, and after set-user-id bits are gone.
        // SAFETY: the program's descriptor, which it writes to.
        let through = unsafe { BorrowedFd::borrow_raw(fd) };
        direct::check(fd, from, bufs).inspect_err(|_| handle.file().drop_privileges_of_refused_write(through))?;
    }
    if let Some(whole) = mode.commits {
        if allowed < count && whole != Whole::Shorter {
            return Err(Error::new(libc::EFBIG));
        }
        let at = if mode.append { None } else { Some(offset) };
        // SAFETY: the caller's promise.
        let (place, done) = unsafe { handle.file().write_atomically(at, bufs, whole) }?;
        *start = place;
        return Ok(done);
    }
    if mode.append {
        // SAFETY: the caller's promise.
        let (end, done) = unsafe { handle.file().append(bufs) }?;
        *start = end;
        return Ok(done);
    }
    // SAFETY: the caller's promise.
    unsafe { handle.file().write(offset, bufs) }
}

fn shorten(bufs: &mut [UserBuf], total: usize) {
    let mut left = total;
    for buf in bufs {
        buf.len = buf.len.min(left);
        left -= buf.len;
    }
}

/// Checks the access mode and one buffer.
#[inline]
fn one(handle: &Description, allowed: bool, buf: *mut u8, count: usize) -> core::result::Result<[UserBuf; 1], Ret> {
    if !allowed {
        return Err(fail(libc::EBADF));
    }
    if !range_ok(buf, count) {
        return Err(failed(handle, &Error::new(libc::EFAULT)));
    }
    Ok([UserBuf { base: buf, len: count.min(MOST) }])
}

/// `read(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn read(fd: RawFd, buf: *mut u8, count: usize) -> Ret {
    let Some(handle) = table::borrow(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { raw!(SYS_read, fd, buf, count) };
    };
    let bufs = match one(&handle, handle.may_read(), buf, count) {
        Ok(bufs) => bufs,
        Err(result) => return result,
    };
    // SAFETY: the caller's promise.
    unsafe { get(fd, &handle, None, &bufs, count).unwrap_or_else(|| raw!(SYS_read, fd, buf, count)) }
}

/// `pread(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn pread(fd: RawFd, buf: *mut u8, count: usize, offset: i64) -> Ret {
    let handle = match table::borrow(fd) {
        Some(handle) if offset >= 0 => handle,
        // SAFETY: the caller's promise.
        _ => return unsafe { raw!(SYS_pread64, fd, buf, count, offset) },
    };
    let bufs = match one(&handle, handle.may_read(), buf, count) {
        Ok(bufs) => bufs,
        Err(result) => return result,
    };
    // SAFETY: the caller's promise.
    unsafe { get(fd, &handle, Some(offset), &bufs, count).unwrap_or_else(|| raw!(SYS_pread64, fd, buf, count, offset)) }
}

/// `write(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn write(fd: RawFd, buf: *const u8, count: usize) -> Ret {
    let Some(handle) = table::borrow(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { raw!(SYS_write, fd, buf, count) };
    };
    let mut bufs = match one(&handle, handle.may_write(), buf.cast_mut(), count) {
        Ok(bufs) => bufs,
        Err(result) => return result,
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(fd, &handle, None, Mode::of(fd, &handle), &mut bufs, count).unwrap_or_else(|| {
            let done = match handle.appends_by_itself(fd) {
                true => append_by_kernel(fd, &bufs, None),
                false => raw!(SYS_write, fd, buf, count),
            };
            after_kernel(fd, &handle, done)
        })
    }
}

/// `pwrite(2)`. As on Linux, with `O_APPEND` it writes at the end of the file.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn pwrite(fd: RawFd, buf: *const u8, count: usize, offset: i64) -> Ret {
    let handle = match table::borrow(fd) {
        Some(handle) if offset >= 0 => handle,
        // SAFETY: the caller's promise.
        _ => return unsafe { raw!(SYS_pwrite64, fd, buf, count, offset) },
    };
    let mut bufs = match one(&handle, handle.may_write(), buf.cast_mut(), count) {
        Ok(bufs) => bufs,
        Err(result) => return result,
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(fd, &handle, Some(offset), Mode::of(fd, &handle), &mut bufs, count).unwrap_or_else(|| {
            let done = match handle.appends_by_itself(fd) {
                true => append_by_kernel(fd, &bufs, Some(offset)),
                false => raw!(SYS_pwrite64, fd, buf, count, offset),
            };
            after_kernel(fd, &handle, done)
        })
    }
}

/// Lets the kernel append on a description without `O_APPEND`. `at`: the offset argument of a call that does not use
/// the position.
///
/// # Safety
/// As `writev(2)`.
pub(in crate::posix) unsafe fn append_by_kernel(fd: RawFd, bufs: &[UserBuf], at: Option<i64>) -> Ret {
    let at = at.unwrap_or(-1);
    // SAFETY: the caller's promise; `UserBuf` is an `iovec`.
    unsafe { raw!(SYS_pwritev2, fd, bufs.as_ptr(), bufs.len(), at, 0, libc::RWF_APPEND) }
}

/// After the kernel's write to a demoted file: the library still does the `O_SYNC`, which `fcntl` cannot set.
pub(in crate::posix) fn after_kernel(fd: RawFd, handle: &Description, done: Ret) -> Ret {
    if done > 0 && handle.syncs() {
        // SAFETY: no memory is passed.
        let synced = unsafe {
            if handle.flags() & libc::O_SYNC == libc::O_SYNC { raw!(SYS_fsync, fd) } else { raw!(SYS_fdatasync, fd) }
        };
        if synced < 0 {
            return synced;
        }
    }
    done
}
