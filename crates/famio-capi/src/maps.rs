//! Maps.

use crate::call;
use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmmap(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise. -1 is MAP_FAILED.
    call(|nv| unsafe { (nv.mmap)(at as usize, len, prot, flags, fd, offset) }) as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmunmap(at: *mut c_void, len: size_t) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.munmap)(at as usize, len) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmsync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // SAFETY: changes no memory.
    call(|nv| unsafe { (nv.msync)(at as usize, len, flags) }) as c_int
}

/// Variadic in C: see `nvopen`. `target` is ignored without `MREMAP_FIXED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmremap(
    at: *mut c_void,
    old: size_t,
    len: size_t,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    let target = if flags & libc::MREMAP_FIXED != 0 { target as usize } else { 0 };
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.mremap)(at as usize, old, len, flags, target) }) as *mut c_void
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvadvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    // SAFETY: changes no memory.
    call(|nv| unsafe { (nv.advise)(at as usize, len, advice) }) as c_int
}
