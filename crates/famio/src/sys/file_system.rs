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

impl FileSystem {
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
