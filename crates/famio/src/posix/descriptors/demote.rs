//! Demotion: a file goes back to the kernel because something the library cannot see (libc's own streams, say) will
//! use it.

use super::description::Description;
use super::verify::is_still;
use super::{table, verify};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::posix::call::look::stat_of;
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::ordinary;
use crate::posix::selection::ordinary::Identity;
use crate::posix::{Ret, fail, raw};
use crate::recovery::await_others;
use crate::settings::Settings;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// # Errors
/// `EBUSY`: the file belongs to a group, or its settings require protection.
fn may_be_demoted(file: &AtomicFile, path: &CStr, why: &str) -> Result<()> {
    let kept = match file.settings() {
        Settings { group: Some(_), .. } => "it belongs to a group",
        Settings { require: true, .. } => "it is to be protected (require)",
        _ => return Ok(()),
    };
    let what = format!("{kept}, and can't be demoted to an ordinary file because of {why}");
    Err(Error::with(libc::EBUSY, what).context(path.to_string_lossy()))
}

const STANDARD: &str = "its use as a standard stream";

/// Before `new` becomes a duplicate of `handle`'s descriptor: 0, or the error with which that is refused, so that what
/// `new` was stays open.
pub(super) fn check_standard(handle: &Description, new: RawFd) -> Ret {
    let is_standard = (0..=libc::STDERR_FILENO).contains(&new) && handle.is_ours() && !handle.is_demoted();
    if !is_standard || handle.file().is_demoted() {
        return 0;
    }
    may_be_demoted(handle.file(), handle.path(), STANDARD).map_or_else(|error| verify::failed(handle, &error), |()| 0)
}

/// Demotes `file`: commits it, checkpoints it, closes its journal clean, and then gives position and flags of every
/// description back to the kernel. `fd` is any descriptor of the file.
///
/// # Errors
/// Those of its end. `EBUSY`: it belongs to a group, and could not be committed with it any more; or its settings
/// require protection.
pub(in crate::posix) fn demote_file(file: &Arc<AtomicFile>, path: &CStr, fd: RawFd, why: &str) -> Result<()> {
    adopt_inherited(file);
    demote_adopted(file, path, fd, why)
}

/// In a forked child: with a writable descriptor of its parent's, the file is demoted as one that this process may
/// write. Otherwise it would be demoted for reading only, and written later beside the parent's session.
fn adopt_inherited(file: &AtomicFile) {
    table::adopt_all(|handle| handle.file().key() == file.key());
}

/// As [`demote_file`], if the parent's descriptors of it are adopted already, or stay the parent's.
pub(super) fn demote_adopted(file: &Arc<AtomicFile>, path: &CStr, fd: RawFd, why: &str) -> Result<()> {
    if !file.is_demoted() {
        may_be_demoted(file, path, why)?;
        file.split_if_left()?;
        let stat = stat_of(fd).map_err(Error::new)?;
        // SAFETY: an empty path is the descriptor itself.
        let identity = unsafe { Identity::of(fd, c"".as_ptr(), &stat) };
        // Noted first, so that an `open` in between does not make the file atomic again.
        ordinary::note_for_good(identity);
        if let Err(error) = file.demote() {
            ordinary::forget(&identity);
            return Err(error);
        }
        let what = format!("demoted to an ordinary file because of {why}: from here on it is not protected");
        crate::sys::events::count_demotion();
        say(path, &what);
    }
    let mut handed = Ok(());
    table::for_each(0, u32::MAX, |fd, handle| {
        if Arc::ptr_eq(handle.file(), file)
            && let Err(error) = handle.demote(fd)
        {
            handed = Err(error);
        }
    });
    handed
}

fn demote_handle(fd: RawFd, handle: &Description, why: &str) -> Result<()> {
    if !verify::enter(fd, handle)? {
        return Ok(());
    }
    if !is_still(fd, handle) {
        table::forget(fd);
        return Ok(());
    }
    demote_file(handle.file(), handle.path(), fd, why)
}

/// Demotes the file of `fd`, if it is an atomic one: 0, or a negated errno.
pub fn demote_descriptor(fd: RawFd, why: &str) -> Ret {
    let Some(handle) = table::get(fd) else { return 0 };
    if in_vfork_child() {
        return fail(libc::EBUSY);
    }
    match demote_handle(fd, &handle, why) {
        Ok(()) => 0,
        Err(error) => verify::failed(&handle, &error),
    }
}

/// After a call that returned descriptor `fd`, or an error. If `fd` is a standard stream, libc's `stdin`, `stdout` or
/// `stderr`, and any child that inherits it, will use it past the library and at the kernel's position, so the file
/// is demoted.
pub(in crate::posix) fn unless_standard(fd: Ret) -> Ret {
    if !(0..=libc::STDERR_FILENO as Ret).contains(&fd) || !table::is_managed(fd as RawFd) || in_vfork_child() {
        return fd;
    }
    // The kernel cannot be told to append for this process only.
    let appends = table::get(fd as RawFd).filter(|handle| {
        !handle.is_demoted() && handle.is_shared() && handle.flags_now(fd as RawFd) & libc::O_APPEND != 0
    });
    let demoted = match &appends {
        Some(handle) if others_stay(handle.file()) => refuse_to_append(handle),
        _ => demote_descriptor(fd as RawFd, STANDARD),
    };
    let demoted = match &appends {
        // Processes that have the description, but have not attached to the file, will find it demoted.
        Some(handle) if demoted == 0 && !append_for_all(fd as RawFd, handle) => refuse_to_append(handle),
        _ => demoted,
    };
    match demoted {
        0 => fd,
        error => {
            crate::posix::close(fd as RawFd);
            error
        }
    }
}

/// Whether other processes still have the file after a moment: the parent of a daemon is about to end.
fn others_stay(file: &AtomicFile) -> bool {
    let look = || if file.may_have_others() { Err(()) } else { Ok(()) };
    await_others(look, |()| true).is_err()
}

fn refuse_to_append(handle: &Description) -> Ret {
    const WHY: &str =
        "opened with O_APPEND, and shared with another process, it can't become a standard stream (EBUSY)";
    say(handle.path(), WHY);
    fail(libc::EBUSY)
}

/// Makes the kernel append on a demoted description from now on, for every process that has it. Returns whether no
/// process attached to the file writes by offset through it.
fn append_for_all(fd: RawFd, handle: &Description) -> bool {
    // SAFETY: no memory is passed.
    let set = |change: &dyn Fn(i32) -> i32| unsafe {
        let flags = raw!(SYS_fcntl, fd, libc::F_GETFL) as i32;
        raw!(SYS_fcntl, fd, libc::F_SETFL, change(flags))
    };
    set(&|flags| flags | libc::O_APPEND);
    let alone = !handle.file().may_have_others();
    if !alone {
        set(&|flags| flags & !libc::O_APPEND);
    }
    alone
}

/// Before a stream or a queue takes `fd`: as [`demote_descriptor`], but refuses `O_SYNC`, which the kernel cannot be
/// told any more. Returns 0 or a negated errno.
pub fn demote_for_stream(fd: RawFd, why: &str) -> Ret {
    if let Some(handle) = table::get(fd)
        && handle.syncs()
    {
        say(handle.path(), &format!("{why} refused: the atomic file was opened with O_SYNC"));
        return fail(libc::EOPNOTSUPP);
    }
    demote_descriptor(fd, why)
}
