//! Looking for the file's bytes by `lseek`, which moves the kernel's file position for a moment. If other processes
//! have the description, too, that is the program's position; otherwise it is kept in memory.

use super::Descriptors;
use crate::error::Result;
use crate::sys::with_position_kept;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

impl Descriptors {
    /// Other processes will have a description, too.
    pub fn share_position(&self) {
        self.list().shares_position = true;
    }

    /// The next offset from `at` on at which the file has bytes, `u64::MAX` if there is none; `None`: it cannot say.
    /// The caller has locked the positions that other processes share.
    pub fn next_data(&self, at: u64) -> Option<u64> {
        self.with(false, |fd| seek_data(fd, at)).ok()
    }

    /// As [`next_data`](Self::next_data), without that lock; `None` also if a position is shared.
    pub fn next_data_if_unshared(&self, at: u64) -> Option<u64> {
        let mut list = self.list();
        if list.shares_position {
            return None;
        }
        self.with_listed(&mut list, false, |fd| seek_data(fd, at)).ok()
    }
}

fn seek_data(fd: BorrowedFd<'_>, at: u64) -> Result<u64> {
    match with_position_kept(fd, || seek(fd, SeekFrom::Data(at)))? {
        Err(Errno::NXIO) => Ok(u64::MAX), // nothing but a hole, or beyond the end
        found => Ok(found?),
    }
}
