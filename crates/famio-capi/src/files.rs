//! Files.

use crate::call;
use core::ffi::{c_char, c_int, c_uint};
use famio::file::UserBuf;
use libc::{off_t, size_t, ssize_t};

// In C, these two are variadic. On the supported machines, an argument is passed in the same register whether it is
// named or not; `mode` is ignored without `O_CREAT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvopen(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.open)(libc::AT_FDCWD, path, flags, mode) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvopenat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.open)(folder, path, flags, mode) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvclose(fd: c_int) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.close)(fd) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvread(fd: c_int, to: *mut u8, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.read)(fd, to, len) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvwrite(fd: c_int, from: *const u8, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.write)(fd, from, len) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvpread(fd: c_int, to: *mut u8, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.pread)(fd, to, len, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvpwrite(fd: c_int, from: *const u8, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.pwrite)(fd, from, len, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvreadv(fd: c_int, bufs: *const UserBuf, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.readv)(fd, bufs, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvwritev(fd: c_int, bufs: *const UserBuf, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.writev)(fd, bufs, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvpreadv(fd: c_int, bufs: *const UserBuf, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.preadv)(fd, bufs, count, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvpwritev(fd: c_int, bufs: *const UserBuf, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.pwritev)(fd, bufs, count, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvlseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.lseek)(fd, offset, whence) }) as off_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfsync(fd: c_int) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.fsync)(fd) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfdatasync(fd: c_int) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.fdatasync)(fd) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvftruncate(fd: c_int, size: off_t) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.ftruncate)(fd, size) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfstat(fd: c_int, shown: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.fstat)(fd, shown) }) as c_int
}
