//! libc's streams: their reads and writes are not seen, so a file that gets one is handed back first.

use crate::next::Next;
use crate::outcome::set_errno;
use core::ffi::c_char;
use core::ptr::null_mut;
use famio::posix;
use libc::FILE;

fn missing() -> *mut FILE {
    set_errno(-(libc::ENOSYS as isize));
    null_mut()
}

fn failed(error: isize) -> *mut FILE {
    set_errno(error);
    null_mut()
}

/// Whether a stream of this mode writes. A bad pointer is libc's to fault on.
unsafe fn writes(mode: *const c_char) -> bool {
    // SAFETY: the caller's promise: a C string, as libc would read it.
    !mode.is_null() && unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes().iter().any(|byte| b"wa+".contains(byte))
}

/// # Safety
/// As libc's.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    static NEXT: Next = Next::new(c"fopen");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let follow = quietly(|| posix::stream_opening(path, writes(mode), "fopen(3)"));
        if follow < 0 {
            return failed(follow);
        }
        match NEXT.get::<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE>() {
            Some(next) => noted(next(path, mode), follow),
            None => missing(),
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    static NEXT: Next = Next::new(c"freopen");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let mut follow = 0;
        // Without a path the stream's own file is opened again: it was handed back when the stream was made.
        if !path.is_null() {
            closing(stream);
            follow = quietly(|| posix::stream_opening(path, writes(mode), "freopen(3)"));
            if follow < 0 {
                return failed(follow);
            }
        }
        match NEXT.get::<unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE>() {
            Some(next) => noted(next(path, mode, stream), follow),
            None => missing(),
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fdopen(fd: i32, mode: *const c_char) -> *mut FILE {
    static NEXT: Next = Next::new(c"fdopen");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let demoted = quietly(|| posix::demote_for_stream(fd, "fdopen(3)"));
        if demoted < 0 {
            return failed(demoted);
        }
        match NEXT.get::<unsafe extern "C" fn(i32, *const c_char) -> *mut FILE>() {
            Some(next) => next(fd, mode),
            None => missing(),
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fclose(stream: *mut FILE) -> i32 {
    static NEXT: Next = Next::new(c"fclose");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        closing(stream);
        match NEXT.get::<unsafe extern "C" fn(*mut FILE) -> i32>() {
            Some(next) => next(stream),
            None => libc::EOF,
        }
    }
}

/// Runs `call` with errno left as it was.
fn quietly(call: impl FnOnce() -> isize) -> isize {
    let errno = crate::outcome::errno();
    // SAFETY: the thread's errno lives as long as the thread.
    unsafe {
        let before = *errno;
        let result = call();
        *errno = before;
        result
    }
}

/// Before the stream's descriptor is closed.
unsafe fn closing(stream: *mut FILE) {
    if posix::streams_matter() && !stream.is_null() {
        quietly(|| {
            // SAFETY: the stream is open: the caller's promise.
            let fd = unsafe {
                libc::fflush(stream);
                libc::fileno(stream)
            };
            posix::stream_closing(stream as usize, fd);
            0
        });
    }
}

/// The new stream's descriptor is a fresh one.
unsafe fn noted(stream: *mut FILE, follow: isize) -> *mut FILE {
    if !stream.is_null() && (follow > 0 || posix::table::any()) {
        // SAFETY: libc has just made it.
        let fd = unsafe { libc::fileno(stream) };
        quietly(|| {
            posix::stream_opened(stream as usize, fd, follow > 0);
            0
        });
    }
    stream
}
