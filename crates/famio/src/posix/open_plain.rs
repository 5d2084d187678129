//! `open` of what most programs open most: a file that no link leads to, and that is not cut. It is opened first and looked at
//! then, which saves the system calls by which the other way finds out beforehand.

use super::config::Config;
use super::meant::is_open;
use super::open::stat_of;
use super::{Ret, fail, process, raw, table};
use crate::map::guard;
use crate::near::NEAR;
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// `openat` sets it for programs of 64 bits, `openat2` does not.
#[cfg(target_arch = "x86_64")]
const LARGE: i32 = 0o100_000;
#[cfg(not(target_arch = "x86_64"))]
const LARGE: i32 = 0o400_000;

/// Flags with which an atomic file is opened, or made, just so, and that `openat2` knows.
const PLAIN: i32 = libc::O_RDWR
    | libc::O_CREAT
    | libc::O_NONBLOCK
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_NOCTTY
    | LARGE;

/// How far [`try_open`] came that has not opened what is not meant.
pub enum Tried {
    /// The call's error.
    Failed(Ret),
    /// It is open, and may be meant. It must not be closed without need: the process would lose its locks on the file.
    MayBeMeant(RawFd),
    /// It can't be told like this.
    Unknown,
}

/// Opens the path, unless that may do more to it. What it could not is for [`open_meant`](super::open_meant).
///
/// Always part of its caller, for the hooks: after a system call a return to a frame that was there before costs 10 to 20 ns, and each
/// cache line some.
///
/// # Safety
/// As `openat`.
#[inline(always)]
pub unsafe fn try_open(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Result<RawFd, Tried> {
    if flags & !PLAIN != 0 {
        return Err(Tried::Unknown);
    }
    if NEAR.any() {
        // SAFETY: the caller's promise.
        return unsafe { try_beside_others(dirfd, path, flags, mode) };
    }
    if process::config_nearby().is_none() {
        return Err(Tried::Unknown);
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { open_without_links(dirfd, path, flags, mode) };
    if fd < 0 {
        return Err(failed(fd));
    }
    if NEAR.any() {
        fresh(fd);
    }
    // SAFETY: the kernel has just read it to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if NEAR.may_match(bytes) && may_match(bytes) { Err(Tried::MayBeMeant(fd as RawFd)) } else { Ok(fd as RawFd) }
}

/// Another thread has opened an atomic file since `fd` was asked for.
#[cold]
fn fresh(fd: Ret) {
    table::fresh(fd);
}

/// Whether a path that leads over no links may be meant.
#[cold]
fn may_match(path: &[u8]) -> bool {
    process::config_nearby().is_some_and(|config| config.globs.may_match(path))
}

/// Atomic files are open here: this may be one of them by another name, and where a lease of ours would keep the call waiting it
/// is not opened by a name that may be meant.
///
/// # Safety
/// As `openat`.
#[inline(never)]
unsafe fn try_beside_others(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Result<RawFd, Tried> {
    let Some(config) = process::config() else { return Err(Tried::Unknown) };
    // SAFETY: the caller's promise.
    if process::in_vfork_child() || unsafe { may_be_meant(config, path) } {
        return Err(Tried::Unknown);
    }
    // SAFETY: as above.
    let fd = unsafe { open_without_links(dirfd, path, flags, mode) };
    if fd < 0 {
        return Err(failed(fd));
    }
    table::fresh(fd);
    let by_another_name = stat_of(fd as RawFd).is_ok_and(|stat| is_open(&stat));
    if by_another_name { Err(Tried::MayBeMeant(fd as RawFd)) } else { Ok(fd as RawFd) }
}

/// # Safety
/// As `openat`.
#[inline(always)]
unsafe fn open_without_links(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // What `openat` ignores is an error of `openat2`.
    let mode = if flags & libc::O_CREAT != 0 { mode & 0o7777 } else { 0 };
    let how = [u64::from((flags | LARGE) as u32), u64::from(mode), libc::RESOLVE_NO_SYMLINKS];
    // SAFETY: the kernel checks the path; `how` is as long as is said.
    unsafe { raw!(SYS_openat2, dirfd, path, &raw const how, size_of_val(&how)) }
}

#[cold]
fn failed(error: Ret) -> Tried {
    // Else a link above all, or a kernel or a filter without this call.
    let is_final = error == fail(libc::ENOENT) || error == fail(libc::EINTR);
    if is_final { Tried::Failed(error) } else { Tried::Unknown }
}

/// Whether the path may be meant, or can't be read. Before the kernel has looked at it.
///
/// # Safety
/// As `openat`.
unsafe fn may_be_meant(config: &Config, path: *const c_char) -> bool {
    const MOST: usize = libc::PATH_MAX as usize;
    // It may begin to read before the path, in the same line.
    let line = path.cast::<u8>().map_addr(|addr| addr & !63);
    let most = MOST.min(usize::MAX - path.addr());
    // SAFETY: it reads, and can be left anywhere. With atomic files the guard is there.
    let length = unsafe { guard::run_on(line, most.saturating_add(64), || libc::strnlen(path, most)) };
    let Ok(length) = length else { return true };
    // SAFETY: it has just been read.
    config.globs.may_match(unsafe { core::slice::from_raw_parts(path.cast(), length) })
}
