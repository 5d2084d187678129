//! SYNC under its POSIX names.

use crate::file::{AtomicFile, shadow};
use crate::posix::call::look::stat_of;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::answer;
use crate::posix::run::run_notes;
use crate::posix::runtime::say::say_error;
use crate::posix::{Ret, raw, steadily};
use std::os::fd::RawFd;
use std::sync::Arc;

fn commit(fd: RawFd, kernel: impl FnOnce() -> Ret) -> Ret {
    let Some(handle) = table::borrow(fd) else {
        run_notes::synced(fd);
        return kernel();
    };
    run_notes::protected();
    answer(fd, &handle, || handle.file().sync().map(|()| 0)).unwrap_or_else(kernel)
}

/// `fsync(2)`: commits the epoch.
pub fn fsync(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    commit(fd, || unsafe { raw!(SYS_fsync, fd) })
}

/// `fdatasync(2)`: commits the epoch.
pub fn fdatasync(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    commit(fd, || unsafe { raw!(SYS_fdatasync, fd) })
}

/// `sync_file_range(2)`: commits the whole epoch, once the kernel has accepted the arguments.
pub fn sync_file_range(fd: RawFd, offset: i64, length: i64, flags: u32) -> Ret {
    // SAFETY: no memory is passed.
    let result = steadily(fd, || unsafe { raw!(SYS_sync_file_range, fd, offset, length, flags) });
    if result < 0 { result } else { commit(fd, || result) }
}

/// Commits every atomic file of this process for which `wanted` is true; returns the first error.
fn commit_all(wanted: impl Fn(&AtomicFile) -> bool) -> Ret {
    table::adopt_all(|handle| wanted(handle.file()));
    let mut done: Vec<Arc<AtomicFile>> = Vec::new();
    let mut result = 0;
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_ours() && wanted(handle.file()) && !done.iter().any(|file| Arc::ptr_eq(file, handle.file())) {
            done.push(handle.file().clone());
            let one = answer(fd, handle, || handle.file().sync().map(|()| 0)).unwrap_or(0);
            if result == 0 {
                result = one;
            }
        }
    });
    // Files that are mapped and have no descriptor of the program's.
    for (device, inode) in shadow::files() {
        if let Some(file) = AtomicFile::find(device, inode)
            && wanted(&file)
            && !done.iter().any(|other| Arc::ptr_eq(other, &file))
            && let Err(error) = file.sync()
        {
            say_error(file.path(), &error);
            result = if result == 0 { crate::posix::fail(error.errno()) } else { result };
        }
    }
    result
}

/// `sync(2)`: commits what this process has written, then calls the kernel.
pub fn sync() -> Ret {
    commit_all(|_| true);
    // SAFETY: no arguments.
    unsafe { raw!(SYS_sync) }
}

/// `syncfs(2)`: as [`sync`], for one file system.
pub fn syncfs(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    let result = steadily(fd, || unsafe { raw!(SYS_syncfs, fd) });
    if result < 0 || !table::any() {
        return result;
    }
    let dev = stat_of(fd).ok().map(|stat| stat.st_dev);
    let committed = commit_all(|file| Some(file.key().0) == dev);
    if committed < 0 { committed } else { result }
}
