//! Copies inside the kernel that have an atomic file on one side: carried out by the library's own reads and writes.

use crate::file::UserBuf;
use crate::posix::call::user;
use crate::posix::data::io;
use crate::posix::data::seek::lseek;
use crate::posix::descriptors::{close, table, verify};
use crate::posix::{Ret, fail, raw};
use std::os::fd::RawFd;

const PIECE: usize = 64 << 10;

pub(in crate::posix) fn stat(fd: RawFd) -> Result<libc::stat, Ret> {
    // SAFETY: all-zero bytes are a valid stat; it is filled in.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        match crate::posix::fstat(fd, &mut stat) {
            0 => Ok(stat),
            error => Err(error),
        }
    }
}

/// The access mode and `O_APPEND` as the program knows them.
pub(in crate::posix) fn flags(fd: RawFd) -> Result<i32, Ret> {
    // SAFETY: no memory is passed.
    match unsafe { crate::posix::fcntl(fd, libc::F_GETFL, 0) } {
        flags if flags < 0 => Err(flags),
        flags => Ok(flags as i32),
    }
}

/// One side of a copy: at its own offset, or at the descriptor's position.
pub(in crate::posix) struct Side {
    fd: RawFd,
    given: *mut i64,
    pub(in crate::posix) at: i64,
}

impl Side {
    pub(in crate::posix) fn new(fd: RawFd, given: *mut i64) -> Result<Self, Ret> {
        let at = if given.is_null() {
            match lseek(fd, 0, libc::SEEK_CUR) {
                at if at < 0 => return Err(at),
                at => at as i64,
            }
        } else {
            // SAFETY: any bytes are a number.
            unsafe { user::get(given) }.map_err(|error| fail(error.errno()))?
        };
        Ok(Side { fd, given, at })
    }

    pub(in crate::posix) fn check(&self) -> Result<(), Ret> {
        if self.at < 0 { Err(fail(libc::EINVAL)) } else { Ok(()) }
    }

    pub(in crate::posix) fn finish(self, moved: usize) -> Result<(), Ret> {
        let at = self.at + moved as i64;
        if !self.given.is_null() {
            return user::put(self.given, &at).map_err(|error| fail(error.errno()));
        }
        match lseek(self.fd, at, libc::SEEK_SET) {
            error if error < 0 => Err(error),
            _ => Ok(()),
        }
    }
}

/// Moves bytes until `count`, the end of the source, or an error. Returns the error only if nothing was moved.
fn pump(source: &Side, count: usize, mut put: impl FnMut(&[u8], usize) -> Ret) -> Result<usize, Ret> {
    let mut buffer = vec![0u8; PIECE.min(count)];
    let mut moved = 0;
    while moved < count {
        let want = buffer.len().min(count - moved);
        // SAFETY: the buffer is alive and large enough.
        let got = unsafe { io::pread(source.fd, buffer.as_mut_ptr(), want, source.at + moved as i64) };
        if got <= 0 {
            if got < 0 && moved == 0 {
                return Err(got);
            }
            break;
        }
        let done = put(&buffer[..got as usize], moved);
        if done < 0 {
            if moved == 0 {
                return Err(done);
            }
            break;
        }
        moved += done as usize;
        if done < got {
            break;
        }
    }
    Ok(moved)
}

/// `sendfile(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn sendfile(out: RawFd, source: RawFd, offset: *mut i64, count: usize) -> Ret {
    if close::is_hidden(source) || close::is_hidden(out) {
        return fail(libc::EBADF);
    }
    if !table::is_managed(source) && !table::is_managed(out) {
        // SAFETY: the caller's promise.
        return unsafe { raw!(SYS_sendfile, out, source, offset, count) };
    }
    let run = || {
        if flags(source)? & libc::O_ACCMODE == libc::O_WRONLY || flags(out)? & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(fail(libc::EBADF));
        }
        if stat(source)?.st_mode & libc::S_IFMT != libc::S_IFREG || flags(out)? & libc::O_APPEND != 0 {
            return Err(fail(libc::EINVAL));
        }
        let from = Side::new(source, offset)?;
        from.check()?;
        // SAFETY: the piece is alive and as long as it says.
        let moved =
            pump(&from, count.min(user::MOST), |piece, _| unsafe { io::write(out, piece.as_ptr(), piece.len()) })?;
        from.finish(moved)?;
        Ok(moved)
    };
    run().map_or_else(|error| error, |moved| moved as Ret)
}

/// `copy_file_range(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn copy_file_range(
    source: RawFd,
    source_offset: *mut i64,
    out: RawFd,
    out_offset: *mut i64,
    count: usize,
    copy_flags: u32,
) -> Ret {
    if close::is_hidden(source) || close::is_hidden(out) {
        return fail(libc::EBADF);
    }
    if !table::is_managed(source) && !table::is_managed(out) {
        // SAFETY: the caller's promise.
        return unsafe { raw!(SYS_copy_file_range, source, source_offset, out, out_offset, count, copy_flags) };
    }
    let run = || {
        let (from_flags, to_flags) = (flags(source)?, flags(out)?);
        let (from_stat, to_stat) = (stat(source)?, stat(out)?);
        if copy_flags != 0 {
            return Err(fail(libc::EINVAL));
        }
        if [&from_stat, &to_stat].iter().any(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR) {
            return Err(fail(libc::EISDIR));
        }
        if [&from_stat, &to_stat].iter().any(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFREG) {
            return Err(fail(libc::EINVAL));
        }
        if from_flags & libc::O_ACCMODE == libc::O_WRONLY
            || to_flags & libc::O_ACCMODE == libc::O_RDONLY
            || to_flags & libc::O_APPEND != 0
        {
            return Err(fail(libc::EBADF));
        }
        let (from, to) = (Side::new(source, source_offset)?, Side::new(out, out_offset)?);
        if [&from, &to].iter().any(|side| (side.at as u64).checked_add(count as u64).is_none()) {
            return Err(fail(libc::EOVERFLOW));
        }
        // As in the kernel: bytes beyond the end of the source do not count.
        let left = stat(source)?.st_size.saturating_sub(from.at).max(0);
        let count = count.min(user::MOST).min(left as usize);
        // An offset that no file system supports is an error, even if there is nothing to copy.
        if to.at >= 0 && table::get(out).is_some_and(|handle| !verify::offset_fits(out, &handle, to.at as u64 + 1)) {
            return Err(fail(libc::EFBIG));
        }
        from.check()?;
        to.check()?;
        let same = (from_stat.st_dev, from_stat.st_ino) == (to_stat.st_dev, to_stat.st_ino);
        if same && from.at < to.at.saturating_add(count as i64) && to.at < from.at.saturating_add(count as i64) {
            return Err(fail(libc::EINVAL));
        }
        // SAFETY: the piece is alive and as long as it says.
        let moved = pump(&from, count, |piece, moved| unsafe {
            io::pwrite(out, piece.as_ptr(), piece.len(), to.at + moved as i64)
        })?;
        from.finish(moved)?;
        to.finish(moved)?;
        Ok(moved)
    };
    run().map_or_else(|error| error, |moved| moved as Ret)
}

/// The layouts that this file relies on.
const _: () = assert!(size_of::<UserBuf>() == size_of::<libc::iovec>());
