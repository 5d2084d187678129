//! Calls that change the size of a file by its name, or its names (`prepared.rs`).

use super::foresee::{self, Name};
use super::open::openat;
use super::prepared::{Change, Named, Prepared};
use crate::file::{AtomicFile, any_deferred_close, end_deferred_closes};
use crate::posix::call::lock;
use crate::posix::call::look::stat_at;
use crate::posix::data::size;
use crate::posix::descriptors::close::close;
use crate::posix::descriptors::{table, verify};
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use core::ffi::c_char;
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

/// Before names are removed or given to others: makes the closes that are deferred of these files, and of what may lie in
/// these folders. The program has closed them, and may expect that nothing of the library's is left.
///
/// # Safety
/// The names are C strings, or pointers that the kernel refuses.
unsafe fn before_names_go<const N: usize>(names: [Name; N]) {
    if !any_deferred_close() || in_vfork_child() || lock::not_reentered().is_err() {
        return;
    }
    for (dirfd, path) in names {
        // SAFETY: the caller's promise.
        if let Ok(stat) = unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) } {
            let is_folder = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
            end_deferred_closes((!is_folder).then_some((stat.st_dev, stat.st_ino)));
        }
    }
}

/// `unlinkat(2)`, and with `AT_FDCWD` `unlink`.
///
/// # Safety
/// As the system call.
pub unsafe fn unlinkat(dirfd: i32, path: *const c_char, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        let kernel = || raw!(SYS_unlinkat, dirfd, path, flags);
        let name = (dirfd, path);
        before_names_go([name]);
        if flags != 0 {
            return kernel(); // removes a folder, or nothing
        }
        let prepared = Prepared::for_call([Named::new(name, Change::Goes)], || foresee::unlink(name));
        let done = kernel();
        if done == 0 {
            prepared.done();
        }
        done
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
        before_names_go([(from, old), (to, new)]);
        let replaced = if flags & libc::RENAME_EXCHANGE != 0 { Change::Moves } else { Change::Goes };
        let names = [Named::new((from, old), Change::Moves), Named::new((to, new), replaced)];
        let prepared = Prepared::for_call(names, || foresee::rename((from, old), (to, new), flags));
        let done = raw!(SYS_renameat2, from, old, to, new, flags);
        if done == 0 {
            prepared.done();
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
    let follow = if flags & libc::AT_SYMLINK_FOLLOW != 0 { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let follow = follow | flags & libc::AT_EMPTY_PATH;
    // SAFETY: the caller's promise.
    unsafe {
        let linked = Named::new((from, old), Change::Moves).looked_up(follow);
        let prepared = Prepared::for_call([linked], || foresee::link((from, old), follow, (to, new), flags));
        let done = raw!(SYS_linkat, from, old, to, new, flags);
        if done == 0 {
            prepared.done();
        }
        done
    }
}
