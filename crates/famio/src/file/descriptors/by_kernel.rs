//! Reads, writes and holes of a file by the kernel.

use crate::error::Result;
use crate::file::UserBuf;
use crate::sys::{check, syscall};
use rustix::fs::FallocateFlags;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Writes to a file; the kernel checks the buffers.
pub(in crate::file) fn write_by_kernel(fd: BorrowedFd<'_>, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
    transfer([libc::SYS_pwrite64, libc::SYS_pwritev], fd, offset, bufs)
}

/// Reads from a file; the kernel checks the buffers.
pub(in crate::file) fn read_by_kernel(fd: BorrowedFd<'_>, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
    transfer([libc::SYS_pread64, libc::SYS_preadv], fd, offset, bufs)
}

/// `calls`: for one buffer, where the kernel has no list to copy, and for several.
fn transfer(calls: [libc::c_long; 2], fd: BorrowedFd<'_>, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
    let (call, at, count) = match bufs {
        [one] => (calls[0], one.base as usize, one.len),
        several => (calls[1], several.as_ptr() as usize, several.len()),
    };
    // On 64-bit Linux the offset is one word, and the next is ignored.
    // SAFETY: the kernel checks the buffers.
    check(unsafe { syscall(call, [fd.as_raw_fd() as usize, at, count, offset as usize, 0, 0]) })
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
