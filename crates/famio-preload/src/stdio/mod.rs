//! Streams. libc's own make their system calls past the library, so a stream of an atomic file is one of another
//! kind, with libc's buffer and the library's calls behind it. Where that is impossible (`freopen` of libc's streams,
//! character conversion), the file is demoted first.

mod mode;
pub mod seek;
mod stream;
pub mod wide;

pub use mode::Mode;
pub use stream::flush_all;

use crate::entry::{REFUSED, is_refused};
use crate::next::Next;
use crate::outcome::{finish, set_errno};
use core::ffi::c_char;
use core::ptr::null_mut;
use famio::posix;
use libc::FILE;

fn missing() -> *mut FILE {
    set_errno(-(libc::ENOSYS as isize));
    null_mut()
}

fn missing_number() -> i32 {
    set_errno(-(libc::ENOSYS as isize));
    -1
}

fn failed(error: isize) -> *mut FILE {
    set_errno(error);
    null_mut()
}

/// Before libc opens `path` for a stream of its own, which the library does not see: makes the file ordinary. Returns
/// whether the stream must be tracked, or a negated errno.
unsafe fn opening(path: *const c_char, mode: Option<Mode>, why: &str) -> isize {
    // SAFETY: the caller's promise.
    quietly(|| unsafe { posix::stream_opening(path, mode.map_or(libc::O_RDONLY, |mode| mode.flags), why) })
}

/// # Safety
/// As libc's.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    static NEXT: Next = Next::new(c"fopen");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        let asked = Mode::of(mode);
        if let Some(asked) = asked.filter(|asked| !asked.converts)
            && posix::may_be_atomic(path, asked.flags)
        {
            return open_ours(path, mode, asked);
        }
        // It was examined above and not selected; but it may be ordinary only while another stream is open.
        let done = asked.is_some_and(|asked| !asked.converts) && !posix::streams_matter();
        let converts = asked.is_none_or(|asked| asked.converts);
        let why = if converts { "fopen(3) with ccs=" } else { "fopen(3) of a file that another stream has open" };
        let follow = if done { 0 } else { opening(path, asked, why) };
        if follow < 0 {
            return failed(follow);
        }
        match NEXT.get::<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE>() {
            Some(next) => noted(next(path, mode), follow),
            None => missing(),
        }
    }
}

/// `fopen` of a file that may be atomic.
unsafe fn open_ours(path: *const c_char, mode: *const c_char, asked: Mode) -> *mut FILE {
    // SAFETY: the caller's promise.
    let fd = finish(|| unsafe { posix::openat(libc::AT_FDCWD, path, asked.flags, 0o666) }) as i32;
    if fd < 0 {
        return null_mut();
    }
    // `fdopen` does this only where it has to set `O_APPEND`.
    if asked.begins_at_end() {
        to_the_end(fd);
    }
    if !posix::table::is_managed(fd) {
        // SAFETY: a fresh descriptor, and the caller's mode.
        return unsafe { libcs_fdopen(fd, mode) };
    }
    let stream = stream::over(fd, asked);
    if stream.is_null() {
        quietly(|| posix::close(fd));
    }
    stream
}

fn to_the_end(fd: i32) {
    quietly(|| posix::lseek(fd, 0, libc::SEEK_END) as isize);
}

