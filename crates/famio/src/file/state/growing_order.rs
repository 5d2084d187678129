//! Whether a file's mark and its size reach the disk in the order in which they changed: growing files rely on that.

use crate::error::Result;
use crate::journal::{GrowingMark, OVERWRITES_MAX, mark};
use crate::pmem::{Detected, Domain};
use crate::sys::write_out;
use std::os::fd::BorrowedFd;

/// What is known before the file is marked.
pub(in crate::file) enum Order {
    /// They do: all metadata changes are in one journal, or nothing has to survive more than the process.
    Kept,
    /// They do if the mark is in the inode itself, like the size.
    WithinInode,
    Unknown,
}

impl Order {
    /// Of a file without a mark.
    pub fn of(fd: BorrowedFd<'_>, detected: &Detected) -> Result<Self> {
        Ok(match (detected.domain, detected.file_system) {
            (Domain::Process | Domain::Emulated, _) | (Domain::PageCache, "xfs" | "btrfs") => Self::Kept,
            // There may already be an attribute outside the inode, to which ours would be added.
            (Domain::PageCache, "ext2/3/4") if has_no_attributes(fd)? => Self::WithinInode,
            _ => Self::Unknown,
        })
    }

    /// Marks the file. Returns whether the order is kept; if not, the mark is removed.
    pub fn mark(&self, fd: BorrowedFd<'_>, mark: &GrowingMark) -> Result<bool> {
        match self {
            Self::Kept => mark::set_growing(fd, mark, true).map(|()| true),
            Self::WithinInode => {
                let before = blocks(fd)?;
                mark::set_growing(fd, mark, true)?;
                let is_within = blocks(fd)? == before; // an attribute outside the inode takes a block
                if !is_within {
                    mark::remove(fd)?;
                }
                Ok(is_within)
            }
            Self::Unknown => Ok(false),
        }
    }

    /// As [`mark`](Self::mark), for a file that was changed since [`of`](Self::of).
    pub fn mark_later(&self, fd: BorrowedFd<'_>, mark: &GrowingMark) -> Result<bool> {
        if matches!(self, Self::WithinInode) {
            if !has_no_attributes(fd)? {
                return Ok(false);
            }
            write_out(fd)?; // so that its number of blocks changes only by the mark
        }
        self.mark(fd, mark)
    }
}

/// The most bytes that overwrites may take in the mark: where the file system changes an attribute as a whole, as much as
/// it keeps without much work. `keeps_order`: as [`crate::pmem::keeps_order`] says.
pub(in crate::file) fn room_for_overwrites(detected: &Detected, keeps_order: bool) -> usize {
    match detected.file_system {
        "tmpfs" => OVERWRITES_MAX,
        "xfs" if keeps_order => 8 << 10,
        "btrfs" => 8 << 10,
        "ext2/3/4" if keeps_order => 3 << 10, // all attributes of a file share a block
        _ => 0,
    }
}

fn has_no_attributes(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(rustix::fs::flistxattr(fd, &mut [0u8; 0])? == 0)
}

fn blocks(fd: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_blocks as u64)
}
