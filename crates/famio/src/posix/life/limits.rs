//! The process's limits, and what becomes of atomic files under new ones.

use crate::error::Result;
use crate::posix::call::{lock, user};
use crate::posix::descriptors::table;
use crate::posix::runtime::file_size;
use crate::posix::runtime::state::{in_vfork_child, is_on};
use crate::posix::{Ret, fail, raw};
use core::ptr;
use libc::rlimit64;

/// At the start of the program. Later changes come through the hooks of this module.
pub fn begin() {
    crate::sys::address_space::begin();
}

/// `setrlimit(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn setrlimit(resource: u32, limit: *const rlimit64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, limit, ptr::null_mut()) }
}

/// `getrlimit(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn getrlimit(resource: u32, limit: *mut rlimit64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, ptr::null(), limit) }
}

/// `RLIMIT_AS` of this process: the address space that the library uses is not counted as the program's.
///
/// # Safety
/// As the system call.
unsafe fn address_space(new: *const rlimit64, old: *mut rlimit64) -> Result<()> {
    // SAFETY: any bytes are a limit.
    let new = (!new.is_null()).then(|| unsafe { user::get(new) }).transpose()?;
    let before = crate::sys::address_space::exchange(new)?;
    if old.is_null() { Ok(()) } else { user::put(old, &before) }
}

/// `prlimit(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn prlimit(pid: i32, resource: u32, new: *const rlimit64, old: *mut rlimit64) -> Ret {
    // SAFETY: no arguments.
    let is_self = pid == 0 || pid as Ret == unsafe { raw!(SYS_getpid) };
    if is_self && resource == libc::RLIMIT_AS && is_on() && !in_vfork_child() {
        // SAFETY: the caller's promise.
        return unsafe { address_space(new, old) }.map_or_else(|error| fail(error.errno()), |()| 0);
    }
    let is_ours = is_self && resource == libc::RLIMIT_FSIZE && !new.is_null();
    // SAFETY: any bytes are a limit.
    if is_ours && let Ok(limit) = unsafe { user::get(new) } {
        demote_before(limit);
    }
    if is_self
        && resource == libc::RLIMIT_NOFILE
        && !new.is_null()
        // SAFETY: any bytes are a limit.
        && let Ok(limit) = unsafe { user::get(new) }
    {
        split_before(limit);
    }
    // SAFETY: the caller's promise.
    let result = unsafe { raw!(SYS_prlimit64, pid, resource, new, old) };
    if result == 0 && is_ours {
        file_size::read();
    }
    result
}

/// Before the hard limit on descriptors is lowered: a description that shares a kernel description, and whose number
/// would be above the limit, gets its own first, since that is impossible later.
#[cold]
fn split_before(limit: rlimit64) {
    if limit.rlim_cur > limit.rlim_max || in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    table::for_each(u32::try_from(limit.rlim_max).unwrap_or(u32::MAX), u32::MAX, |_, handle| {
        if handle.is_live() {
            let _ = handle.split(); // reported
        }
    });
}

/// Before a file-size limit is set: a journal that reaches the limit would cause errors that a plain file does not,
/// and could not even be finished under the limit. Such files are demoted first.
#[cold]
fn demote_before(limit: rlimit64) {
    if limit.rlim_cur > limit.rlim_max || in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    if limit.rlim_cur < file_size::limit() {
        // under the limit, files opened by the parent could not be attached at all
        crate::posix::descriptors::rights::take_all_home();
    }
    let mut all = Vec::new();
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_live() && !handle.file().settings().require && handle.file().check_limit(limit.rlim_cur).is_err() {
            all.push(fd);
        }
    });
    for fd in all {
        // A file that cannot be demoted stays atomic, and may get `ENOSPC`.
        let _ = crate::posix::demote_descriptor(fd, "a limit on file sizes that its journal may reach");
    }
}
