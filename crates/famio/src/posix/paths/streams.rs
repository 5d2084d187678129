//! libc's own streams, for the cases in which those of `famio-preload` (`stdio`) cannot replace them: the library does
//! not see their reads and writes. So a file that is open here as an atomic file is demoted; any other file is
//! recovered, and is ordinary while the stream is open.

use super::open_atomic::leads_to_other_file;
use crate::error::Error;
use crate::file::{AtomicFile, OpenedBy};
use crate::posix::call::lock;
use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::descriptors::demote::demote_file;
use crate::posix::descriptors::{table, verify};
use crate::posix::runtime::say::{say, say_error};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::ordinary;
use crate::posix::selection::ordinary::Identity;
use crate::posix::selection::path_text;
use crate::posix::{Ret, fail, raw};
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// Before libc opens `path` with these flags: returns whether the stream must be tracked (1) or not (0), or a negated
/// errno.
///
/// # Safety
/// As `open(2)`: bad memory is left to libc's call.
pub unsafe fn stream_opening(path: *const c_char, flags: i32, why: &str) -> Ret {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // SAFETY: the caller's promise; `wanted` has the kernel check the path first.
    let Some(config) = (unsafe { super::selected::wanted(libc::AT_FDCWD, path, flags & libc::O_CREAT, false) }) else {
        return 0;
    };
    if lock::not_reentered().is_err() || in_vfork_child() {
        return fail(libc::EDEADLK);
    }
    // SAFETY: `wanted` found the path good.
    let said = unsafe { CStr::from_ptr(path) };
    if writes {
        say(said, &format!("written through {why}: what a stream writes is not atomic"));
    }
    // SAFETY: as above.
    let Ok(stat) = (unsafe { stat_at(libc::AT_FDCWD, path, 0) }) else { return 1 };
    if let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino) {
        let mut result = None;
        table::for_each(0, u32::MAX, |fd, handle| {
            if result.is_none() && handle.is_ours() && Arc::ptr_eq(handle.file(), &file) {
                result = Some(match demote_file(&file, handle.path(), fd, why) {
                    Ok(()) => 0,
                    Err(error) => verify::failed(handle, &error),
                });
            }
        });
        if let Some(result) = result {
            return result;
        }
    }
    // Opening the file recovers it from a journal that a crash left.
    // SAFETY: as above; the descriptor is ours until it is closed below.
    unsafe {
        let mut fd =
            crate::posix::with_number(|| raw!(SYS_openat, libc::AT_FDCWD, path, libc::O_RDWR | libc::O_CLOEXEC, 0));
        let access = if fd < 0 { libc::O_RDONLY } else { libc::O_RDWR };
        if fd < 0 {
            fd = crate::posix::with_number(|| {
                raw!(SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0)
            });
        }
        if fd < 0 {
            return 0;
        }
        let fd = fd as RawFd;
        let real = path_text::path_of(fd, said);
        let mut settings = config.settings_of(&real);
        let group = config.group_of(&real);
        let opened = group.and_then(|group| {
            if writes && group.is_some() {
                let what = format!("it belongs to a group, and can't be written through {why}");
                return Err(Error::with(libc::EBUSY, what));
            }
            settings.to_mut().group = group;
            let leads_elsewhere = |key| leads_to_other_file(libc::AT_FDCWD, path, key);
            let name = OpenedBy { is_real: false, leads_elsewhere: &leads_elsewhere };
            AtomicFile::open_by_name(BorrowedFd::borrow_raw(fd), table::access(access), &real, name, &settings)
        });
        let done = match opened {
            Err(e) if e.is_nameless() => Ok(()), // libc opens the file that has replaced it
            opened => opened.and_then(|file| file.remove_descriptor(fd)),
        };
        raw!(SYS_close, fd);
        match done {
            Ok(()) => 1,
            Err(error) => {
                say_error(&real, &error);
                fail(error.errno())
            }
        }
    }
}

/// After libc has opened a stream; `follow`: the result of [`stream_opening`].
pub fn stream_opened(stream: usize, fd: RawFd, follow: bool) {
    table::fresh(fd as isize);
    if fd == libc::STDERR_FILENO {
        crate::sys::note_standard_error(); // freopen
    }
    if follow && let Ok(stat) = stat_of(fd) {
        // SAFETY: an empty path is the descriptor itself.
        ordinary::stream_opened(unsafe { Identity::of(fd, c"".as_ptr(), &stat) }, stream);
    }
}

/// Whether closing a stream concerns the library.
pub fn streams_matter() -> bool {
    table::any() || ordinary::any()
}

/// Before libc closes a stream and, unseen, its descriptor. The stream's buffer has been flushed.
pub fn stream_closing(stream: usize, fd: RawFd) {
    if in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    if table::is_managed(fd) {
        crate::posix::descriptors::close::release(fd);
    }
    ordinary::stream_closed(stream);
}
