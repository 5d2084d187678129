//! The interface of vNVML: `include/famio_vnvml.h`.

use crate::call;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use famio::posix::Ret;
use libc::{size_t, ssize_t};

/// The handle that C sees: a number instead of a pointer.
type Handle = *mut c_void;

/// An address or a handle; null for an error.
fn given(result: Ret) -> *mut c_void {
    if result == -1 { null_mut() } else { result as *mut c_void }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_init(pool: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.vnvml_init)(pool) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_release() -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.vnvml_release)() }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_allocate(path: *const c_char, size: size_t, kind: c_int) -> *mut c_void {
    // SAFETY: the caller's promise.
    given(call(|nv| unsafe { (nv.vnvml_allocate)(path, size, kind) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_free(region: *mut c_void) -> c_int {
    // SAFETY: only an address; the caller does not use the region any more.
    call(|nv| unsafe { (nv.vnvml_free)(region as usize) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_trim(region: *mut c_void) -> ssize_t {
    // SAFETY: only an address; no bytes change.
    call(|nv| unsafe { (nv.vnvml_trim)(region as usize) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_txbegin() -> Handle {
    // SAFETY: no memory is passed.
    given(call(|nv| unsafe { (nv.vnvml_begin)() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_write(tx: Handle, to: *mut c_void, from: *const c_void, len: size_t) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.vnvml_write)(tx as usize, to as usize, from.cast(), len) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_commit(tx: Handle) -> c_int {
    // SAFETY: no memory is passed.
    call(|nv| unsafe { (nv.vnvml_commit)(tx as usize) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_abort(tx: Handle) -> c_int {
    // SAFETY: no memory is passed but what is restored.
    call(|nv| unsafe { (nv.vnvml_abort)(tx as usize) }) as c_int
}
