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
const _: () = assert!(PIECE.is_multiple_of(GRANULE));

/// Copies a range that `read` returns; pages of zeros are left out where there is nothing yet.
pub(in crate::file) fn fill(
    memory: impl AsFd,
    range: Range<u64>,
    read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut piece = vec![0; PIECE.min(range.end.saturating_sub(range.start) as usize)];
    let hole = |at| next_data(&memory, at);
    // By a system call: no memory left is an error here, and not a SIGBUS.
    fill_by(range, &mut piece, read, hole, |at, bytes| write_at(&memory, at, bytes))
}

/// As [`fill`], by pieces as long as `piece`, which `write` stores in the memory. `next_data`: as the function.
pub(in crate::file) fn fill_by(
    range: Range<u64>,
    piece: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
    mut next_data: impl FnMut(u64) -> Result<Option<u64>>,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut at, mut hole) = (range.start, 0);
    while at < range.end {
        let want = piece.len().min((range.end - at) as usize);
        let got = read(at, &mut piece[..want])?;
        if got == 0 {
            break; // cut meanwhile
        }
        put_but_zeros(at, &piece[..got], &mut hole, &mut next_data, &mut write)?;
        at += got as u64;
    }
    Ok(())
}

/// Stores bytes in the memory by `write`; pages of zeros are left out where there is nothing yet. `hole`: up to there
/// nothing was ever stored, as far as `next_data` was asked.
pub(in crate::file) fn put_but_zeros(
    at: u64,
    bytes: &[u8],
    hole: &mut u64,
    mut next_data: impl FnMut(u64) -> Result<Option<u64>>,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    // What is to be written begins here; pages are those of the memory, wherever the range begins.
    let (mut begin, mut done) = (0, 0);
    while done < bytes.len() {
        let offset = at + done as u64;
        let len = (PAGE - offset as usize % PAGE).min(bytes.len() - done);
        let (zeros, end) = (is_zeros(&bytes[done..done + len]), offset + len as u64);
        if zeros && *hole < end {
            *hole = next_data(offset)?.unwrap_or(u64::MAX);
        }
        if zeros && *hole >= end {
            if begin < done {
                write(at + begin as u64, &bytes[begin..done])?;
            }
            begin = done + len;
        }
        done += len;
    }
    if begin < bytes.len() { write(at + begin as u64, &bytes[begin..]) } else { Ok(()) }
}

/// Whether all bytes are zeros.
pub(in crate::file) fn is_zeros(bytes: &[u8]) -> bool {
    let lines = bytes.chunks_exact(64);
    lines.remainder().iter().all(|&byte| byte == 0)
        && lines.map(|line| line.iter().fold(0, |all, byte| all | byte)).all(|all| all == 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that take memory.
    fn taken(memory: &InternalFd) -> u64 {
        rustix::fs::fstat(memory).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn zeros_take_no_memory_wherever_a_range_begins() {
        let memory = new_memory(64 * PIECE as u64).unwrap();
        write_at(&memory, 0, &[1; 1000]).unwrap();
        // In the middle of a page that has bytes: those that follow it have none.
        fill(&memory, 1000..64 * PIECE as u64, |_, piece| Ok(piece.len())).unwrap();
        assert_eq!(taken(&memory), PAGE as u64);
        // What has bytes gets its zeros; what is between is one call.
        let mut calls = 0;
        let mut bytes = vec![2; 3 * PAGE];
        bytes[PAGE..2 * PAGE].fill(0);
        let (mut piece, range) = (vec![0; PIECE], 100..(100 + bytes.len()) as u64);
        for _ in 0..2 {
            let read = |at: u64, piece: &mut [u8]| {
                piece.copy_from_slice(&bytes[at as usize - 100..][..piece.len()]);
                Ok(piece.len())
            };
            let write = |at, bytes: &[u8]| {
                calls += 1;
                write_at(&memory, at, bytes)
            };
            fill_by(range.clone(), &mut piece, read, |at| next_data(&memory, at), write).unwrap();
            let mut there = vec![0; bytes.len()];
            crate::sys::read_at(&memory, 100, &mut there).unwrap();
            assert!(there == bytes);
            bytes.fill(0);
        }
        assert_eq!((calls, taken(&memory)), (2, 4 * PAGE as u64));
    }

    #[test]
    fn zeros_are_told_from_other_bytes() {
        for len in [0, 1, 63, 64, 65, 4096, 4099] {
            let mut bytes = vec![0; len];
            assert!(is_zeros(&bytes));
            for at in 0..len {
                bytes[at] = 1;
                assert!(!is_zeros(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
