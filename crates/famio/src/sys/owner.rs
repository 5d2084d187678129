//! Who may do what with a file: its owner, group and mode, which the checks of one operation ask for again and again.

use super::internal::closed;
use super::internal::undisturbed::Answer;
use rustix::fs::Stat;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// What `fstat` says, for the file's owner, group, mode and identity only: size and times may be older.
pub(crate) fn owner_and_mode(fd: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    static KNOWN: Answer<Stat> = Answer::new();
    KNOWN.of_file(fd, || rustix::fs::fstat(fd))
}

/// As [`owner_and_mode`], of the folder in which the file of a stretch lies.
pub(crate) fn owner_and_mode_of_folder(folder: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    static KNOWN: Answer<(RawFd, u64, Stat)> = Answer::new();
    let (number, closed) = (folder.as_raw_fd(), closed());
    let ask = || Ok((number, closed, rustix::fs::fstat(folder)?));
    match KNOWN.get(ask)? {
        (of, since, stat) if (of, since) == (number, closed) => Ok(stat),
        _ => KNOWN.renew(ask).map(|(_, _, stat)| stat),
    }
}
