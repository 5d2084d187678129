//! The kernel's side of a lease: `fcntl` on the program's descriptor.

use crate::error::Result;
use crate::file::base::lease_wakeup::SIGNAL;
use crate::sys::{check, syscall};
use std::os::fd::{AsRawFd, BorrowedFd};

const F_SETSIG: usize = 10;
const F_GETSIG: usize = 11;
const F_SETOWN_EX: usize = 15;
const F_GETOWN_EX: usize = 16;
const F_SETLEASE: usize = 1024;
const F_GETLEASE: usize = 1025;
const F_OWNER_TID: i32 = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// Another open description of the file exists.
    Later,
    /// This user or file system cannot have leases, or the program has a lease or an owner of its own on the
    /// description.
    Never,
}

fn fcntl(fd: BorrowedFd<'_>, command: usize, argument: usize) -> Result<usize> {
    // SAFETY: a pointer among the arguments leads to a live `Owner`.
    check(unsafe { syscall(libc::SYS_fcntl, [fd.as_raw_fd() as usize, command, argument, 0, 0, 0]) })
}

fn set_owner(fd: BorrowedFd<'_>, id: i32) -> Result<usize> {
    let owner = Owner { kind: F_OWNER_TID, id };
    fcntl(fd, F_SETOWN_EX, &raw const owner as usize)
}

/// Errors come only for a descriptor that was closed unseen.
fn forget_owner(fd: BorrowedFd<'_>) {
    let _ = set_owner(fd, 0);
    let _ = fcntl(fd, F_SETSIG, 0);
}

/// Takes the write lease for the open description of `fd`. A break sends [`SIGNAL`] to the thread `tid` alone;
/// [`is_broken`] tells which file it was about. Releasing a lease makes the kernel forget owner and signal, so a description on which the program has set either is left alone.
pub(super) fn take(fd: BorrowedFd<'_>, tid: i32) -> Taken {
    let mut owner = Owner { kind: 0, id: 0 };
    let is_unused = fcntl(fd, F_GETLEASE, 0).is_ok_and(|lease| lease == libc::F_UNLCK as usize)
        && fcntl(fd, F_GETSIG, 0).is_ok_and(|signal| signal == 0)
        && fcntl(fd, F_GETOWN_EX, &raw mut owner as usize).is_ok()
        && owner.id == 0;
    if is_unused { take_unused(fd, tid) } else { Taken::Never }
}

/// As [`take`], for a description on which the program certainly has set nothing.
pub(super) fn take_unused(fd: BorrowedFd<'_>, tid: i32) -> Taken {
    if fcntl(fd, F_SETSIG, SIGNAL as usize).is_err() {
        return Taken::Never;
    }
    if set_owner(fd, tid).is_err() {
        forget_owner(fd);
        return Taken::Never;
    }
    match fcntl(fd, F_SETLEASE, libc::F_WRLCK as usize) {
        Ok(_) => Taken::Yes,
        Err(e) => {
            forget_owner(fd); // it gets no signal without a lease
            if e.errno() == libc::EAGAIN { Taken::Later } else { Taken::Never }
        }
    }
}

/// Whether the description has a write lease, whichever process took it.
pub(super) fn is_held(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, F_GETLEASE, 0).is_ok_and(|lease| lease == libc::F_WRLCK as usize)
}

/// Whether a process waits for the lease to be released, or has got it by waiting long enough.
pub(in crate::file) fn is_broken(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, F_GETLEASE, 0).map_or(true, |lease| lease != libc::F_WRLCK as usize)
}

/// Releases the lease, so that waiting opens go on.
pub(in crate::file) fn give_up(fd: BorrowedFd<'_>) {
    match fcntl(fd, F_SETLEASE, libc::F_UNLCK as usize) {
        Ok(_) => {} // the owner is forgotten as well
        // The kernel has already taken it away.
        Err(e) if e.errno() == libc::EACCES => {}
        Err(_) => forget_owner(fd),
    }
}
