//! `nvtx_begin` and related calls, and `nvrollback`.

use super::calls::to_ret;
use super::handles::{self, InUse};
use crate::error::{Error, Result};
use crate::file::shadow::file_at;
use crate::file::{AtomicFile, UserBuf};
use crate::posix::Ret;
use crate::posix::descriptors::table;
use crate::posix::runtime::file_size;
use crate::posix::runtime::message::caught;
use crate::transaction::Transaction;
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The commit fails if anything that the transaction read or overwrote has changed.
pub const CHECK: i32 = 1;
/// The commit is not a SYNC.
pub const NO_SYNC: i32 = 2;

/// The atomic file of a descriptor.
fn file_of(fd: RawFd, writes: bool) -> Result<Arc<AtomicFile>> {
    let not_open = || Error::with(libc::EBADF, "not the descriptor of an atomic file, or closed");
    let handle = table::get(fd).ok_or_else(not_open)?;
    handle.check_ours()?;
    let may = if writes { handle.may_write() } else { handle.may_read() };
    if may { Ok(handle.file().clone()) } else { Err(Error::with(libc::EBADF, "the descriptor is not open for this")) }
}

/// Checks an offset and a length.
fn area(offset: i64, len: usize) -> Result<u64> {
    if offset < 0 || len > isize::MAX as usize {
        return Err(Error::with(libc::EINVAL, "a negative offset or size"));
    }
    offset.checked_add(len as i64).map(|_| offset as u64).ok_or(Error::new(libc::EFBIG))
}

fn with(handle: usize, work: impl FnOnce(&mut Transaction) -> Result<Ret>) -> Ret {
    caught(|| to_ret(handles::get(handle).and_then(|mut tx| work(tx.transaction()?)), |done| done))
}

pub(super) unsafe extern "C" fn begin(fd: RawFd, flags: i32) -> Ret {
    let begin = || {
        if flags & !(CHECK | NO_SYNC) != 0 {
            return Err(Error::with(libc::EINVAL, "unknown flags"));
        }
        let mut transaction = Transaction::begin(&file_of(fd, true)?, flags & CHECK != 0)?;
        transaction.set_durable(flags & NO_SYNC == 0);
        handles::put(transaction)
    };
    caught(|| to_ret(begin(), |handle| handle as Ret))
}

pub(super) unsafe extern "C" fn join(handle: usize, fd: RawFd) -> Ret {
    with(handle, |tx| tx.join(&file_of(fd, true)?).map(|()| 0))
}

pub(super) unsafe extern "C" fn set_time_limit(handle: usize, milliseconds: u32) -> Ret {
    with(handle, |tx| {
        let limit = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
        tx.set_time_limit(limit);
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn write(handle: usize, fd: RawFd, from: *const u8, len: usize, offset: i64) -> Ret {
    with(handle, |tx| {
        let offset = area(offset, len)?;
        if file_size::clip(offset, len)? < len {
            return Err(Error::new(libc::EFBIG)); // whole or not at all
        }
        let file = file_of(fd, true)?;
        // SAFETY: the caller's promise; bad memory is an error.
        unsafe { tx.write(&file, offset, UserBuf { base: from.cast_mut(), len }) }?;
        Ok(len as Ret)
    })
}

pub(super) unsafe extern "C" fn read(handle: usize, fd: RawFd, to: *mut u8, len: usize, offset: i64) -> Ret {
    with(handle, |tx| {
        let (offset, file) = (area(offset, len)?, file_of(fd, false)?);
        // SAFETY: the caller's promise; bad memory is an error.
        let read = unsafe { tx.read(&file, offset, UserBuf { base: to, len }) }?;
        Ok(read as Ret)
    })
}

pub(super) unsafe extern "C" fn copy(handle: usize, to: usize, from: *const u8, len: usize) -> Ret {
    with(handle, |tx| {
        let (file, offset) = file_at(to, len)?;
        // SAFETY: the caller's promise; bad memory is an error.
        unsafe { tx.write(&file, offset, UserBuf { base: from.cast_mut(), len }) }?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn set_size(handle: usize, fd: RawFd, size: i64) -> Ret {
    with(handle, |tx| {
        let size = area(size, 0)?;
        file_size::check_size(size)?;
        tx.set_size(&file_of(fd, true)?, size)?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn commit(handle: usize) -> Ret {
    let commit = || {
        let transaction = handles::get(handle)?.take().ok_or(Error::new(libc::EINVAL))?;
        transaction.commit()
    };
    caught(|| to_ret(commit(), |()| 0))
}

pub(super) unsafe extern "C" fn abort(handle: usize) -> Ret {
    // Null is allowed, as for `free`; and a transaction that has ended needs no abort.
    caught(|| {
        drop(handles::get(handle).map(InUse::take));
        0
    })
}

pub(super) unsafe extern "C" fn rollback(fd: RawFd) -> Ret {
    let rollback = || {
        let file = file_of(fd, true)?;
        file.rollback().map_err(|e| file.named(e))
    };
    caught(|| to_ret(rollback(), |()| 0))
}
