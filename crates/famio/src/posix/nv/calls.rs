//! The calls themselves. A call with a POSIX name is that of `posix`; on a descriptor that is not an atomic file's,
//! it is the kernel's.
#![allow(
    clippy::missing_safety_doc,
    reason = "each as the call of that name, with memory that may be bad where that is a system call"
)]

use super::recover as recovery;
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::map::Advice;
use crate::posix;
use crate::posix::descriptors::table;
use crate::posix::life::by_program;
use crate::posix::runtime::message;
use crate::posix::runtime::message::caught;
use crate::posix::{Ret, fail};
use crate::region;
use core::ffi::{c_char, c_void};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Turns an error into a result, and keeps its message.
pub(super) fn to_ret<T>(result: Result<T>, value: impl FnOnce(T) -> Ret) -> Ret {
    match result {
        Ok(done) => value(done),
        Err(error) => {
            if let Some(detail) = error.detail() {
                message::keep(detail);
            }
            fail(error.errno())
        }
    }
}

pub(super) unsafe extern "C" fn start() -> Ret {
    caught(|| to_ret(by_program::start(), |()| 0))
}

pub(super) unsafe extern "C" fn open(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    caught(|| {
        let started = to_ret(by_program::start(), |()| 0);
        if started < 0 {
            return started;
        }
        // SAFETY: the caller's promise.
        unsafe { posix::openat(dirfd, path, flags | posix::O_ATOMIC, mode) }
    })
}

pub(super) unsafe extern "C" fn close(fd: RawFd) -> Ret {
    caught(|| posix::close(fd))
}

pub(super) unsafe extern "C" fn read(fd: RawFd, to: *mut u8, len: usize) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::read(fd, to, len) })
}

pub(super) unsafe extern "C" fn write(fd: RawFd, from: *const u8, len: usize) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::write(fd, from, len) })
}

pub(super) unsafe extern "C" fn pread(fd: RawFd, to: *mut u8, len: usize, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::pread(fd, to, len, offset) })
}

pub(super) unsafe extern "C" fn pwrite(fd: RawFd, from: *const u8, len: usize, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::pwrite(fd, from, len, offset) })
}

pub(super) unsafe extern "C" fn readv(fd: RawFd, bufs: *const UserBuf, count: i32) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::readv(fd, bufs, count as usize) })
}

pub(super) unsafe extern "C" fn writev(fd: RawFd, bufs: *const UserBuf, count: i32) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::writev(fd, bufs, count as usize) })
}

pub(super) unsafe extern "C" fn preadv(fd: RawFd, bufs: *const UserBuf, count: i32, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::preadv(fd, bufs, count as usize, offset) })
}

pub(super) unsafe extern "C" fn pwritev(fd: RawFd, bufs: *const UserBuf, count: i32, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::pwritev(fd, bufs, count as usize, offset) })
}

pub(super) unsafe extern "C" fn lseek(fd: RawFd, offset: i64, whence: i32) -> Ret {
    caught(|| posix::lseek(fd, offset, whence))
}

pub(super) unsafe extern "C" fn fsync(fd: RawFd) -> Ret {
    caught(|| posix::fsync(fd))
}

pub(super) unsafe extern "C" fn fdatasync(fd: RawFd) -> Ret {
    caught(|| posix::fdatasync(fd))
}

pub(super) unsafe extern "C" fn ftruncate(fd: RawFd, size: i64) -> Ret {
    caught(|| posix::ftruncate(fd, size))
}

pub(super) unsafe extern "C" fn fstat(fd: RawFd, shown: *mut libc::stat) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::fstat(fd, shown) })
}

pub(super) unsafe extern "C" fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::map_region(addr, len, prot, flags, fd, offset) })
}

pub(super) unsafe extern "C" fn munmap(addr: usize, len: usize) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::munmap(addr, len) })
}

pub(super) unsafe extern "C" fn msync(addr: usize, len: usize, flags: i32) -> Ret {
    caught(|| posix::msync(addr, len, flags))
}

pub(super) unsafe extern "C" fn mremap(addr: usize, old: usize, len: usize, flags: i32, target: usize) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { posix::mremap(addr, old, len, flags, target) })
}

pub(super) unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> Ret {
    // No frame here catches: a fault in the caller's memory unwinds from here.
    // SAFETY: the caller's promise.
    match unsafe { region::copy(to, from, len) } {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

pub(super) unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> Ret {
    // SAFETY: the caller's promise.
    match unsafe { region::set(to, byte as u8, len) } {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

pub(super) unsafe extern "C" fn strcpy(to: *mut u8, from: *const u8) -> Ret {
    // SAFETY: the caller's promise.
    match unsafe { region::copy_string(to, from) } {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

#[cold]
fn failed(error: &Error) -> Ret {
    caught(|| {
        message::keep(match error.errno() {
            libc::ENXIO => "a map is used beyond the end of its file: make that longer first (nvftruncate)",
            libc::EACCES => "a map is stored to that was made for reading",
            _ => return fail(error.errno()),
        });
        fail(error.errno())
    })
}

pub(super) unsafe extern "C" fn advise(addr: usize, len: usize, advice: i32) -> Ret {
    caught(|| {
        let Some(advice) = Advice::from_posix(advice) else { return fail(libc::EINVAL) };
        to_ret(region::advise(addr, len, advice), |()| 0)
    })
}

pub(super) unsafe extern "C" fn recover(path: *const c_char, flags: i32) -> Ret {
    caught(|| {
        if path.is_null() {
            return fail(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        to_ret(by_program::start().and_then(|()| recovery::recover(path, flags)), |files| files as Ret)
    })
}

pub(super) unsafe extern "C" fn counters(fd: RawFd, shown: *mut c_void, len: usize) -> Ret {
    caught(|| {
        let Some(handle) = table::get(fd) else { return fail(libc::EBADF) };
        if let Err(error) = handle.check_ours() {
            return fail(error.errno());
        }
        let counters = handle.file().counters();
        let n = len.min(size_of_val(&counters));
        // SAFETY: the caller's promise of `len` bytes; a program built with another version has fewer or more.
        unsafe {
            core::ptr::copy_nonoverlapping((&raw const counters).cast::<u8>(), shown.cast(), n);
            core::ptr::write_bytes(shown.cast::<u8>().add(n), 0, len - n);
        }
        0
    })
}

/// Writes the message of this thread's last error; returns the errno.
pub(super) unsafe extern "C" fn message(to: *mut c_char, len: usize) -> Ret {
    // SAFETY: the caller's promise.
    caught(|| unsafe { message::write(to, len) as Ret })
}
