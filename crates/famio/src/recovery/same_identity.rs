//! Copies of a whole file system (snapshots, images): their files have the identity of the original's.

use crate::journal::Identity;
use crate::journal::pools::reach::{is_regular, reach};
use rustix::fs::fstat;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Whether the journal may be that of another file of the same identity: it lies on another file system than `file`,
/// and `hint`, where it was last used, leads to such a file.
pub(super) fn is_of_another(file: BorrowedFd<'_>, journal: BorrowedFd<'_>, identity: &Identity, hint: &Path) -> bool {
    let device = |fd| fstat(fd).map(|stat| stat.st_dev);
    let (Ok(mine), Ok(journals)) = (device(file), device(journal)) else { return false };
    if mine == journals {
        return false;
    }
    let Ok(other) = reach(hint) else { return false };
    fstat(&other).is_ok_and(|stat| is_regular(&stat) && stat.st_dev != mine)
        // Checked first: a file in /proc or /sys holds no user's data.
        && crate::pmem::is_known(other.as_fd())
        && Identity::of_fd(other.as_fd()).is_ok_and(|other| other == *identity)
}
