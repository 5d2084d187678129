//! Closing: the last descriptor commits, settles and leaves nothing behind.

use super::description::Description;
use super::{Ret, fail, lock, process, raw, table};
use crate::file::AtomicFile;
use crate::thread::Held;
use std::os::fd::RawFd;
use std::sync::Arc;

/// `close(2)`. An error of the last commit comes out here; the descriptor is gone all the same.
pub fn close(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_close, fd) };
    if !table::is_managed(fd) || process::in_vfork_child() {
        return kernel();
    }
    if lock::not_reentered().is_err() {
        return fail(libc::EDEADLK);
    }
    let released = release(fd);
    let closed = kernel();
    if closed < 0 { closed } else { released }
}

/// Takes `fd` out of the table and from its file, before the kernel closes it.
pub(super) fn release(fd: RawFd) -> Ret {
    // Declared before `_held`, so that it is dropped after it: nobody may be inside a lock then.
    let Some(handle) = table::take(fd) else { return 0 };
    // In one piece, for handlers.
    let _held = Held::of_process();
    if !handle.is_ours() {
        return 0;
    }
    let stale = !is_still(fd, &handle);
    match handle.file().remove_descriptor(fd) {
        Ok(()) => 0,
        Err(error) => {
            let result = super::verify::failed(&handle, &error);
            // What another descriptor behind the same number returns is not this file's business.
            if stale { 0 } else { result }
        }
    }
}

/// Whether the kernel's descriptor still is the file that the table says.
pub(super) fn is_still(fd: RawFd, handle: &Description) -> bool {
    match super::open::stat_of(fd) {
        Ok(stat) => AtomicFile::find(stat.st_dev, stat.st_ino).is_some_and(|file| Arc::ptr_eq(&file, handle.file())),
        Err(_) => false,
    }
}

/// `close_range(2)`, and `closefrom`.
pub fn close_range(first: u32, last: u32, flags: u32) -> Ret {
    if table::any() && flags & libc::CLOSE_RANGE_CLOEXEC == 0 && first <= last && !process::in_vfork_child() {
        if lock::not_reentered().is_err() {
            return fail(libc::EDEADLK);
        }
        let mut fds = Vec::new();
        table::for_each(first, last, |fd, _| fds.push(fd));
        for fd in fds {
            release(fd);
        }
    }
    // SAFETY: no memory is passed.
    unsafe { raw!(SYS_close_range, first, last, flags) }
}
