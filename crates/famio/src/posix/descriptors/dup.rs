//! `dup` and its relatives: several descriptors of one open file description.

use super::description::Handle;
use super::verify::{descriptor_flags, is_still};
use super::{close, demote, table};
use crate::posix::call::lock;
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw, with_lowest};
use crate::sys::internal::{Replacing, has_waited};
use std::os::fd::RawFd;

/// Called after the kernel made `new` a duplicate of `old`, a descriptor of `handle`.
pub(in crate::posix) fn joined(handle: &Handle, old: RawFd, new: RawFd) {
    if table::is_managed(new) {
        table::forget(new);
    }
    if handle.is_ours() {
        handle.file().add_duplicate(old, new, table::access(handle.kernel_access()));
    }
    table::install(new, handle.share());
}

/// Makes a duplicate with a call that chooses the new number itself.
pub(in crate::posix) fn pick(fd: RawFd, call: impl Fn() -> Ret) -> Ret {
    let lowest = |call: &dyn Fn() -> Ret| match with_lowest(call) {
        full if full == fail(libc::EMFILE) && has_waited() => with_lowest(call),
        made => made,
    };
    let kernel = || lowest(&call);
    let Some(handle) = table::get(fd) else {
        return if close::is_hidden(fd) { fail(libc::EBADF) } else { table::fresh(kernel()) };
    };
    if in_vfork_child() {
        return from_vfork_child(fd, &handle, kernel);
    }
    if lock::not_reentered().is_err() {
        return fail(libc::EDEADLK);
    }
    if handle.is_ours() && !is_still(fd, &handle) {
        table::forget(fd);
        return table::fresh(kernel());
    }
    let new = if handle.is_ours() { lowest(&|| handle.file().duplicate(fd, &call)) } else { kernel() };
    if new >= 0 {
        joined(&handle, fd, new as RawFd);
    }
    demote::unless_standard(new)
}

/// In a `vfork` child, which uses its parent's table and cannot note a duplicate. The next program finds the
/// duplicate by its mark. As a standard stream it would be used past the library: `EBUSY`.
fn from_vfork_child(old: RawFd, handle: &Handle, kernel: impl FnOnce() -> Ret) -> Ret {
    if handle.is_demoted() || !is_still(old, handle) {
        return kernel();
    }
    if handle.is_shared() {
        let new = kernel();
        if !(0..=libc::STDERR_FILENO as Ret).contains(&new) {
            return new;
        }
        // SAFETY: the child's own new descriptor, which no other thread knows yet.
        unsafe { raw!(SYS_close, new) };
    }
    const WHY: &str = "in a child of vfork(2) a descriptor of an atomic file can't become a standard stream (EBUSY): open the \
                       file in the new program by its name, or pass a pipe (in Python: or subprocess._USE_VFORK = False)";
    say(handle.path(), WHY);
    fail(libc::EBUSY)
}

/// `F_DUPFD`: `kernel` makes the duplicate, at the lowest free number from `least` on. A number that an internal
/// descriptor has counts as free.
pub(in crate::posix) fn from(fd: RawFd, least: RawFd, kernel: impl Fn() -> Ret) -> Ret {
    if !close::is_hidden(least) || close::is_hidden(fd) {
        return pick(fd, kernel);
    }
    let good = descriptor_flags(fd);
    if good < 0 {
        return good;
    }
    if let Err(result) = close::make_way(least) {
        return result;
    }
    // SAFETY: the library's descriptor, which it has moved elsewhere.
    unsafe { raw!(SYS_close, least) };
    pick(fd, kernel)
}

/// `dup(2)`.
pub fn dup(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    pick(fd, || unsafe { raw!(SYS_dup, fd) })
}

/// `dup2(2)`.
pub fn dup2(old: RawFd, new: RawFd) -> Ret {
    if old == new {
        if close::is_hidden(old) {
            return fail(libc::EBADF);
        }
        let flags = descriptor_flags(old);
        return if flags < 0 { flags } else { new as Ret };
    }
    dup3(old, new, 0)
}

/// `dup3(2)`.
pub fn dup3(old: RawFd, new: RawFd, flags: i32) -> Ret {
    if close::is_hidden(old) {
        return fail(libc::EBADF);
    }
    if (table::is_managed(new) || close::is_hidden(new)) && is_beyond_limit(new) {
        // SAFETY: no memory is passed. The call fails, so the descriptor at `new` stays, and must not be released
        // before.
        return unsafe { raw!(SYS_dup3, old, new, flags) };
    }
    let result = if close::is_hidden(new) { over_internal(old, new, flags) } else { over(old, new, flags) };
    if result == libc::STDERR_FILENO as Ret && !in_vfork_child() {
        crate::sys::note_standard_error();
    }
    result
}

/// Whether this number of an open descriptor is above the limit, which was lowered since.
#[cold]
fn is_beyond_limit(number: RawFd) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.is_some_and(|limit| number as u64 >= limit)
}

/// Replaces an internal descriptor, after moving it elsewhere.
#[cold]
fn over_internal(old: RawFd, new: RawFd, flags: i32) -> Ret {
    // A call that fails changes nothing.
    let good = descriptor_flags(old);
    if good < 0 {
        return good;
    }
    if flags & !libc::O_CLOEXEC != 0 {
        return fail(libc::EINVAL);
    }
    if let Err(result) = close::make_way(new) {
        return result;
    }
    let result = over(old, new, flags);
    if result < 0 {
        // SAFETY: the library's descriptor, which it has moved elsewhere.
        unsafe { raw!(SYS_close, new) };
    }
    result
}

/// Lets the kernel replace `new`, while no descriptor of the library passes through that number.
fn replace(new: RawFd, kernel: impl Fn() -> Ret) -> Ret {
    if !Replacing::is_needed(new) || in_vfork_child() {
        return kernel(); // a vfork child has its own descriptor numbers
    }
    let replacing = Replacing::begin();
    if !close::is_hidden(new) {
        return kernel();
    }
    // The library has taken the number since it was looked at, or is just giving it up.
    drop(replacing);
    if let Err(result) = close::make_way(new) {
        return result;
    }
    let result = kernel();
    if result < 0 {
        // SAFETY: as in `over_internal`.
        unsafe { raw!(SYS_close, new) };
    }
    result
}

fn over(old: RawFd, new: RawFd, flags: i32) -> Ret {
    // SAFETY: no memory is passed.
    let plain = || unsafe { raw!(SYS_dup3, old, new, flags) };
    let kernel = || replace(new, plain);
    if !table::is_managed(old) && !table::is_managed(new) {
        return kernel();
    }
    if in_vfork_child() {
        return match table::get(old) {
            Some(handle) => from_vfork_child(old, &handle, kernel),
            None => kernel(),
        };
    }
    if old == new || new < 0 || flags & !libc::O_CLOEXEC != 0 {
        return kernel();
    }
    if lock::not_reentered().is_err() {
        return fail(libc::EDEADLK);
    }
    // If `old` is bad, `new` must stay as it is.
    let good = descriptor_flags(old);
    if good < 0 {
        return good;
    }
    let handle = table::get(old);
    let refused = handle.as_ref().map_or(0, |handle| demote::check_standard(handle, new));
    if refused < 0 {
        return refused;
    }
    close::release(new);
    let result = match &handle {
        Some(handle) if handle.is_ours() => replace(new, || handle.file().duplicate(old, plain)),
        _ => kernel(),
    };
    if let Some(handle) = handle
        && result >= 0
    {
        joined(&handle, old, new);
    }
    demote::unless_standard(result)
}
