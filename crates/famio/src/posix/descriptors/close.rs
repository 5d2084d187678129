//! `close`: the last descriptor of a file commits, checkpoints and removes the journal.

use super::description::Handle;
use super::table;
use super::verify::is_still;
use crate::file::AtomicFile;
use crate::file::locks::{Closing, are_any_kept, begins_to_close_many, begins_to_close_other, doubt_kept_locks};
use crate::posix::call::lock;
use crate::posix::call::look::stat_of;
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
        let _closing = closing_of_other(fd);
        return if is_hidden { fail(libc::EBADF) } else { kernel() };
    }
    if lock::not_reentered().is_err() {
        return fail(libc::EDEADLK);
    }
    let released = release(fd);
    let closed = kernel();
    if closed < 0 { closed } else { released.result }
}

/// Whether a close of `fd` may concern an atomic file.
#[inline]
pub fn close_matters(fd: RawFd) -> bool {
    table::is_managed(fd) || is_hidden(fd) || are_any_kept()
}

/// A descriptor is not its file's any more. To be dropped when the kernel has closed it.
pub(in crate::posix) struct Released {
    /// 0, or the error of its file's last commit.
    result: Ret,
    closing: Option<Closing>,
}

impl Released {
    /// Libc closes it later, unseen.
    pub fn closes_later(self) {
        self.closing.into_iter().for_each(Closing::does_not_end);
    }
}

/// The close of a descriptor that the library does not know drops the record locks of its file all the same.
pub(in crate::posix) fn closing_of_other(fd: RawFd) -> Option<Closing> {
    if !are_any_kept() || in_vfork_child() {
        return None;
    }
    if lock::not_reentered().is_err() {
        doubt_kept_locks();
        return None;
    }
    let stat = stat_of(fd).ok()?;
    begins_to_close_other((stat.st_dev, stat.st_ino))
}

/// Takes `fd` out of the table and from its file, before the kernel closes it.
#[must_use]
pub(in crate::posix) fn release(fd: RawFd) -> Released {
    // Declared before `_held`, so that it is dropped after it, when this thread holds no lock any more.
    let Some(handle) = table::take(fd) else { return Released { result: 0, closing: closing_of_other(fd) } };
    let closing = match handle.is_ours() {
        true => Some(handle.file().begins_to_close()),
        false => begins_to_close_other(handle.file().key()), // which the process may have opened itself, too
    };
    Released { result: release_described(fd, &handle), closing }
}

fn release_described(fd: RawFd, handle: &Handle) -> Ret {
    super::unlock::before_close(handle);
    let stale = !is_still(fd, handle);
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
            let result = super::verify::failed(handle, &error);
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
    let _closing = if lock::not_reentered().is_ok() { begins_to_close_many() } else { Vec::new() };
    let mut released = Vec::new();
    if table::any() {
        if lock::not_reentered().is_err() {
            return fail(libc::EDEADLK);
        }
        let mut fds = Vec::new();
        table::for_each(first, last, |fd, _| fds.push(fd));
        released.extend(fds.into_iter().map(release));
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
