//! The open family: a path that is meant leads to an atomic file.

use super::config::Config;
use super::description::{EMULATED, Handle};
use super::open_plain::{self, Tried};
use super::{Ret, demote, fail, lock, ordinary, policy, process, raw, table};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::thread::Held;
use core::ffi::c_char;
use libc::stat as Stat;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// `openat(2)`, and with `AT_FDCWD` `open` and `creat`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn openat(dirfd: RawFd, path: *const c_char, flags: i32, mode: u32) -> Ret {
    // SAFETY: the caller's promise.
    unsafe {
        let opened = match open_plain::try_open(dirfd, path, flags, mode) {
            Tried::Done(result) => return result,
            Tried::MayBeMeant(fd) => Some(fd),
            Tried::Unknown => None,
        };
        match (wanted(dirfd, path, flags, true), opened) {
            (Some(config), _) => demote::unless_standard(open_atomic(config, dirfd, path, flags, mode, opened)),
            (None, Some(fd)) => fd as Ret,
            (None, None) => table::fresh(raw!(SYS_openat, dirfd, path, flags, mode)),
        }
    }
}

/// The configuration, where the path may lead to an atomic file and the flags ask for its data; `descriptor`: to open one.
///
/// # Safety
/// As [`openat`].
pub(super) unsafe fn wanted(
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    descriptor: bool,
) -> Option<&'static Config> {
    let config = process::config()?;
    let no_data = libc::O_PATH | libc::O_DIRECTORY;
    if flags & no_data != 0 || flags & libc::O_ACCMODE == libc::O_ACCMODE {
        return None;
    }
    // SAFETY: the kernel checks the path, and `stat` is ours.
    let found = unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) };
    if found.is_err_and(|error| error != libc::ENOENT) {
        return None;
    }
    let linked = found.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK);
    let exclusive = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    let follow = linked && flags & libc::O_NOFOLLOW == 0 && !exclusive;
    // SAFETY: the kernel has just read it to its end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let meant = config.globs.matches(dirfd, bytes, follow);
    if !meant && !table::any() {
        return None;
    }
    // A regular file or nothing yet; by another name it may be one that is open here. Not what demotion made ordinary.
    // SAFETY: the path is good, and `stat` is ours.
    match if linked && flags & libc::O_NOFOLLOW == 0 { unsafe { stat_at(dirfd, path, 0) } } else { found } {
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFREG => None,
        Ok(stat) => {
            let open = lock::not_reentered().is_ok() && AtomicFile::find(stat.st_dev, stat.st_ino).is_some();
            // SAFETY: the path is good.
            ((meant || open) && !unsafe { ordinary::is(dirfd, path, &stat, descriptor) }).then_some(config)
        }
        Err(libc::ENOENT) => (meant && flags & libc::O_CREAT != 0).then_some(config),
        Err(_) => None,
    }
}

/// Whether `open` of `path` with `flags` may give an atomic file.
///
/// # Safety
/// As [`openat`].
pub unsafe fn may_be_atomic(path: *const c_char, flags: i32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { wanted(libc::AT_FDCWD, path, flags, true) }.is_some()
}

/// # Safety
/// `path` is a C string.
pub(super) unsafe fn stat_at(dirfd: RawFd, path: *const c_char, flags: i32) -> core::result::Result<Stat, i32> {
    // SAFETY: all-zero bytes are a valid stat; the kernel fills it in.
    unsafe {
        let mut stat: Stat = core::mem::zeroed();
        match raw!(SYS_newfstatat, dirfd, path, &raw mut stat, flags) {
            0 => Ok(stat),
            error => Err(-error as i32),
        }
    }
}

/// `opened`: by [`open_plain`], with these very flags.
///
/// # Safety
/// `path` is a C string.
unsafe fn open_atomic(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    mode: u32,
    opened: Option<RawFd>,
) -> Ret {
    // SAFETY: the caller's promise.
    let said = unsafe { CStr::from_ptr(path) };
    let reentered = lock::not_reentered().is_err();
    if (reentered || process::in_vfork_child())
        && let Some(fd) = opened
    {
        // SAFETY: the descriptor is ours and nobody has seen it.
        unsafe { raw!(SYS_close, fd) };
    }
    if reentered {
        return fail(libc::EDEADLK);
    }
    if process::in_vfork_child() {
        process::say(said, "refused (EBUSY): an atomic file cannot be opened between vfork(2) and exec(3)");
        return fail(libc::EBUSY);
    }
    let asked = flags & libc::O_ACCMODE;
    let cut = flags & libc::O_TRUNC != 0;
    // Both writing (a granule is filled from the file) and cutting need a descriptor for both.
    let kernel_access = if asked == libc::O_WRONLY || cut { libc::O_RDWR } else { asked };
    let kernel_flags = flags & !(libc::O_ACCMODE | libc::O_TRUNC | EMULATED) | kernel_access;
    if opened.is_none()
        && table::any()
        // SAFETY: the path is good.
        && let Ok(stat) = unsafe { stat_at(dirfd, path, 0) }
        && let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
    {
        // Open here already: its lease would keep this call waiting. If it stays, the kernel asks for it.
        let _ = file.give_up_lease();
    }
    let fd = match opened {
        Some(fd) => fd as Ret,
        // SAFETY: the caller's promise.
        None => unsafe { raw!(SYS_openat, dirfd, path, kernel_flags, mode) },
    };
    if fd < 0 {
        if fd == fail(libc::EACCES) && kernel_access != asked && process::say_once(process::Once::WriteOnly) {
            process::say(
                said,
                "refused: an atomic file is written with read access too; give the user read permission",
            );
        }
        return fd;
    }
    let fd = fd as RawFd;
    if table::is_managed(fd) {
        table::forget(fd);
    }
    match attach(config, fd, said, flags & (libc::O_ACCMODE | EMULATED), kernel_access, 0) {
        Ok(handle) if !cut || handle.file().size() == 0 => fd as Ret,
        Ok(handle) => match handle.file().set_size(0) {
            Ok(()) => fd as Ret,
            Err(error) => {
                super::close(fd);
                refused(said, &error)
            }
        },
        Err(error) => {
            // SAFETY: the descriptor is ours and nobody has seen it.
            unsafe { raw!(SYS_close, fd) };
            refused(said, &error)
        }
    }
}

