//! Memory for the bytes of mapped files.

use crate::error::{Error, Result};
use crate::file::base::bits::GRANULE;
use crate::sys::{InternalFd, write_at};
use core::ops::Range;
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::AsFd;

pub(in crate::file) const PAGE: usize = 4096;
/// Bytes that are read, compared or copied at a time.
pub(in crate::file) const PIECE: usize = 64 << 10;

/// Copies a range that `read` returns; pages of zeros are left out where there is nothing yet.
pub(in crate::file) fn fill(
    memory: impl AsFd,
    range: Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    // Up to here nothing was ever stored in the memory: it reads as zeros.
    let mut hole = 0;
    while at < range.end {
        let want = PIECE.min((range.end - at) as usize);
        let got = read(at, &mut piece[..want])?;
        if got == 0 {
            break; // cut meanwhile
        }
        for (index, page) in piece[..got].chunks(PAGE).enumerate() {
            let (offset, zeros) = (at + (index * PAGE) as u64, page.iter().all(|&byte| byte == 0));
            let end = offset + page.len() as u64;
            if zeros && hole < end {
                hole = next_data(&memory, offset)?.unwrap_or(u64::MAX);
            }
            if !zeros || hole < end {
                // By a system call: no memory left is an error here, and not a SIGBUS.
                write_at(&memory, offset, page)?;
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// The first offset from `at` on at which something was stored; `None`: nothing was.
pub(in crate::file) fn next_data(memory: impl AsFd, at: u64) -> Result<Option<u64>> {
    match rustix::fs::seek(memory, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Memory of `size` bytes, which costs nothing until something is stored in it.
pub(in crate::file) fn new_memory(size: u64) -> Result<InternalFd> {
    let memory = crate::sys::internal::make("/memfd:famio-shadow", || {
        rustix::fs::memfd_create(c"famio-shadow", MemfdFlags::CLOEXEC)
    })?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(memory)
}

/// `ENOMEM` if `size` exceeds the limit.
pub(in crate::file) fn check_size(size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    Err(Error::with(libc::ENOMEM, format!("a map of a file of {size} bytes takes more memory than {limit} bytes")))
}

/// A quarter of this machine's memory.
pub(in crate::file) fn size_limit() -> u64 {
    crate::pmem::TestHooks::current().shadow_limit.unwrap_or_else(|| crate::sys::memory() / 4)
}

const _: () = assert!(PIECE.is_multiple_of(GRANULE));
