//! Transactions.

use crate::call;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use libc::{off_t, size_t, ssize_t};

/// The handle that C sees: a number instead of a pointer.
type Handle = *mut c_void;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_begin(fd: c_int, flags: c_int) -> Handle {
    // SAFETY: no memory is passed.
    match call(|nv| unsafe { (nv.tx_begin)(fd, flags) }) {
        -1 => null_mut(),
        handle => handle as Handle,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_join(tx: Handle, fd: c_int) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.tx_join)(tx as usize, fd) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_timeout(tx: Handle, milliseconds: c_uint) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.tx_time_limit)(tx as usize, milliseconds) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_pwrite(tx: Handle, fd: c_int, from: *const u8, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.tx_pwrite)(tx as usize, fd, from, len, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_pread(tx: Handle, fd: c_int, to: *mut u8, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.tx_pread)(tx as usize, fd, to, len, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_memcpy(tx: Handle, to: *mut c_void, from: *const c_void, len: size_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    match call(|nv| unsafe { (nv.tx_memcpy)(tx as usize, to as usize, from.cast(), len) }) {
        -1 => null_mut(),
        _ => to,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_ftruncate(tx: Handle, fd: c_int, size: off_t) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.tx_ftruncate)(tx as usize, fd, size) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_commit(tx: Handle) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.tx_commit)(tx as usize) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtx_abort(tx: Handle) {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.tx_abort)(tx as usize) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrollback(fd: c_int) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.rollback)(fd) }) as c_int
}
