//! Reads, writes and holes of a file by the kernel.

use crate::error::Result;
use crate::file::UserBuf;
use crate::sys::{check, syscall};
use rustix::fs::FallocateFlags;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Writes to a file; the kernel checks the buffers.
pub(in crate::file) fn write_by_kernel(fd: BorrowedFd<'_>, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
    // SAFETY: the kernel checks them.
    check(unsafe { syscall(libc::SYS_pwritev, vector(fd, bufs, offset)) })
}

/// Makes a hole.
pub(in crate::file) fn punch_hole(fd: BorrowedFd<'_>, from: u64, to: u64) -> Result<()> {
    Ok(rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, to - from)?)
}

/// Whether the file system has files of this size. A hole in a last byte that is not there is made without effect;
/// beyond the largest file, the kernel refuses it.
pub(in crate::file) fn may_have_size(fd: BorrowedFd<'_>, size: u64) -> bool {
    !punch_hole(fd, size - 1, size).is_err_and(|e| e.errno() == libc::EFBIG)
}

/// The arguments of `preadv` and `pwritev`: on 64-bit Linux the offset is one word, and the next is ignored.
pub(in crate::file) fn vector(fd: BorrowedFd<'_>, bufs: &[UserBuf], offset: u64) -> [usize; 6] {
    [fd.as_raw_fd() as usize, bufs.as_ptr() as usize, bufs.len(), offset as usize, 0, 0]
}
