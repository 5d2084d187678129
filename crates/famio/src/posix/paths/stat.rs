//! The stat family: shows the logical size and times of an atomic file. The file is found by its identity, so every
//! path and every descriptor of it shows the same.

use super::selected::may_match;
use super::stat_of_others::{Reached, SEEN_BY_STATX, Seen, look_at_others};
use crate::fast_path::FAST_PATH;
use crate::file::{AtomicFile, Modified};
use crate::posix::call::absent;
use crate::posix::data::vector;
use crate::posix::descriptors::table;
use crate::posix::life::process;
use crate::posix::runtime::state::{in_vfork_child, is_forked};
use crate::posix::{Ret, fail, raw, steadily};
use core::ffi::c_char;
use libc::{stat as Stat, statx as Statx};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;

pub(in crate::posix) fn find(dev: u64, ino: u64) -> Option<Arc<AtomicFile>> {
    if crate::posix::call::lock::not_reentered().is_err() {
        return None;
    }
    AtomicFile::find(dev, ino).filter(|file| !file.is_demoted() && (!is_forked() || is_ours(file)))
}

/// Whether this process has opened the file itself. For its parent's files, a forked child sees the kernel's state.
fn is_ours(file: &Arc<AtomicFile>) -> bool {
    let mut ours = false;
    table::for_each(0, u32::MAX, |_, handle| ours |= handle.is_ours() && Arc::ptr_eq(handle.file(), file));
    ours
}

/// Replaces size and times in a result of the kernel's by the logical ones. `fd`: its table entry is checked on the
/// way.
unsafe fn overlay(fd: Option<RawFd>, shown: *mut Stat) {
    // SAFETY: the kernel has just written it.
    let shown = unsafe { &mut *shown };
    let entry = fd.and_then(table::get);
    if let (Some(fd), Some(handle)) = (fd, &entry) {
        if !handle.is_ours() || handle.is_demoted() {
            return;
        }
        let stale = shown.st_mode & libc::S_IFMT != libc::S_IFREG
            || find(shown.st_dev, shown.st_ino).is_none_or(|file| !Arc::ptr_eq(&file, handle.file()));
        if stale && crate::posix::call::lock::not_reentered().is_ok() && !handle.file().is_demoted() {
            if !in_vfork_child() {
                table::forget(fd);
            }
            return;
        }
    }
    if shown.st_mode & libc::S_IFMT != libc::S_IFREG {
        return;
    }
    let Some(file) = find(shown.st_dev, shown.st_ino) else { return };
    if let Some(now) = file.stat_closed_exactly() {
        (shown.st_size, shown.st_blocks) = (now.st_size, now.st_blocks);
        (shown.st_mtime, shown.st_mtime_nsec) = (now.st_mtime, now.st_mtime_nsec as i64);
        (shown.st_ctime, shown.st_ctime_nsec) = (now.st_ctime, now.st_ctime_nsec as i64);
        return;
    }
    let changed = (shown.st_ctime, shown.st_ctime_nsec as u64);
    let size = file.size_given(shown.st_size as u64, Some(changed));
    let modified = file.modified();
    if modified.is_some() {
        shown.st_blocks = file.blocks(shown.st_blocks as u64) as i64;
    }
    put(size, modified, shown);
}

fn put(size: u64, modified: Option<Modified>, shown: &mut Stat) {
    shown.st_size = size as i64;
    if let Some(Modified { time, is_set }) = modified {
        if is_set || (time.tv_sec, time.tv_nsec) > (shown.st_mtime, shown.st_mtime_nsec) {
            (shown.st_mtime, shown.st_mtime_nsec) = (time.tv_sec, time.tv_nsec);
        }
        if !is_set && (time.tv_sec, time.tv_nsec) > (shown.st_ctime, shown.st_ctime_nsec) {
            (shown.st_ctime, shown.st_ctime_nsec) = (time.tv_sec, time.tv_nsec);
        }
    }
}

/// `fstat(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
#[inline(always)] // a return after a system call costs as much as all this does
pub unsafe fn fstat(fd: RawFd, shown: *mut Stat) -> Ret {
    // SAFETY: the caller's promise; after success `shown` is valid.
    unsafe {
        let result = steadily(fd, || raw!(SYS_fstat, fd, shown));
        if result == 0 && table::any() {
            if crate::posix::descriptors::close::is_hidden(fd) {
                return crate::posix::fail(libc::EBADF);
            }
            overlay(Some(fd), shown);
        }
        result
    }
}

