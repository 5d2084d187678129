//! Calls that change the names of files. A journal may lie beside its file: before the file gets another name it is
//! checkpointed; before it loses its last name it is demoted, since it will not survive a crash. A file that a crash
//! left with a journal is recovered first.

use super::open::openat;
use crate::file::shadow::is_mapped;
use crate::file::{Access, AtomicFile, commit_leftover};
use crate::index::Control;
use crate::journal::{Marked, control, mark};
use crate::posix::call::lock;
use crate::posix::call::look::stat_at;
use crate::posix::data::size;
use crate::posix::descriptors::close::close;
use crate::posix::descriptors::{table, verify};
use crate::posix::life::process;
use crate::posix::runtime::say::{say, say_error};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::traces;
use crate::posix::selection::traces::has_journal;
use crate::posix::{Ret, fail, raw};
use crate::recovery;
use core::ffi::c_char;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// `truncate(2)`. If the file is not open here, the close that follows commits the new size.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn truncate(path: *const c_char, length: i64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        let selected = length >= 0 && super::selected::wanted(libc::AT_FDCWD, path, 0, false).is_some();
        if !selected || in_vfork_child() {
            return raw!(SYS_truncate, path, length);
        }
        // Closing another descriptor would drop the program's record locks, so use one of its own.
        let mut through = None;
        if let Ok(stat) = stat_at(libc::AT_FDCWD, path, 0)
            && own_all((stat.st_dev, stat.st_ino))
            && let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
        {
            let allowed = raw!(SYS_faccessat, libc::AT_FDCWD, path, libc::W_OK, 0);
            if allowed < 0 {
                return allowed;
            }
            table::for_each(0, u32::MAX, |fd, handle| {
                if Arc::ptr_eq(handle.file(), &file) && (through.is_none() || handle.kernel_access() == libc::O_RDWR) {
                    through = Some((fd, handle.share()));
                }
            });
        }
        match through {
            Some((fd, handle)) if handle.kernel_access() == libc::O_RDWR => {
                // No SYNC, even if the writes of the descriptor at hand are synchronous.
                verify::answer(fd, &handle, || size::resize(fd, &handle, length as u64))
                    .unwrap_or_else(|| raw!(SYS_truncate, path, length))
            }
            // The file is open here, but for reading only.
            Some((_, handle)) => {
                say(handle.path(), "truncate(2) refused: it is open in this process for reading only");
                fail(libc::EBUSY)
            }
            None => {
                let fd = openat(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
                if fd < 0 {
                    return fd;
                }
                let done = crate::posix::ftruncate(fd as i32, length);
                let closed = close(fd as i32);
                if done < 0 { done } else { closed }
            }
        }
    }
}

/// In a forked child: makes all inherited descriptions of this file the child's own.
fn own_all(key: (u64, u64)) -> bool {
    let mut theirs = Vec::new();
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_foreign() && handle.file().key() == key {
            theirs.push(fd);
        }
    });
    theirs.into_iter().for_each(|fd| drop(table::get(fd)));
    true
}

/// What a call is about to do to the file behind a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It gets another name.
    Moves,
    /// It loses this one.
    Goes,
}

/// Prepares the atomic file behind a name, open here or left by a crash. The call itself follows in any case.
///
/// # Safety
/// `path` is a C string, or a pointer that the kernel refuses.
unsafe fn prepare(dirfd: i32, path: *const c_char, change: Change) {
    let Some(config) = process::config() else { return };
    if in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if !table::any() || !prepare_open(dirfd, path, change) {
            recover(config, dirfd, path, change);
        }
    }
}

/// Prepares a file that is open here. Returns whether the work is done.
///
/// # Safety
/// As [`prepare`].
unsafe fn prepare_open(dirfd: i32, path: *const c_char, change: Change) -> bool {
    // SAFETY: the caller's promise; the kernel reads the path.
    let Ok(stat) = (unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) }) else { return true };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return true;
    }
    let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino) else { return false };
    // A map leads to a shadow until the next write, which finds that the file has no name.
    // A file of a group stays atomic, since the call may fail.
    let may_end = || file.settings().group.is_none() && !is_mapped(file.key()) && !file.is_mapped_by_others();
    let ends = change == Change::Goes && stat.st_nlink == 1 && may_end();
    let done = if ends { file.demote() } else { file.checkpoint() };
    if let Err(error) = done {
        say(file.path(), &format!("{error}; its journal stays where it is"));
        return true;
    }
    if file.is_demoted() {
        table::for_each(0, u32::MAX, |fd, handle| {
            if Arc::ptr_eq(handle.file(), &file) {
                let _ = handle.demote(fd); // reported; and so is its next call
            }
        });
    }
    true
}

