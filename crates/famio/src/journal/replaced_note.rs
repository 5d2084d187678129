//! A note on a file that `famio restore` or `famio backup` replaces: an extended attribute with this boot's id. A process
//! that has the deleted file open, and begins to write only now, would commit what nobody finds. (A program that deletes
//! or replaces a file itself may go on with it, as with any file.)
//!
//! It is set before the file loses its name: afterwards, a process could write just before it is set. If a kill between
//! leaves it, it counts for nothing while the file has a name.

use super::boot::BootId;
use super::pools::access::as_owner;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

const NAME: &CStr = c"user.famio.replaced";

/// Sets it on a file that is about to lose its only name. If that fails, processes go on as with any deleted file.
pub(crate) fn set(file: BorrowedFd<'_>) {
    if names(file) == Some(1)
        && let Ok(boot) = BootId::current()
    {
        let _ = as_owner(file, || fsetxattr(file, NAME, &boot.0, XattrFlags::empty()));
    }
}

/// Removes it from a file that has kept a name.
pub(crate) fn remove_if_named(file: BorrowedFd<'_>) {
    if names(file) != Some(0) {
        let _ = as_owner(file, || fremovexattr(file, NAME));
    }
}

/// Whether the file is deleted and has the note.
pub(crate) fn is_set(file: BorrowedFd<'_>) -> bool {
    let mut found = [0; 16];
    names(file) == Some(0)
        && fgetxattr(file, NAME, &mut found[..]) == Ok(found.len())
        && BootId::current().is_ok_and(|boot| boot.0 == found)
}

fn names(file: BorrowedFd<'_>) -> Option<u64> {
    fstat(file).ok().map(|stat| stat.st_nlink)
}
