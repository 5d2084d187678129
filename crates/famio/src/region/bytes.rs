//! Copies between memory and maps, by address.

use crate::error::Result;
use crate::file::shadow::{Bytes, copy as copy_bytes, is_mapped_at, string_length};

/// Copies `len` bytes from `from` to `to`, as `memmove`. Each may lie in a map of an atomic file, in part too, or not. What goes
/// to a map is part of its file's open epoch, with all that is stored there through pointers and written by calls: the next
/// SYNC after the return commits it. A SYNC that runs at the same time may commit a part of it, and the next the rest.
///
/// Memory that neither is mapped nor can be is a fault of the caller's, as in `memmove`.
///
/// # Errors
/// `ENXIO`: a map is used beyond the end of its file. `EACCES`: `to` is a map that may not be stored to. Nothing was copied then,
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

/// Copies a string with its end, as `strcpy`; otherwise as [`copy`].
///
/// # Errors
/// As [`copy`]. `ENXIO` also: the string is in a map, and has no end before its file's.
///
/// # Safety
/// As `strcpy`.
pub unsafe fn copy_string(to: *mut u8, from: *const u8) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(to, Bytes::From(from), string_length(from)?) }
}

/// Whether a map of an atomic file lies at `address`: the search that every copy begins with.
#[inline]
pub fn find_region(address: usize) -> bool {
    is_mapped_at(address)
}
