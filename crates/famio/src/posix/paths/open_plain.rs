//! `open` in its most common form: no link on the path, and no cut. The file is opened first and examined afterwards,
//! which saves the system calls that examine it beforehand.

use super::selected::{is_open, may_match};
use crate::fast_path::FAST_PATH;
use crate::posix::call::look::stat_of;
use crate::posix::call::user;
use crate::posix::descriptors::table;
use crate::posix::life::process;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::current::published_config;
use crate::posix::{Ret, fail, raw, with_lowest};
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// A flag that `openat` sets for 64-bit programs and `openat2` does not.
#[cfg(target_arch = "x86_64")]
pub(in crate::posix) const LARGE: i32 = 0o100_000;
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::posix) const LARGE: i32 = 0o400_000;

/// Flags with which an atomic file can be opened or created without further work, and that `openat2` knows.
const PLAIN: i32 = libc::O_RDWR
    | libc::O_CREAT
    | libc::O_NONBLOCK
    | libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_NOCTTY
    | LARGE;

/// How far [`try_open`] came, unless it opened a file that is certainly not selected.
pub enum Tried {
    /// Not tried.
    No,
    /// The kernel's answer. A descriptor may be of a selected file. It must not be closed without need: the process
    /// would lose its locks on the file.
    Said(Ret),
}

/// Opens the path, if opening does no more than that. [`open_selected`](super::open::open_selected) handles everything
/// else.
///
/// Always inlined into the hooks: after a system call, a return to an older frame costs 10 to 20 ns, and so do
/// additional cache lines. Nothing in it panics.
///
/// # Safety
/// As `openat`.
#[inline(always)]
pub unsafe fn try_open(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Result<RawFd, Tried> {
    if flags & !PLAIN != 0 || FAST_PATH.any() || published_config().is_none() {
        return Err(Tried::No);
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { open_without_links(dirfd, path, flags, mode) };
    // Another thread may have opened an atomic file meanwhile.
    if fd < 0 || FAST_PATH.any() {
        return Err(Tried::Said(fd));
    }
    // SAFETY: the kernel has just read it to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if FAST_PATH.name_prefilter.may_match(bytes) { Err(Tried::Said(fd)) } else { Ok(fd as RawFd) }
}

/// The outcome.
pub(in crate::posix) enum Opened {
    /// The call's result.
    Done(Ret),
    /// The file is open, and may be selected.
    MayBeSelected(RawFd),
    /// Cannot be decided in this way.
    Unknown,
}

/// The rest of [`try_open`].
///
/// # Safety
/// As `openat`.
pub(in crate::posix) unsafe fn go_on(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32, tried: Tried) -> Opened {
    match tried {
        // SAFETY: the caller's promise.
        Tried::No if flags & !PLAIN == 0 && table::any() => unsafe { try_beside_others(dirfd, path, flags, mode) },
        Tried::No => Opened::Unknown,
        Tried::Said(fd) if fd < 0 => failed(fd),
        Tried::Said(fd) => {
            table::fresh(fd);
            // SAFETY: the kernel has read it.
            let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
            if may_match(bytes) { Opened::MayBeSelected(fd as RawFd) } else { Opened::Done(fd) }
        }
    }
}

/// Opens a file while atomic files are open here. It may be one of them under another name; and a path that may be
/// selected is not opened, since this process's lease could make the call wait.
///
/// # Safety
/// As `openat`.
unsafe fn try_beside_others(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Opened {
    let Some(config) = process::config() else { return Opened::Unknown };
    // SAFETY: the caller's promise.
    if in_vfork_child() || unsafe { may_be_selected(config, path) } {
        return Opened::Unknown;
    }
    // SAFETY: as above.
    let fd = with_lowest(|| unsafe { open_without_links(dirfd, path, flags, mode) });
    if fd < 0 {
        return failed(fd);
    }
    table::fresh(fd);
    let by_another_name = stat_of(fd as RawFd).is_ok_and(|stat| is_open(&stat));
    if by_another_name { Opened::MayBeSelected(fd as RawFd) } else { Opened::Done(fd) }
}

/// Opens as `openat`, but through no link. Not every error is `openat`'s ([`is_final`]).
///
/// # Safety
/// As `openat`.
#[inline(always)]
pub(super) unsafe fn open_without_links(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // `openat2` rejects bits that `openat` ignores.
    let mode = if flags & libc::O_CREAT != 0 { mode & 0o7777 } else { 0 };
    let how = [u64::from((flags | LARGE) as u32), u64::from(mode), libc::RESOLVE_NO_SYMLINKS];
    // SAFETY: the kernel checks the path; `how` is as long as stated.
    unsafe { raw!(SYS_openat2, dirfd, path, &raw const how, size_of_val(&how)) }
}

fn failed(error: Ret) -> Opened {
    if is_final(error) { Opened::Done(error) } else { Opened::Unknown }
}

/// Whether an error of [`open_without_links`] is what `openat` would return. Otherwise a link, most likely, or a kernel
/// or filter without this call.
pub(super) fn is_final(error: Ret) -> bool {
    error == fail(libc::ENOENT) || error == fail(libc::EINTR)
}

/// Whether the path may be selected, or cannot be read. The kernel has not checked the path yet.
///
/// # Safety
/// As `openat`.
unsafe fn may_be_selected(config: &Config, path: *const c_char) -> bool {
    // SAFETY: the caller's promise. While there are atomic files, the guard is installed.
    unsafe { user::path(path) }.ok().is_none_or(|path| config.globs.may_match(path.to_bytes()))
}
