//! File locks: the kernel's, on the real descriptor. Positions in them are the logical ones; and who gives a lock up has come to
//! the end of what it may still take back by dying (`file::turn`).

use super::description::Description;
use super::{Ret, fail, raw, table, user};
use crate::error::Result;
use crate::file::{self, LockOf};
use core::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Whether it is a command of record locks.
pub(super) fn is_lock(command: i32) -> bool {
    use libc::{F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLK, F_SETLKW};
    matches!(command, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW)
}

/// `fcntl(2)` of a record lock.
///
/// # Safety
/// `argument` is the caller's: bad memory gives `EFAULT`.
pub(super) unsafe fn fcntl_lock(fd: RawFd, handle: &Description, command: i32, argument: usize) -> Ret {
    let theirs = argument as *mut libc::flock;
    let mut lock = MaybeUninit::<libc::flock>::uninit();
    // SAFETY: ours has room; theirs may be bad.
    if let Err(error) = unsafe { file::copy_in(lock.as_mut_ptr().cast(), theirs.cast(), size_of::<libc::flock>()) } {
        return fail(error.errno());
    }
    // SAFETY: any bytes are a `flock`.
    let mut lock = unsafe { lock.assume_init() };
    let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    // The kernel's descriptor may be wider than what the program asked for.
    let refused = match i32::from(lock.l_type) {
        libc::F_RDLCK => !handle.may_read(),
        libc::F_WRLCK => !handle.may_write(),
        _ => false,
    };
    if refused && !asks {
        return fail(libc::EBADF);
    }
    let base = match i32::from(lock.l_whence) {
        libc::SEEK_CUR if !handle.is_handed_back() => Some(handle.position(fd)),
        libc::SEEK_END if !handle.is_handed_back() => Some(handle.file().size()),
        _ => None,
    };
    if let Some(base) = base {
        let Some(start) = lock.l_start.checked_add_unsigned(base) else { return fail(libc::EOVERFLOW) };
        (lock.l_start, lock.l_whence) = (start, libc::SEEK_SET as i16);
    }
    let kind = i32::from(lock.l_type);
    let is_own = matches!(command, libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let of = if is_own { LockOf::Description } else { LockOf::Process };
    let all = (lock.l_start, lock.l_len, i32::from(lock.l_whence)) == (0, 0, libc::SEEK_SET);
    // Who locks for reading what it had locked for writing lets others in, too.
    if !asks
        && kind != libc::F_WRLCK
        && let Err(error) = before_unlock(handle, kind == libc::F_UNLCK, all.then_some(of))
    {
        return fail(error.errno());
    }
    // SAFETY: our copy, to which an answer may be written.
    let result = unsafe { raw!(SYS_fcntl, fd, command, &raw mut lock) };
    if result == 0 && !asks && kind == libc::F_UNLCK {
        has_unlocked(handle);
    }
    if result == 0 && !asks && kind != libc::F_UNLCK {
        has_locked(handle, (kind == libc::F_WRLCK).then_some(of));
    }
    if result == 0 && asks {
        // Without a conflict the kernel changes nothing but the type: our own base is not to be seen.
        let told = match i32::from(lock.l_type) == libc::F_UNLCK {
            true => {
                user::put(theirs.wrapping_byte_add(core::mem::offset_of!(libc::flock, l_type)).cast(), &lock.l_type)
            }
            false => user::put(theirs, &lock),
        };
        if let Err(error) = told {
            return fail(error.errno());
        }
    }
    result
}

/// What was written until now stays, whatever becomes of this process: others are let at it. `certainly`: a lock is given up; else
/// it may be, if there was one for writing. `all`: of that kind there is none left.
fn before_unlock(handle: &Description, certainly: bool, all: Option<LockOf>) -> Result<()> {
    if !is_meant(handle) {
        return Ok(());
    }
    if certainly || handle.file().is_in_section() {
        handle.file().end_tenure()?;
    }
    if let Some(of) = all {
        handle.file().end_section(of);
        if matches!(of, LockOf::Description) {
            handle.set_locked(false);
        }
    }
    Ok(())
}

/// As [`before_unlock`], for a descriptor that is being closed: the lock of its description goes with the description.
pub(super) fn before_close(handle: &Description) {
    if handle.unlocks_at_close() {
        let _ = before_unlock(handle, true, Some(LockOf::Description)); // who looks at the file next is told what is wrong
    }
}

/// What it locked is as it was before one who died there began. `for_writing`: whose lock it is then.
fn has_locked(handle: &Description, for_writing: Option<LockOf>) {
    if is_meant(handle) {
        let _ = handle.file().look_after_dead(); // who looks at the file next is told what is wrong
        if let Some(of) = for_writing {
            handle.file().begin_section(of);
            if matches!(of, LockOf::Description) {
                handle.set_locked(true);
            }
        }
    }
}

/// Who waited for the lock may be about to change the file.
fn has_unlocked(handle: &Description) {
    if is_meant(handle) {
        handle.file().has_unlocked();
    }
}

fn is_meant(handle: &Description) -> bool {
    handle.is_ours() && !handle.is_handed_back() && super::lock::not_reentered().is_ok()
}

/// `flock(2)`.
pub fn flock(fd: RawFd, how: i32) -> Ret {
    let (handle, kind) = (table::get(fd), how & !libc::LOCK_NB);
    if kind != libc::LOCK_EX
        && let Some(handle) = &handle
        && let Err(error) = before_unlock(handle, kind == libc::LOCK_UN, Some(LockOf::Description))
    {
        return fail(error.errno());
    }
    // SAFETY: no memory is passed.
    let result = unsafe { raw!(SYS_flock, fd, how) };
    if result == 0
        && kind == libc::LOCK_UN
        && let Some(handle) = &handle
    {
        has_unlocked(handle);
    }
    if result == 0
        && kind != libc::LOCK_UN
        && let Some(handle) = &handle
    {
        has_locked(handle, (kind == libc::LOCK_EX).then_some(LockOf::Description));
    }
    result
}

/// `lockf(3)`: a record lock from the position on.
pub fn lockf(fd: RawFd, what: i32, len: i64) -> Ret {
    let (kind, command) = match what {
        libc::F_LOCK => (libc::F_WRLCK, libc::F_SETLKW),
        libc::F_TLOCK => (libc::F_WRLCK, libc::F_SETLK),
        libc::F_ULOCK => (libc::F_UNLCK, libc::F_SETLK),
        libc::F_TEST => (libc::F_RDLCK, libc::F_GETLK),
        _ => return fail(libc::EINVAL),
    };
    // SAFETY: zeros are a `flock`.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_len) = (kind as i16, libc::SEEK_CUR as i16, len);
    // SAFETY: our own.
    let result = unsafe { super::fcntl(fd, command, &raw mut lock as usize) };
    // SAFETY: no arguments.
    let me = || unsafe { raw!(SYS_getpid) };
    let is_free = || i32::from(lock.l_type) == libc::F_UNLCK || lock.l_pid as isize == me();
    if result == 0 && what == libc::F_TEST && !is_free() { fail(libc::EACCES) } else { result }
}
