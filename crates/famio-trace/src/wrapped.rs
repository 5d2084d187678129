//! What the exported wrappers call, before and after libc's function.

use crate::look::{Look, before};
use crate::record;
use core::ptr;

/// For the wrappers.
///
/// # Safety
/// `arguments` are the call's six arguments; `look` has room for a [`Look`].
#[unsafe(no_mangle)]
unsafe extern "C" fn famio_trace_before(kind: u32, arguments: *const [isize; 6], look: *mut Look) {
    // SAFETY: the caller's promise.
    unsafe { ptr::write(look, before(kind, &*arguments)) };
}

/// For the wrappers.
///
/// # Safety
/// As [`famio_trace_before`], which has filled `look`.
#[unsafe(no_mangle)]
unsafe extern "C" fn famio_trace_after(kind: u32, arguments: *const [isize; 6], result: isize, look: *const Look) {
    // SAFETY: the caller's promise.
    unsafe { record::after(kind, &*arguments, result, &*look) };
}
