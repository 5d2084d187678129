//! What the kernel says of the file system of an open file.

use super::{check, syscall};
use crate::error::Result;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What `fstatfs` says, as far as it is used here.
#[derive(Clone, Copy)]
pub(crate) struct FileSystem {
    /// The magic number of its kind (`f_type`).
    pub magic: u32,
    /// `f_fsid`: which one of its kind it is, on some only until the next boot.
    pub id: u64,
}

/// tmpfs, ext4, XFS and Btrfs. (ext2 has the number of ext4, and times in whole seconds.)
const STAMP_EACH: [u32; 4] = [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e];

impl FileSystem {
    /// Whether a file's time changes with each change of the file after it was asked for, unless the file system keeps
    /// whole seconds: since Linux 6.13 (*multigrain timestamps*), on these. Elsewhere it may be that of the last tick.
    pub fn stamps_each_change(&self) -> bool {
        STAMP_EACH.contains(&self.magic) && super::is_kernel_from(6, 13)
    }

    /// That of an open file, or of an open folder. One system call; `O_PATH` suffices.
    pub fn of(file: BorrowedFd<'_>) -> Result<Self> {
        let mut statfs = [0u64; 16]; // struct statfs: 15 words, the first is f_type, the eighth f_fsid
        let to = statfs.as_mut_ptr() as usize;
        // Directly, since rustix and libc hide the id.
        // SAFETY: the kernel writes 120 bytes.
        check(unsafe { syscall(libc::SYS_fstatfs, [file.as_raw_fd() as usize, to, 0, 0, 0, 0]) })?;
        // Only the lower half: some architectures sign-extend `f_type`.
        Ok(Self { magic: statfs[0] as u32, id: statfs[7] })
    }
}
