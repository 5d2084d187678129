//! Whether a file's mark and its size reach the disk in the order in which they changed: what a growing file rests on.

use crate::error::Result;
use crate::journal::{GrowingMark, mark};
use crate::pmem::{Detected, Domain};
use crate::sys::write_out;
use std::os::fd::BorrowedFd;

/// What is known before the file is marked.
pub(in crate::file) enum Order {
    /// They do: all changes of metadata are in one journal, or nothing has to survive more than the process.
    Kept,
    /// They do if the mark is in the inode itself, beside the size.
    WithinInode,
    /// It is not known.
    Unknown,
}

impl Order {
    /// Of a file without a mark.
    pub fn of(fd: BorrowedFd<'_>, detected: &Detected) -> Result<Self> {
        Ok(match (detected.domain, detected.file_system) {
            (Domain::Process | Domain::Emulated, _) | (Domain::PageCache, "xfs" | "btrfs") => Self::Kept,
            // An attribute that is outside the inode may already be there, and take ours in.
            (Domain::PageCache, "ext2/3/4") if has_no_attributes(fd)? => Self::WithinInode,
            _ => Self::Unknown,
        })
    }

    /// Marks the file; whether the order is kept. If not, it has no mark.
    pub fn mark(&self, fd: BorrowedFd<'_>, mark: &GrowingMark) -> Result<bool> {
        match self {
            Self::Kept => mark::set_growing(fd, mark, true).map(|()| true),
            Self::WithinInode => {
                let before = blocks(fd)?;
                mark::set_growing(fd, mark, true)?;
                let is_within = blocks(fd)? == before; // one outside takes a block
                if !is_within {
                    mark::remove(fd)?;
                }
                Ok(is_within)
            }
            Self::Unknown => Ok(false),
        }
    }

    /// As [`mark`](Self::mark), of a file that has been changed since [`of`](Self::of).
    pub fn mark_later(&self, fd: BorrowedFd<'_>, mark: &GrowingMark) -> Result<bool> {
        if matches!(self, Self::WithinInode) {
            if !has_no_attributes(fd)? {
                return Ok(false);
            }
            write_out(fd)?; // so that nobody but us changes the number of its blocks
        }
        self.mark(fd, mark)
    }
}

fn has_no_attributes(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(rustix::fs::flistxattr(fd, &mut [0u8; 0])? == 0)
}

fn blocks(fd: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_blocks as u64)
}
