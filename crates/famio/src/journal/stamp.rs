//! Attributes of a file that an outsider's change would modify.

use crate::error::Result;
use std::os::fd::BorrowedFd;

/// A file's size and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// In bytes.
    pub size: u64,
    /// Last change of contents: (seconds, nanoseconds).
    pub mtime: (i64, u32),
    /// Last change of anything: (seconds, nanoseconds).
    pub ctime: (i64, u32),
}

impl Stamp {
    /// Of an open file, as the kernel has it.
    pub fn of(file: BorrowedFd<'_>) -> Result<Stamp> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Stamp {
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
        })
    }

    /// Time of the last change of contents. A write sets both times to now; a program can set mtime freely, but not
    /// ctime.
    pub fn changed(&self) -> (i64, u32) {
        self.mtime.min(self.ctime)
    }
}
