//! `splice(2)` between an atomic file and a pipe. The kernel handles the pipe's side: how much fits, and whether to
//! wait.

use super::copy::{Side, flags, stat};
use crate::posix::call::user;
use crate::posix::data::io;
use crate::posix::descriptors::{close, table};
use crate::posix::{Ret, fail, raw};
use crate::sys::high_duplicate;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes moved by one call: the default capacity of a pipe. Callers must repeat short splices anyway.
const MOST: usize = 64 << 10;
const KNOWN: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// `splice(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn splice(
    source: RawFd,
    source_offset: *mut i64,
    out: RawFd,
    out_offset: *mut i64,
    count: usize,
    splice_flags: u32,
) -> Ret {
    if close::is_hidden(source) || close::is_hidden(out) {
        return fail(libc::EBADF);
    }
    let moved = match (table::is_managed(source), table::is_managed(out)) {
        // SAFETY: the caller's promise.
        (false, false) => unsafe {
            return raw!(SYS_splice, source, source_offset, out, out_offset, count, splice_flags);
        },
        _ if count == 0 => Ok(0),
        _ if splice_flags & !KNOWN != 0 => Err(fail(libc::EINVAL)),
        (to_pipe_end, _) => check(source, source_offset, out, out_offset).and_then(|()| match to_pipe_end {
            _ if count > isize::MAX as usize => Err(fail(libc::EINVAL)),
            true => to_pipe(source, source_offset, out, count, splice_flags),
            false => from_pipe(source, out, out_offset, count, splice_flags),
        }),
    };
    moved.map_or_else(|error| error, |moved| moved as Ret)
}

/// The kernel's checks of the two ends, in its order. One of them is a pipe.
fn check(source: RawFd, source_offset: *mut i64, out: RawFd, out_offset: *mut i64) -> Result<(), Ret> {
    let is_pipe = |fd| Ok::<_, Ret>(stat(fd)?.st_mode & libc::S_IFMT == libc::S_IFIFO);
    let (from_flags, to_flags) = (flags(source)?, flags(out)?);
    let (from_pipe, to_pipe) = (is_pipe(source)?, is_pipe(out)?);
    for (pipe, offset) in [(from_pipe, source_offset), (to_pipe, out_offset)] {
        if pipe && !offset.is_null() {
            return Err(fail(libc::ESPIPE));
        }
        if !offset.is_null() {
            // SAFETY: any bytes are a number.
            unsafe { user::get(offset) }.map_err(|error| fail(error.errno()))?;
        }
    }
    if from_flags & libc::O_ACCMODE == libc::O_WRONLY || to_flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(fail(libc::EBADF));
    }
    if from_pipe || to_pipe { Ok(()) } else { Err(fail(libc::EINVAL)) }
}

fn owned(fd: Ret) -> Result<OwnedFd, Ret> {
    // SAFETY: the kernel has just given it to us.
    if fd < 0 { Err(fd) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }) }
}

fn done(result: Ret) -> Result<usize, Ret> {
    if result < 0 { Err(result) } else { Ok(result as usize) }
}

/// Through a memory file, from which the kernel splices.
fn to_pipe(source: RawFd, offset: *mut i64, pipe: RawFd, count: usize, splice_flags: u32) -> Result<usize, Ret> {
    let from = Side::new(source, offset)?;
    from.check()?;
    let mut buffer = vec![0u8; MOST.min(count)];
    // SAFETY: the buffer is alive and as long as it says.
    let got = done(unsafe { io::pread(source, buffer.as_mut_ptr(), buffer.len(), from.at) })?;
    if got == 0 {
        return Ok(0);
    }
    let aside = crate::sys::internal::make("/memfd:famio", || {
        rustix::fs::memfd_create(c"famio", rustix::fs::MemfdFlags::CLOEXEC)
    });
    let aside = aside.map_err(|error| fail(error.raw_os_error()))?;
    // SAFETY: a buffer that is alive.
    let moved = unsafe {
        let kept = done(raw!(SYS_pwrite64, aside.as_raw_fd(), buffer.as_ptr(), got, 0))?;
        let mut at = 0i64;
        done(raw!(SYS_splice, aside.as_raw_fd(), &raw mut at, pipe, 0, kept, splice_flags))?
    };
    from.finish(moved)?;
    Ok(moved)
}

/// Through a second pipe that gets a copy, so that what cannot be written stays in the first.
fn from_pipe(pipe: RawFd, out: RawFd, offset: *mut i64, count: usize, splice_flags: u32) -> Result<usize, Ret> {
    if flags(out)? & libc::O_APPEND != 0 {
        return Err(fail(libc::EINVAL));
    }
    let to = Side::new(out, offset)?;
    to.check()?;
    let mut ends: [RawFd; 2] = [-1; 2];
    let mut buffer = vec![0u8; MOST.min(count)];
    // SAFETY: two numbers and a buffer that are alive.
    unsafe {
        let (reader, writer) = {
            let _passing = crate::posix::passing();
            done(raw!(SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC))?;
            let (reader, writer) = (owned(ends[0] as Ret)?, owned(ends[1] as Ret)?);
            let high = |end: &OwnedFd| high_duplicate(end.as_fd()).map_err(|error| fail(error.errno()));
            (high(&reader)?, high(&writer)?)
        };
        // Waits as the caller's call would; 0: the other end is closed.
        let wait = splice_flags & libc::SPLICE_F_NONBLOCK;
        let there = done(raw!(SYS_tee, pipe, writer.as_raw_fd(), buffer.len(), wait))?;
        if there == 0 {
            return Ok(0);
        }
        let got = done(raw!(SYS_read, reader.as_raw_fd(), buffer.as_mut_ptr(), there))?;
        let written = done(io::pwrite(out, buffer.as_ptr(), got, to.at))?;
        let mut left = written;
        while left > 0 {
            left -= done(raw!(SYS_read, pipe, buffer.as_mut_ptr(), left))?.max(1);
        }
        to.finish(written)?;
        Ok(written)
    }
}
