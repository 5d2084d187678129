//! `O_DIRECT`: the transfer goes through the library as usual, but a request that the file system would refuse is
//! refused.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::posix::raw;
use std::os::fd::RawFd;

/// No file system refuses this alignment.
const SURE: usize = 4096;
const STATX_DIOALIGN: u32 = 0x2000;

/// Checks whether memory, offset and lengths have the alignment that the file system demands for direct I/O; `EINVAL`
/// if not. A file system that does not say (before Linux 6.1), or accepts anything (tmpfs), refuses nothing.
#[cold]
pub(in crate::posix) fn check(fd: RawFd, offset: u64, bufs: &[UserBuf]) -> Result<()> {
    let all = bufs.iter().fold(offset as usize, |all, buf| all | buf.base as usize | buf.len);
    if all.is_multiple_of(SURE) {
        return Ok(());
    }
    // SAFETY: zeros are a valid statx, filled in by the call; an empty path with this flag is the descriptor itself.
    let shown = unsafe {
        let mut shown: libc::statx = core::mem::zeroed();
        match raw!(SYS_statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, STATX_DIOALIGN, &raw mut shown) {
            0 if shown.stx_mask & STATX_DIOALIGN != 0 => shown,
            _ => return Ok(()),
        }
    };
    // Memory needs an alignment of 4 at most, even if the device asks for more (512, say).
    let (memory, place) = (shown.stx_dio_mem_align.min(4) as usize, shown.stx_dio_offset_align as usize);
    let is_aligned = |value: usize, to: usize| to == 0 || value.is_multiple_of(to);
    let fits = |buf: &UserBuf| is_aligned(buf.base as usize, memory) && is_aligned(buf.len, place);
    if is_aligned(offset as usize, place) && bufs.iter().all(fits) { Ok(()) } else { Err(Error::new(libc::EINVAL)) }
}