unsafe fn libcs_fdopen(fd: i32, mode: *const c_char) -> *mut FILE {
    static NEXT: Next = Next::new(c"fdopen");
    // SAFETY: the caller's promise; the type is that function's.
    match unsafe { NEXT.get::<unsafe extern "C" fn(i32, *const c_char) -> *mut FILE>() } {
        // SAFETY: the caller's promise.
        Some(next) => unsafe { next(fd, mode) },
        None => missing(),
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fdopen(fd: i32, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        if is_refused(fd) {
            return failed(REFUSED);
        }
        let asked = Mode::of(mode);
        let Some(asked) = asked.filter(|_| posix::table::is_managed(fd)) else { return libcs_fdopen(fd, mode) };
        if asked.converts {
            let demoted = quietly(|| posix::demote_for_stream(fd, "fdopen(3) with ccs="));
            return if demoted < 0 { failed(demoted) } else { libcs_fdopen(fd, mode) };
        }
        let flags = quietly(|| posix::fcntl(fd, libc::F_GETFL, 0));
        if flags < 0 {
            return failed(flags);
        }
        let has = flags as i32 & libc::O_ACCMODE;
        if has != libc::O_RDWR && has != asked.access() {
            return failed(-(libc::EINVAL as isize));
        }
        if asked.appends() && flags as i32 & libc::O_APPEND == 0 {
            let set = quietly(|| posix::fcntl(fd, libc::F_SETFL, flags as usize | libc::O_APPEND as usize));
            if set < 0 {
                return failed(set);
            }
            // As libc: a descriptor that appends already stays where it is.
            if asked.begins_at_end() {
                to_the_end(fd);
            }
        }
        stream::over(fd, asked)
    }
}

/// # Safety
/// As libc's.
pub unsafe fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    static NEXT: Next = Next::new(c"freopen");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        if let Some(fd) = stream::descriptor(stream) {
            return reopen_ours(path, mode, stream, fd);
        }
        let mut follow = 0;
        // Without a path, the stream's own file is opened again.
        if !path.is_null() {
            closing(stream);
            follow = opening(path, Mode::of(mode), "freopen(3)");
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

/// `freopen` of a stream of this library: puts another file behind the same number. As in libc, a failure closes the
/// stream.
unsafe fn reopen_ours(path: *const c_char, mode: *const c_char, stream: *mut FILE, fd: i32) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        libc::fflush(stream);
        let asked = Mode::of(mode).filter(|asked| !asked.converts && !path.is_null());
        // libc does not allow a stream of this kind to change whether it reads, writes and appends.
        let Some(asked) = asked.filter(|asked| stream::mode(stream).is_some_and(|has| has.plain() == asked.plain()))
        else {
            fclose(stream);
            famio::sys::notice("freopen(3) refused: the stream of an atomic file keeps its mode; use fclose and fopen");
            return failed(-(libc::EOPNOTSUPP as isize));
        };
        let new = finish(|| posix::openat(libc::AT_FDCWD, path, asked.flags | libc::O_CLOEXEC, 0o666)) as i32;
        let moved = if new < 0 {
            -1
        } else {
            let moved = finish(|| posix::dup3(new, fd, asked.flags & libc::O_CLOEXEC));
            quietly(|| posix::close(new));
            moved
        };
        if moved < 0 {
            quietly(|| {
                fclose(stream);
                0
            });
            return null_mut();
        }
        __fpurge(stream);
        libc::clearerr(stream);
        // libc remembers an offset in the former file.
        libc::fseeko(stream, 0, if asked.begins_at_end() { libc::SEEK_END } else { libc::SEEK_SET });
        stream
    }
}

unsafe extern "C" {
    fn __fpurge(stream: *mut FILE);
}

/// # Safety
/// As libc's.
pub unsafe fn fclose(stream: *mut FILE) -> i32 {
    static NEXT: Next = Next::new(c"fclose");
    // SAFETY: the caller's promise; the type is that function's.
    unsafe {
        if stream::descriptor(stream).is_some() {
            stream::forget(stream);
        } else {
            closing(stream);
            if fileno(stream) == libc::STDERR_FILENO {
                posix::process::report_before_close();
            }
        }
        match NEXT.get::<unsafe extern "C" fn(*mut FILE) -> i32>() {
            Some(next) => next(stream),
            None => libc::EOF,
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe fn fileno(stream: *mut FILE) -> i32 {
    static NEXT: Next = Next::new(c"fileno");
    if let Some(fd) = stream::descriptor(stream) {
        return fd;
    }
    // SAFETY: the caller's promise; the type is that function's.
    match unsafe { NEXT.get::<unsafe extern "C" fn(*mut FILE) -> i32>() } {
        // SAFETY: the caller's promise.
        Some(next) => unsafe { next(stream) },
        None => missing_number(),
    }
}

/// Runs `call`, and leaves errno unchanged.
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
                fileno(stream)
            };
            posix::stream_closing(stream as usize, fd);
            0
        });
    }
}

/// Drops a stale table entry for the new stream's descriptor.
unsafe fn noted(stream: *mut FILE, follow: isize) -> *mut FILE {
    if !stream.is_null() && (follow > 0 || posix::table::any()) {
        // SAFETY: libc has just made it.
        let fd = unsafe { fileno(stream) };
        quietly(|| {
            posix::stream_opened(stream as usize, fd, follow > 0);
            0
        });
    }
    stream
}
