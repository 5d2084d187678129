//! Seeks. In a stream of our kind, libc's flush before a seek goes wrong after a read: it steps back over what was read
//! ahead, notes that place, and does not add what it then writes, as it does for its own files (a cookie's function
//! cannot tell it). So the seek would begin before those bytes. With nothing left to write, libc asks for the place.

use super::{missing_number, stream};
use crate::next::Next;
use core::ffi::{c_int, c_long};
use libc::{FILE, fpos_t};

unsafe extern "C" {
    fn __fpending(stream: *mut FILE) -> usize;
    fn clearerr_unlocked(stream: *mut FILE);
    fn fflush_unlocked(stream: *mut FILE) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// `seek`, after what a stream of ours holds has been written; no thread gets in between. `failed`, as in libc, if
/// that cannot be written.
unsafe fn after_writing<T>(stream: *mut FILE, failed: impl FnOnce() -> T, seek: impl FnOnce() -> T) -> T {
    if stream::descriptor(stream).is_none() {
        return seek();
    }
    // SAFETY: an open stream, whose lock this thread has from here on.
    unsafe {
        flockfile(stream);
        // If it holds nothing, a flush would be a seek, and drop what `ungetc` has put back.
        let written = __fpending(stream) == 0 || fflush_unlocked(stream) == 0;
        let done = if written { seek() } else { failed() };
        funlockfile(stream);
        done
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
    static NEXT: Next = Next::new(c"fseek");
    type Seek = unsafe extern "C" fn(*mut FILE, c_long, c_int) -> c_int;
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let seek = || NEXT.get::<Seek>().map_or_else(missing_number, |next| next(stream, offset, whence));
        after_writing(stream, || -1, seek)
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fseeko(stream: *mut FILE, offset: i64, whence: c_int) -> c_int {
    static NEXT: Next = Next::new(c"fseeko64");
    type Seek = unsafe extern "C" fn(*mut FILE, i64, c_int) -> c_int;
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let seek = || NEXT.get::<Seek>().map_or_else(missing_number, |next| next(stream, offset, whence));
        after_writing(stream, || -1, seek)
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fsetpos(stream: *mut FILE, position: *const fpos_t) -> c_int {
    static NEXT: Next = Next::new(c"fsetpos64");
    type Set = unsafe extern "C" fn(*mut FILE, *const fpos_t) -> c_int;
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let set = || NEXT.get::<Set>().map_or_else(missing_number, |next| next(stream, position));
        after_writing(stream, || -1, set)
    }
}

/// # Safety
/// As libc's.
pub unsafe fn rewind(stream: *mut FILE) {
    static NEXT: Next = Next::new(c"rewind");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let rewind = || NEXT.get::<unsafe extern "C" fn(*mut FILE)>().map_or((), |next| next(stream));
        // libc's hides the error, too.
        after_writing(stream, || clearerr_unlocked(stream), rewind);
    }
}
