//! Locks of an open file description on bytes of a file (`F_OFD_SETLK`): they go with the description, however its
//! process ends, and the process's other `close` calls do not drop them.

use super::{check, syscall};
use crate::error::{Error, Result};
use core::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// How bytes are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Together with other shared locks.
    Shared,
    /// Without any other lock. The description must be open for writing.
    Exclusive,
}

/// Locks bytes, or changes a lock that this description has on them. False: another description has a conflicting
/// lock, and this one's stays as it was.
pub(crate) fn try_lock(file: impl AsFd, bytes: Range<i64>, how: Lock) -> Result<bool> {
    let kind = if how == Lock::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    match fcntl(file, libc::F_OFD_SETLK, &mut region(kind, bytes)) {
        Ok(_) => Ok(true),
        Err(e) if [libc::EAGAIN, libc::EACCES].contains(&e.errno()) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Releases this description's lock on bytes. Not left to a `close`, since a forked child may hold a duplicate.
pub(crate) fn unlock(file: impl AsFd, bytes: Range<i64>) {
    let _ = fcntl(file, libc::F_OFD_SETLK, &mut region(libc::F_UNLCK, bytes));
}

/// Whether another description has a lock on some of these bytes that conflicts with a lock `for_`.
pub(crate) fn is_locked(file: impl AsFd, bytes: Range<i64>, for_: Lock) -> bool {
    let kind = if for_ == Lock::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let mut lock = region(kind, bytes);
    fcntl(file, libc::F_OFD_GETLK, &mut lock).is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}

fn fcntl(file: impl AsFd, what: i32, lock: &mut libc::flock) -> Result<usize> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: `lock` is a valid `struct flock` that the kernel may write to.
    check(unsafe {
        syscall(libc::SYS_fcntl, [fd as usize, what as usize, core::ptr::from_mut(lock) as usize, 0, 0, 0])
    })
    .map_err(|e| Error::new(e.errno()))
}

fn region(kind: i32, bytes: Range<i64>) -> libc::flock {
    // SAFETY: zeros are a valid `struct flock`; an open file description's lock needs `l_pid` to be 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (bytes.start, bytes.end - bytes.start);
    lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{InternalFd, open_again};
    use rustix::fs::{MemfdFlags, OFlags, memfd_create};

    #[test]
    fn a_lock_is_its_descriptions() {
        let first = InternalFd::adopt(memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap()).unwrap();
        let second = open_again(first.as_fd(), OFlags::RDWR).unwrap();
        let take = |fd, how| try_lock(fd, 5..6, how).unwrap();
        assert!(take(&first, Lock::Shared) && take(&second, Lock::Shared));
        assert!(!take(&first, Lock::Exclusive), "it conflicts with the other's");
        assert!(is_locked(&second, 0..10, Lock::Exclusive) && !is_locked(&second, 0..10, Lock::Shared));
        unlock(&second, 5..6);
        assert!(take(&first, Lock::Exclusive) && is_locked(&second, 0..10, Lock::Shared));
        assert!(!is_locked(&second, 6..10, Lock::Exclusive) && !is_locked(&first, 0..10, Lock::Exclusive));
        drop(first);
        assert!(!is_locked(&second, 0..10, Lock::Exclusive));
    }
}
