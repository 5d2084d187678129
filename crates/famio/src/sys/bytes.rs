//! Bytes of a file, as many as are asked for: the kernel may give or take fewer at a time.

use crate::error::Result;
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::AsFd;

/// Reads from `offset` until `to` is full or the file ends; gives how many bytes it read.
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

/// Writes all of `bytes` at `offset`. For files that need not be durable: the others are written through a `Medium`.
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
    fn errors_are_the_kernels() {
        let full = openat(CWD, "/dev/full", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(read_at(&full, 0, &mut [0]).unwrap_err().errno(), libc::EBADF);
        assert_eq!(write_at(&full, 0, b"x").unwrap_err().errno(), libc::ENOSPC);
    }
}
