//! `close`: the last descriptor of a file commits, checkpoints and removes the journal.

use super::table;
use super::verify::is_still;
use crate::file::AtomicFile;
use crate::posix::call::lock;
use crate::posix::runtime::numbers::each_descriptor;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use crate::sys::internal;
use crate::thread::Held;
use std::os::fd::{BorrowedFd, RawFd};

/// `close(2)`. Returns an error of the last commit; the descriptor is closed even then.
pub fn close(fd: RawFd) -> Ret {
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_close, fd) };
    if !table::is_managed(fd) || in_vfork_child() {
        let is_hidden = internal::is_internal_to_close(fd) && !in_vfork_child();
        return if is_hidden { fail(libc::EBADF) } else { kernel() };
    }
    if lock::not_reentered().is_err() {
        return fail(libc::EDEADLK);
    }
    let released = release(fd);
    let closed = kernel();
    if closed < 0 { closed } else { released }
}

/// Takes `fd` out of the table and from its file, before the kernel closes it.
pub(in crate::posix) fn release(fd: RawFd) -> Ret {
    // Declared before `_held`, so that it is dropped after it, when this thread holds no lock any more.
    let Some(handle) = table::take(fd) else { return 0 };
    super::unlock::before_close(&handle);
    let stale = !is_still(fd, &handle);
    // One uninterrupted section for signal handlers.
    let _held = Held::of_process();
    if !handle.is_ours() {
        handle.file().remove_note_with_last_writable(fd);
        return 0;
    }
    let removed = handle.file().remove_descriptor(fd);
    if !stale && handle.leaves_locks() {
        // Only now: what was written under these locks is committed, if this was the last close.
        // SAFETY: the kernel closes it after this.
        handle.file().end_description_locks(handle.number(), unsafe { BorrowedFd::borrow_raw(fd) });
    }
    super::rights::closed((!stale).then_some(fd), handle.file());
    match removed {
        Ok(()) => 0,
        Err(error) => {
            let result = super::verify::failed(&handle, &error);
            // The number led to another file, so the kernel's result does not concern this one.
            if stale { 0 } else { result }
        }
    }
}

/// `close_range(2)`, and `closefrom`.
pub fn close_range(first: u32, last: u32, mut flags: u32) -> Ret {
    // A single-threaded program shares its descriptors only with the library's threads, which must keep the ones they
    // use.
    if flags & libc::CLOSE_RANGE_UNSHARE != 0 && !in_vfork_child() && crate::thread::is_programs_only() {
        flags &= !libc::CLOSE_RANGE_UNSHARE;
    }
    // SAFETY: no memory is passed.
    let kernel = |first: u32, last: u32| unsafe { raw!(SYS_close_range, first, last, flags) };
    if first > last || flags & libc::CLOSE_RANGE_CLOEXEC != 0 || in_vfork_child() {
        return kernel(first, last); // internal ones are closed on exec anyway
    }
    if table::any() {
        if lock::not_reentered().is_err() {
            return fail(libc::EDEADLK);
        }
        let mut fds = Vec::new();
        table::for_each(first, last, |fd, _| fds.push(fd));
        for fd in fds {
            release(fd);
        }
    }
    let _replacing = internal::Replacing::begin();
    // Closes around the library's descriptors. The first call, on a range without descriptors, only checks the flags.
    let (mut result, mut next) = (kernel(u32::MAX, u32::MAX), first);
    if result < 0 {
        return result;
    }
    internal::each_in(first.min(i32::MAX as u32) as RawFd, last.min(i32::MAX as u32) as RawFd, |fd| {
        if next < fd as u32 && result >= 0 {
            result = kernel(next, fd as u32 - 1);
        }
        next = fd as u32 + 1;
    });
    if next <= last && result >= 0 {
        result = kernel(next, last);
    }
    result
}

/// `closefrom(3)` where the kernel has no `close_range`: closes the descriptors one by one.
pub fn close_each_from(first: u32) {
    if in_vfork_child() {
        return;
    }
    let mut open = Vec::new();
    each_descriptor(|fd| open.push(fd));
    open.into_iter().filter(|&fd| fd >= 0 && fd as u32 >= first).for_each(|fd| {
        close(fd);
    });
}

/// The program wants `number` for its own descriptor. Moves an internal descriptor that has this number away. Errors,
/// as results of the program's call: `EBUSY` from a signal handler that interrupted the library, `EMFILE` if there is
/// no other number for it.
pub(in crate::posix) fn make_way(number: RawFd) -> Result<(), Ret> {
    if !internal::is_internal(number) || in_vfork_child() {
        return Ok(()); // the child's descriptors are not the parent's
    }
    if lock::not_reentered().is_err() {
        return Err(fail(libc::EBUSY));
    }
    let moved = internal::move_away(number).map_err(|error| fail(error.errno()))?;
    if let Some(new) = moved {
        AtomicFile::renumber(number, new);
    }
    Ok(())
}

/// Whether `number` is internal, and so no descriptor for the program.
#[inline]
pub fn is_hidden(number: RawFd) -> bool {
    internal::is_internal(number) && !in_vfork_child()
}
