//! Copies between memory and maps, by address.

use crate::error::Result;
use crate::file::shadow::{Bytes, copy as copy_bytes, is_mapped_at, string_length};

/// Copies `len` bytes from `from` to `to`, as `memmove`. Each may lie in a map of an atomic file, partly or
/// completely, or elsewhere. Bytes copied to a map belong to its file's open epoch, like stores through pointers and
/// writes by calls: the next SYNC after the return commits them. A concurrent SYNC may commit a part, and the next
/// one the rest.
///
/// An invalid address causes a fault, as in `memmove`.
///
/// # Errors
/// `ENXIO`: a map is accessed beyond the end of its file. `EACCES`: `to` is a read-only map. Nothing was copied then,
/// unless the file was cut at the same time. `ENOMEM`: the machine is out of memory; a part may have been copied.
///
/// # Safety
/// As `memmove`.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(to, Bytes::From(from), len) }
}

/// Sets `len` bytes at `to`, as `memset`; otherwise as [`copy`].
///
/// # Errors
/// As [`copy`].
///
/// # Safety
/// As `memset`.
#[inline]
pub unsafe fn set(to: *mut u8, byte: u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(to, Bytes::Of(byte), len) }
}

/// Copies a string with its terminating zero, as `strcpy`; otherwise as [`copy`].
///
/// # Errors
/// As [`copy`]. `ENXIO` also: the string is in a map, and does not end before its file does.
///
/// # Safety
/// As `strcpy`.
pub unsafe fn copy_string(to: *mut u8, from: *const u8) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(to, Bytes::From(from), string_length(from)?) }
}

/// Whether a map of an atomic file lies at `address`: the search with which every copy begins.
#[inline]
pub fn find_region(address: usize) -> bool {
    is_mapped_at(address)
}
