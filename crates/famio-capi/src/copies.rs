//! Copies: they return the destination, or null and errno.

use crate::call;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use famio::posix::Ret;
use libc::size_t;

#[inline]
fn given(to: *mut c_void, result: Ret) -> *mut c_void {
    if result < 0 { null_mut() } else { to }
}

/// As `nvmemmove`: if both sides are maps of the same bytes, their addresses do not show whether they overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmemcpy(to: *mut c_void, from: *const c_void, len: size_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    given(to, call(|nv| unsafe { (nv.memmove)(to.cast(), from.cast(), len) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmemmove(to: *mut c_void, from: *const c_void, len: size_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    given(to, call(|nv| unsafe { (nv.memmove)(to.cast(), from.cast(), len) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmemset(to: *mut c_void, byte: c_int, len: size_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    given(to, call(|nv| unsafe { (nv.memset)(to.cast(), byte, len) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvstrcpy(to: *mut c_void, from: *const c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    given(to, call(|nv| unsafe { (nv.strcpy)(to.cast(), from.cast()) }))
}
