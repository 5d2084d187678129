//! Copies of a file's bytes, by sharing blocks where the file system can.

use crate::error::Result;
use crate::pmem::{Domain, Medium, medium};
use crate::sys::{InternalFd, read_at};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const PIECE: usize = 1 << 20;

/// The kernel's file operations.
pub(in crate::recovery) fn kernels() -> &'static dyn Medium {
    medium(Domain::PageCache, false)
}

/// Returns whether the copy is a reflink.
pub(in crate::recovery) fn copy_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<bool> {
    copy_with(from, to, &|| ())
}

/// As [`copy_all`]; `between` is called before every piece.
pub(in crate::recovery) fn copy_with(from: BorrowedFd<'_>, to: BorrowedFd<'_>, between: &dyn Fn()) -> Result<bool> {
    rustix::fs::ftruncate(to, 0)?;
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(true);
    }
    let size = fstat(from)?.st_size as u64;
    rustix::fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        between();
        // Holes stay holes.
        at = match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(at)).map_or(size, |hole| hole.min(size));
        let copied = copy_range(from, to, at, end)?;
        if copied == at {
            break; // the file was cut
        }
        at = copied;
    }
    Ok(false)
}

/// Copies one piece at most. Returns where it ends.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, at: u64, end: u64) -> Result<u64> {
    let want = ((end - at) as usize).min(32 * PIECE);
    let (mut input, mut output) = (at, at);
    match rustix::fs::copy_file_range(from, Some(&mut input), to, Some(&mut output), want) {
        Ok(0) | Err(_) => {}
        Ok(copied) => return Ok(at + copied as u64),
    }
    let mut piece = vec![0; want.min(PIECE)];
    let length = read_at(from, at, &mut piece)?;
    kernels().pwritev(to, &[&piece[..length]], at)?;
    Ok(at + length as u64)
}

/// A copy of the journal that no process changes.
pub(in crate::recovery) fn copy_to_memory(journal: BorrowedFd<'_>, between: &dyn Fn()) -> Result<InternalFd> {
    let copy = crate::sys::internal::make("/memfd:famio-backup", || {
        rustix::fs::memfd_create("famio-backup", rustix::fs::MemfdFlags::CLOEXEC)
    })?;
    copy_with(journal, copy.as_fd(), between)?;
    Ok(copy)
}