fn refused(path: &CStr, error: &Error) -> Ret {
    process::say_error(path, error);
    fail(error.errno())
}

/// Makes `fd` a descriptor of an atomic file.
fn attach(config: &Config, fd: RawFd, said: &CStr, flags: i32, kernel_access: i32, position: u64) -> Result<Handle> {
    // It allocates: a handler in between that did so too would wait for the allocator's lock.
    let _held = Held::of_process();
    if let Some(warning) = config.warning()
        && process::say_once(process::Once::Weakened)
    {
        crate::sys::notice(&warning);
    }
    let path = policy::path_of(fd, said);
    // SAFETY: the descriptor is open, and stays so during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let file: Arc<AtomicFile> = AtomicFile::open(borrowed, table::access(kernel_access), &path, &config.settings)?;
    let handle = Handle::new(file, path, flags, kernel_access);
    handle.set_position(position);
    table::install(fd, handle.share());
    Ok(handle)
}

/// After a libc function has opened `fd` by its own means (`mkstemp`, `open_by_handle_at`): if the path is meant, or
/// the file is open here as an atomic file, the descriptor joins in. A file that it cannot join is demoted.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn adopt(fd: RawFd, path: *const c_char) -> Ret {
    // SAFETY: the caller's promise.
    demote::unless_standard(unsafe { join(fd, path) })
}

/// # Safety
/// As [`adopt`].
unsafe fn join(fd: RawFd, path: *const c_char) -> Ret {
    table::fresh(fd as isize);
    let Some(config) = process::config() else { return fd as Ret };
    if fd < 0 || lock::not_reentered().is_err() || process::in_vfork_child() {
        return fd as Ret;
    }
    // SAFETY: the caller's promise.
    let said = if path.is_null() { c"?" } else { unsafe { CStr::from_ptr(path) } };
    // SAFETY: an empty path with this flag is the descriptor itself.
    let Ok(stat) = (unsafe { stat_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH) }) else { return fd as Ret };
    let open = AtomicFile::find(stat.st_dev, stat.st_ino);
    let meant = !path.is_null() && config.globs.matches(libc::AT_FDCWD, said.to_bytes(), true);
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG
        || !(meant || open.is_some())
        // SAFETY: as above.
        || unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) }
    {
        return fd as Ret;
    }
    // SAFETY: no memory is passed.
    let (flags, position) = unsafe { (raw!(SYS_fcntl, fd, libc::F_GETFL), raw!(SYS_lseek, fd, 0, libc::SEEK_CUR)) };
    let flags = flags as i32;
    if flags & libc::O_PATH != 0 {
        return fd as Ret;
    }
    if flags & libc::O_ACCMODE == libc::O_WRONLY || flags & libc::O_DSYNC != 0 {
        if let Some(file) = open
            && let Err(error) = demote::demote_file(&file, &policy::path_of(fd, said), fd, "a write-only descriptor")
        {
            // SAFETY: the program never sees the descriptor.
            unsafe { raw!(SYS_close, fd) };
            return refused(said, &error);
        }
        return fd as Ret;
    }
    if flags & (libc::O_APPEND | libc::O_DIRECT) != 0 {
        // SAFETY: no memory is passed.
        unsafe { raw!(SYS_fcntl, fd, libc::F_SETFL, flags & !(libc::O_APPEND | libc::O_DIRECT)) };
    }
    let access = flags & libc::O_ACCMODE;
    match attach(config, fd, said, flags & (libc::O_ACCMODE | EMULATED), access, position.max(0) as u64) {
        Ok(_) => fd as Ret,
        Err(error) => {
            // SAFETY: the program never sees the descriptor.
            unsafe { raw!(SYS_close, fd) };
            refused(said, &error)
        }
    }
}
