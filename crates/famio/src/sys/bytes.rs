//! Reads and writes of all bytes asked for; a system call may transfer fewer at a time.

use super::{check, syscall};
use crate::error::Result;
use core::ops::Range;
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::{AsFd, AsRawFd};

/// Reads from `offset` until `to` is full or the file ends; returns the number of bytes.
pub(crate) fn read_at(fd: impl AsFd, offset: u64, to: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match pread(&fd, &mut to[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Reads a file whose length is not known, as those of `/proc`, until it ends, cannot be read on, or has given `most`
/// bytes or a few more.
pub(crate) fn read_whole(fd: impl AsFd, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while all.len() < most
        && let Ok(read @ 1..) = read_at(&fd, all.len() as u64, &mut piece)
    {
        all.extend_from_slice(&piece[..read]);
    }
    all
}

/// Writes all of `bytes` at `offset`. For files that need not be durable: others are written through a `Medium`.
pub(crate) fn write_at(fd: impl AsFd, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(&fd, &bytes[done..], offset + done as u64) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Reads a range piece by piece, each with its offset. Returns whether the file had all of it.
pub(crate) fn each_piece(
    fd: impl AsFd,
    range: Range<u64>,
    mut work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<bool> {
    const PIECE: u64 = 1 << 16;
    let mut piece = vec![0; PIECE.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let wanted = (range.end - at).min(PIECE) as usize;
        if read_at(&fd, at, &mut piece[..wanted])? < wanted {
            return Ok(false);
        }
        work(at, &piece[..wanted])?;
        at += wanted as u64;
    }
    Ok(true)
}

/// As [`each_piece`], without holes; the range ends within the file. Restores the file position.
pub(crate) fn each_data(
    fd: impl AsFd,
    range: Range<u64>,
    mut work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<bool> {
    let mut at = range.start;
    while at < range.end {
        let Some(data) = next_data(&fd, at..range.end)? else { break };
        if !each_piece(&fd, data.clone(), &mut work)? {
            return Ok(false);
        }
        at = data.end;
    }
    Ok(true)
}

/// Restores the file position after `work`, which changes it.
pub(crate) fn with_position_kept<T>(fd: impl AsFd, work: impl FnOnce() -> T) -> Result<T> {
    let before = seek(&fd, SeekFrom::Current(0))?;
    let done = work();
    seek(&fd, SeekFrom::Start(before))?;
    Ok(done)
}

/// The first piece of a range that is not a hole. Restores the file position.
pub(crate) fn next_data(fd: impl AsFd, range: Range<u64>) -> Result<Option<Range<u64>>> {
    let (start, end) = with_position_kept(&fd, || {
        let start = seek(&fd, SeekFrom::Data(range.start));
        (start, start.and_then(|start| seek(&fd, SeekFrom::Hole(start))))
    })?;
    match (start, end) {
        (Err(Errno::NXIO), _) => Ok(None),
        (start, end) => {
            let data = start?.max(range.start)..end?.min(range.end);
            Ok((!data.is_empty()).then_some(data))
        }
    }
}

/// Writes the kernel's cached pages of a file to the disk, and waits until the disk has them, in its cache or
/// durably.
pub(crate) fn write_out(fd: impl AsFd) -> Result<()> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    write_out_range(fd, 0..0, how)
}

/// The steps `how` of that, for a part of the file. 0 as its end: the file's.
pub(crate) fn write_out_range(fd: impl AsFd, range: Range<u64>, how: u32) -> Result<()> {
    let (fd, from) = (fd.as_fd().as_raw_fd() as usize, range.start as usize);
    // SAFETY: numbers.
    check(unsafe { syscall(libc::SYS_sync_file_range, [fd, from, range.end as usize - from, how as usize, 0, 0]) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};

    #[test]
    fn all_is_written_and_what_there_is_read() {
        let file = memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap();
        write_at(&file, 3, b"abcdef").unwrap();
        let mut bytes = *b"----------";
        assert_eq!((read_at(&file, 0, &mut bytes[..5]).unwrap(), &bytes), (5, b"\0\0\0ab-----"));
        assert_eq!((read_at(&file, 6, &mut bytes).unwrap(), &bytes), (3, b"defab-----"));
        assert_eq!(read_at(&file, 9, &mut bytes).unwrap(), 0);
    }

    #[test]
    fn holes_are_passed_over_and_the_position_stays() {
        let file = memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 40).unwrap();
        for at in [4096, 1 << 30] {
            write_at(&file, at, b"abc").unwrap();
        }
        seek(&file, SeekFrom::Start(7)).unwrap();
        let mut found = Vec::new();
        let work = |at, piece: &[u8]| {
            found.push((at, piece.iter().filter(|&&byte| byte != 0).copied().collect::<Vec<_>>()));
            Ok(())
        };
        assert!(each_data(&file, 4097..1 << 40, work).unwrap());
        assert_eq!(found, [(4097, b"bc".to_vec()), (1 << 30, b"abc".to_vec())]);
        assert_eq!(seek(&file, SeekFrom::Current(0)).unwrap(), 7);
    }

    #[test]
    fn errors_are_the_kernels() {
        let full = openat(CWD, "/dev/full", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(read_at(&full, 0, &mut [0]).unwrap_err().errno(), libc::EBADF);
        assert_eq!(write_at(&full, 0, b"x").unwrap_err().errno(), libc::ENOSPC);
    }
}
