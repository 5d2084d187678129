//! Locks in the kernel, by a descriptor of the file.

use crate::error::Result;
use crate::file::state::lock_ranges::{Kind, Lock, Owner, Range};
use crate::sys::{check, syscall};
use core::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

fn fcntl(fd: BorrowedFd<'_>, command: i32, kind: i32, range: Range) -> Result<libc::flock> {
    // SAFETY: zeros are a `flock`.
    let mut lock: libc::flock = unsafe { zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (range.start, range.flock_length());
    let arguments = [fd.as_raw_fd() as usize, command as usize, &raw mut lock as usize, 0, 0, 0];
    // SAFETY: the kernel only reads and writes `lock`, which is alive during the call.
    check(unsafe { syscall(libc::SYS_fcntl, arguments) })?;
    Ok(lock)
}

fn kind_of(kind: Kind) -> i32 {
    match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    }
}

/// Sets a record lock without waiting.
pub(super) fn set(fd: BorrowedFd<'_>, lock: Lock) -> Result<()> {
    fcntl(fd, setting(lock.owner), kind_of(lock.kind), lock.range).map(drop)
}

/// Removes all record locks of `owner`.
pub(super) fn unset_all(fd: BorrowedFd<'_>, owner: Owner) {
    let _ = fcntl(fd, setting(owner), libc::F_UNLCK, Range::ALL); // needs no memory: it splits no lock
}

fn setting(owner: Owner) -> i32 {
    match owner {
        Owner::Process => libc::F_SETLK,
        Owner::Description(_) => libc::F_OFD_SETLK,
    }
}

/// Whether there is no record lock at all: of the process, the description, or anything else.
pub(super) fn has_none(fd: BorrowedFd<'_>) -> bool {
    // `F_GETLK` ignores the process's own locks, `F_OFD_GETLK` the description's own: together they see all.
    [libc::F_GETLK, libc::F_OFD_GETLK].into_iter().all(|command| {
        fcntl(fd, command, libc::F_WRLCK, Range::ALL).is_ok_and(|found| i32::from(found.l_type) == libc::F_UNLCK)
    })
}

/// `flock(2)`, without waiting. `kind` `None`: unlocks.
pub(super) fn flock(fd: BorrowedFd<'_>, kind: Option<Kind>) -> Result<()> {
    let how = match kind {
        Some(Kind::Read) => libc::LOCK_SH,
        Some(Kind::Write) => libc::LOCK_EX,
        None => libc::LOCK_UN,
    };
    // SAFETY: no memory is passed.
    check(unsafe { syscall(libc::SYS_flock, [fd.as_raw_fd() as usize, (how | libc::LOCK_NB) as usize, 0, 0, 0, 0]) })
        .map(drop)
}