/// Recovers an atomic file that a crash left with a journal: once the file is removed or moved, its journal could
/// only be removed by hand. A file in use by another process is left to that process.
///
/// # Safety
/// As [`prepare`].
unsafe fn recover(config: &Config, dirfd: i32, path: *const c_char, change: Change) {
    // SAFETY: the kernel checks the path.
    let Ok(stat) = (unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) }) else { return };
    // SAFETY: the kernel has read the path to its end.
    let name = unsafe { CStr::from_ptr(path) };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG
        || !config.globs.matches(dirfd, name.to_bytes(), false)
        || traces::are_absent(config, dirfd, name, stat.st_uid)
    {
        return;
    }
    // A look that opens nothing: closing a descriptor of an ordinary file would drop the program's locks on it.
    // SAFETY: as above.
    let Some(look) = (unsafe { crate::posix::look(dirfd, path, true) }) else { return };
    let grows = || matches!(mark::of_looked_at(look.as_fd()), Ok(Some(Marked::Growing(_))));
    if change == Change::Goes && stat.st_nlink == 1 && grows() {
        return; // it has no journal, and a process that lets it grow would make one in a folder that may go next
    }
    let link = format!("/proc/thread-self/fd/{}", look.as_raw_fd());
    let marked = rustix::fs::getxattr(&*link, mark::NAME, &mut [0u8; 0]).is_ok();
    if !marked && !has_journal(look.as_fd(), &config.settings).unwrap_or(false) {
        let found = control::find(look.as_fd(), config.settings.pool.as_deref()).ok().flatten();
        let Some(control) = found.map(Control::new) else { return };
        if !control.has_kept_epoch() {
            // Left by a process that was killed after it removed its journal. Once the file is gone, no process would
            // look for it.
            return control.remove_if_unused();
        }
    }
    // Does not wait for another process's lease on the file.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |access| crate::sys::openat(rustix::fs::CWD, &*link, access | flags, Mode::empty());
    let (file, is_writable) = match open(OFlags::RDWR) {
        Ok(file) => (file, true),
        Err(_) => match open(OFlags::RDONLY) {
            Ok(file) => (file, false), // the owner of the file may do this all the same
            Err(_) => return,
        },
    };
    let Ok(Some(mut owner_lock)) = recovery::owner_lock(file.as_fd(), &config.settings, true, true) else { return };
    let control = owner_lock.control().clone();
    if recovery::is_in_session(file.as_fd(), &config.settings) {
        owner_lock.leave();
        return control.remove_if_unused();
    }
    if owner_lock.may_keep() {
        owner_lock.leave();
        let access = if is_writable { Access::Write } else { Access::Read };
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(path) };
        if let Err(error) = commit_leftover(file.as_fd(), access, path, &config.settings) {
            say_error(path, &error);
        }
        return;
    }
    match recovery::at_open(file.as_fd(), is_writable, &mut owner_lock, &config.settings) {
        Ok(()) => owner_lock.release(),
        Err(error) => {
            owner_lock.leave();
            // SAFETY: as above.
            say_error(unsafe { CStr::from_ptr(path) }, &error);
        }
    }
    control.remove_if_unused();
}

/// `unlinkat(2)`, and with `AT_FDCWD` `unlink`.
///
/// # Safety
/// As the system call.
pub unsafe fn unlinkat(dirfd: i32, path: *const c_char, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        prepare(dirfd, path, Change::Goes);
        raw!(SYS_unlinkat, dirfd, path, flags)
    }
}

/// `remove(3)`.
///
/// # Safety
/// As `unlink(2)`.
pub unsafe fn remove(path: *const c_char) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        match unlinkat(libc::AT_FDCWD, path, 0) {
            error if error == -(libc::EISDIR as Ret) => raw!(SYS_unlinkat, libc::AT_FDCWD, path, libc::AT_REMOVEDIR),
            done => done,
        }
    }
}

/// `renameat2(2)`, and with less `rename` and `renameat`.
///
/// # Safety
/// As the system call.
pub unsafe fn renameat2(from: i32, old: *const c_char, to: i32, new: *const c_char, flags: u32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        prepare(from, old, Change::Moves);
        prepare(to, new, if flags & libc::RENAME_EXCHANGE != 0 { Change::Moves } else { Change::Goes });
        let done = raw!(SYS_renameat2, from, old, to, new, flags);
        if done == 0 {
            follow(to, new);
            if flags & libc::RENAME_EXCHANGE != 0 {
                follow(from, old);
            }
        }
        done
    }
}

/// After a rename: an atomic file that is open here continues under its new name.
///
/// # Safety
/// The kernel has just read `path`.
unsafe fn follow(dirfd: i32, path: *const c_char) {
    if !table::any() || in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    // SAFETY: the caller's promise.
    let Ok(stat) = (unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) }) else { return };
    if let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino) {
        file.follow_its_name();
    }
}

/// `linkat(2)`, and with less `link`.
///
/// # Safety
/// As the system call.
pub unsafe fn linkat(from: i32, old: *const c_char, to: i32, new: *const c_char, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        prepare(from, old, Change::Moves);
        raw!(SYS_linkat, from, old, to, new, flags)
    }
}