/// Whether a regular file may be open here, or selected by its path.
///
/// # Safety
/// The kernel has just read the path, or it is null.
#[inline(always)]
unsafe fn may_be_atomic(path: *const c_char) -> bool {
    if FAST_PATH.any() {
        return true;
    }
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    FAST_PATH.name_prefilter.may_match(bytes) && may_match(bytes)
}

/// Calls `show` to fill in the logical state if the file is atomic, in this process (`None`) or in another; in the
/// second case the kernel is to be asked again, by the descriptor. Returns whether it has to be asked again by the
/// path.
///
/// # Safety
/// As [`may_be_atomic`].
#[inline(always)] // where no file is atomic that is looked at, calls would cost more than the rest
unsafe fn show_logical(
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    (file, seen): ((u64, u64), impl FnOnce() -> Seen),
    mut show: impl FnMut(Option<Reached<'_>>) -> bool,
) -> bool {
    if process::config().is_none() {
        return false;
    }
    if table::any() && find(file.0, file.1).is_some() {
        let _ = show(None);
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { look_at_others(dirfd, path, flags, seen, |reached| show(Some(reached))) }
}

/// How often a path is asked for again that leads elsewhere each time.
const ASKS: u32 = 16;

/// `newfstatat(2)`, which is also `stat` and `lstat`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
#[inline(always)] // as `fstat`
pub unsafe fn fstatat(dirfd: RawFd, path: *const c_char, shown: *mut Stat, flags: i32) -> Ret {
    if absent::any()
        && let Some(result) = absent::look(path, flags)
    {
        return result;
    }
    // SAFETY: the caller's promise; after success `shown` is valid.
    unsafe {
        let result = raw!(SYS_newfstatat, dirfd, path, shown, flags);
        if result == fail(libc::ENOENT) && FAST_PATH.any() {
            absent::note(path, in_vfork_child);
            return result;
        }
        if result == 0 && (*shown).st_mode & libc::S_IFMT == libc::S_IFREG && may_be_atomic(path) {
            return stat_logical(dirfd, path, shown, flags);
        }
        result
    }
}

/// The rest of [`fstatat`] for a regular file that may be atomic.
///
/// # Safety
/// As there; the kernel has filled in `shown`.
#[cold]
unsafe fn stat_logical(dirfd: RawFd, path: *const c_char, shown: *mut Stat, flags: i32) -> Ret {
    for _ in 0..ASKS {
        // SAFETY: the caller's promise; after success `shown` is valid.
        unsafe {
            let ask = |fd: RawFd| raw!(SYS_fstat, fd, shown) == 0;
            let show = |reached: Option<Reached<'_>>| {
                let is_asked = reached.as_ref().is_none_or(|reached| ask(reached.descriptor()));
                match reached {
                    Some(Reached::Seen(_, glance)) if is_asked => {
                        if glance.shared().exact_file().is_none() {
                            put(glance.shared().size(), glance.shared().last_change(), &mut *shown);
                        }
                        return glance.is_of(((*shown).st_dev, (*shown).st_ino));
                    }
                    _ if is_asked => overlay(None, shown),
                    _ => {}
                }
                is_asked
            };
            let seen = (((*shown).st_dev, (*shown).st_ino), || Seen::of(&*shown));
            if !show_logical(dirfd, path, flags, seen, show) {
                break;
            }
            let result = raw!(SYS_newfstatat, dirfd, path, shown, flags);
            if result != 0 || (*shown).st_mode & libc::S_IFMT != libc::S_IFREG {
                return result;
            }
        }
    }
    0
}

/// `statx(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn statx(dirfd: RawFd, path: *const c_char, flags: i32, mask: u32, shown: *mut Statx) -> Ret {
    if process::config().is_none() {
        // SAFETY: the caller's promise.
        return unsafe { raw!(SYS_statx, dirfd, path, flags, mask, shown) };
    }
    // SAFETY: the caller's promise; after success `shown` is valid.
    unsafe {
        let result = raw!(SYS_statx, dirfd, path, flags, mask | SEEN_BY_STATX, shown);
        if result == 0 && is_regular(&*shown) && may_be_atomic(path) {
            return statx_logical(dirfd, path, flags, mask, shown);
        }
        result
    }
}

fn is_regular(shown: &Statx) -> bool {
    u32::from(shown.stx_mode) & libc::S_IFMT == libc::S_IFREG
}

