//! Changes of inode attributes, after libc has made them: times, which a later checkpoint must not move; owner and
//! mode, which Famio's own files of this file follow; and set-user-id bits, which the next write must clear.

use super::stat;
use crate::file::AtomicFile;
use crate::posix::descriptors::{inherit, table};
use crate::posix::raw;
use crate::posix::runtime::state::in_vfork_child;
use core::ffi::c_char;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Whether the second of two times is marked to stay as it is.
fn leaves_modified(times: *const libc::timespec) -> bool {
    // SAFETY: the kernel has just read both.
    !times.is_null() && unsafe { (*times.add(1)).tv_nsec } == libc::UTIME_OMIT
}

/// After `futimens` and similar calls on a descriptor; `times` is null if both are set to now.
///
/// # Safety
/// The kernel has taken `times`, if `result` is 0.
pub unsafe fn set_by_descriptor(fd: RawFd, times: *const libc::timespec, result: i32) {
    if result == 0 && table::is_managed(fd) && !leaves_modified(times) && !in_vfork_child() {
        // SAFETY: an empty path with this flag is the descriptor itself.
        unsafe { tell(fd, c"".as_ptr(), libc::AT_EMPTY_PATH) };
    }
}

/// After `utimensat` and similar calls on a path.
///
/// # Safety
/// The kernel has taken `path` and `times`, if `result` is 0.
pub unsafe fn set_by_path(dirfd: RawFd, path: *const c_char, times: *const libc::timespec, flags: i32, result: i32) {
    if path.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { set_by_descriptor(dirfd, times, result) };
    }
    if result == 0 && table::any() && !leaves_modified(times) && !in_vfork_child() {
        // SAFETY: the caller's promise.
        unsafe { tell(dirfd, path, flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)) };
    }
}

/// # Safety
/// `path` is a C string.
unsafe fn tell(dirfd: RawFd, path: *const c_char, flags: i32) {
    // SAFETY: the caller's promise.
    if let Some((file, shown)) = unsafe { find(dirfd, path, flags) } {
        file.times_were_set(libc::timespec { tv_sec: shown.st_mtime, tv_nsec: shown.st_mtime_nsec });
    }
}

/// The atomic file, if it is open here, and the state of its inode.
///
/// # Safety
/// `path` is a C string.
unsafe fn find(dirfd: RawFd, path: *const c_char, flags: i32) -> Option<(Arc<AtomicFile>, libc::stat)> {
    // SAFETY: the caller's promise.
    let shown = unsafe { look(dirfd, path, flags) }?;
    stat::find(shown.st_dev, shown.st_ino).map(|file| (file, shown))
}

/// # Safety
/// `path` is a C string.
unsafe fn look(dirfd: RawFd, path: *const c_char, flags: i32) -> Option<libc::stat> {
    // SAFETY: the caller's promise; zeros are a valid stat, filled in by the call.
    let (done, shown) = unsafe {
        let mut shown: libc::stat = core::mem::zeroed();
        (raw!(SYS_newfstatat, dirfd, path, &raw mut shown, flags), shown)
    };
    (done == 0).then_some(shown)
}

/// After `fchmod`, `chmod` (with `AT_FDCWD`) and the like; without a path: of `dirfd` itself.
///
/// # Safety
/// The kernel has taken `path`, if `result` is 0.
pub unsafe fn mode_was_set(dirfd: RawFd, path: *const c_char, mode: u32, flags: i32, result: i32) {
    const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
    // SAFETY: the caller's promise.
    if let Some(file) = unsafe { changed(dirfd, path, flags, result) } {
        if mode & SET_ID != 0 {
            file.bits_were_set();
        }
        file.follow_owner_and_mode();
    }
}

/// After `fchown`, `chown` (with `AT_FDCWD`) and the like; without a path: of `dirfd` itself.
///
/// # Safety
/// The kernel has taken `path`, if `result` is 0.
pub unsafe fn owner_was_set(dirfd: RawFd, path: *const c_char, flags: i32, result: i32) {
    // SAFETY: the caller's promise.
    if let Some(file) = unsafe { changed(dirfd, path, flags, result) } {
        file.follow_owner_and_mode();
    }
}

/// The atomic file whose inode was changed.
///
/// # Safety
/// The kernel has taken `path`, if `result` is 0.
unsafe fn changed(dirfd: RawFd, path: *const c_char, flags: i32, result: i32) -> Option<Arc<AtomicFile>> {
    if result != 0 || !table::any() || in_vfork_child() {
        return None;
    }
    let (path, empty) = if path.is_null() { (c"".as_ptr(), libc::AT_EMPTY_PATH) } else { (path, 0) };
    let flags = flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) | empty;
    // SAFETY: the caller's promise.
    let libc::stat { st_dev, st_ino, .. } = unsafe { look(dirfd, path, flags) }?;
    stat::find(st_dev, st_ino).or_else(|| {
        inherit::adopt_changed((st_dev, st_ino));
        stat::find(st_dev, st_ino)
    })
}