/// As [`stat_logical`], for [`statx`].
///
/// # Safety
/// As there.
#[cold]
unsafe fn statx_logical(dirfd: RawFd, path: *const c_char, flags: i32, mask: u32, shown: *mut Statx) -> Ret {
    for _ in 0..ASKS {
        // SAFETY: the caller's promise; after success `shown` is valid.
        unsafe {
            let ask =
                |fd: RawFd| raw!(SYS_statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask | SEEN_BY_STATX, shown) == 0;
            let show = |reached: Option<Reached<'_>>| {
                let is_asked = reached.as_ref().is_none_or(|reached| ask(reached.descriptor()));
                match reached {
                    // What can be written at once is the business of those who open it.
                    Some(Reached::Seen(..)) if mask & STATX_WRITE_ATOMIC != 0 => return false,
                    Some(Reached::Seen(_, glance)) if is_asked => {
                        if glance.shared().exact_file().is_none() {
                            put_statx(glance.shared().size(), glance.shared().last_change(), &mut *shown);
                        }
                        let device = libc::makedev((*shown).stx_dev_major, (*shown).stx_dev_minor);
                        return glance.is_of((device, (*shown).stx_ino));
                    }
                    _ if is_asked => overlay_statx(&mut *shown, mask),
                    _ => {}
                }
                is_asked
            };
            let device = libc::makedev((*shown).stx_dev_major, (*shown).stx_dev_minor);
            let seen = ((device, (*shown).stx_ino), || Seen::of_statx(&*shown));
            if !show_logical(dirfd, path, flags, seen, show) {
                break;
            }
            let result = raw!(SYS_statx, dirfd, path, flags, mask | SEEN_BY_STATX, shown);
            if result != 0 || !is_regular(&*shown) {
                return result;
            }
        }
    }
    0
}

/// From Linux 6.11 on.
const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
const STATX_ATTR_WRITE_ATOMIC: u64 = 0x40_0000;

/// Fills in the limits of `pwritev2` with `RWF_ATOMIC`.
fn show_write_atomic(shown: &mut Statx, file: &AtomicFile) {
    shown.stx_mask |= STATX_WRITE_ATOMIC;
    shown.stx_attributes |= STATX_ATTR_WRITE_ATOMIC;
    shown.stx_attributes_mask |= STATX_ATTR_WRITE_ATOMIC;
    shown.stx_atomic_write_unit_min = vector::LEAST_AT_ONCE;
    shown.stx_atomic_write_unit_max = file.most_at_once();
    shown.stx_atomic_write_segments_max = vector::PIECES_AT_ONCE;
    shown.stx_atomic_write_unit_max_opt = 0; // as above
}

fn overlay_statx(shown: &mut Statx, mask: u32) {
    let dev = libc::makedev(shown.stx_dev_major, shown.stx_dev_minor);
    let Some(file) = find(dev, shown.stx_ino) else { return };
    if mask & STATX_WRITE_ATOMIC != 0 {
        show_write_atomic(shown, &file);
    }
    if let Some(now) = file.stat_closed_exactly() {
        (shown.stx_size, shown.stx_blocks) = (now.st_size as u64, now.st_blocks as u64);
        (shown.stx_mtime.tv_sec, shown.stx_mtime.tv_nsec) = (now.st_mtime, now.st_mtime_nsec as u32);
        (shown.stx_ctime.tv_sec, shown.stx_ctime.tv_nsec) = (now.st_ctime, now.st_ctime_nsec as u32);
        return;
    }
    let is_told = shown.stx_mask & (libc::STATX_SIZE | libc::STATX_CTIME) == libc::STATX_SIZE | libc::STATX_CTIME;
    let changed = is_told.then_some((shown.stx_ctime.tv_sec, shown.stx_ctime.tv_nsec.into()));
    let size = file.size_given(shown.stx_size, changed);
    let modified = file.modified();
    if modified.is_some() {
        shown.stx_blocks = file.blocks(shown.stx_blocks);
    }
    put_statx(size, modified, shown);
}

fn put_statx(size: u64, modified: Option<Modified>, shown: &mut Statx) {
    shown.stx_size = size;
    if let Some(Modified { time, is_set }) = modified {
        if is_set {
            (shown.stx_mtime.tv_sec, shown.stx_mtime.tv_nsec) = (time.tv_sec, time.tv_nsec as u32);
            return;
        }
        for stamp in [&mut shown.stx_mtime, &mut shown.stx_ctime] {
            if (time.tv_sec, time.tv_nsec) > (stamp.tv_sec, i64::from(stamp.tv_nsec)) {
                (stamp.tv_sec, stamp.tv_nsec) = (time.tv_sec, time.tv_nsec as u32);
            }
        }
    }
}
