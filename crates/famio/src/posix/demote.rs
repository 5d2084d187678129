//! Handing a file back to the kernel: for what the library does not see (mapped stores, libc's own streams).

use super::description::Handle;
use super::{Ret, fail, lock, policy, process, raw, table, verify};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use core::ffi::c_char;
use libc::stat as Stat;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that stays ordinary for the life of the process: a mapping or a stream of it cannot be seen to end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ordinary {
    dev: u64,
    ino: u64,
    /// Tells a file from another that got its number; zero where the file system does not know.
    born: (i64, u32),
}

static ORDINARY: Mutex<Vec<Ordinary>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn ordinary() -> MutexGuard<'static, Vec<Ordinary>> {
    ORDINARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `path` is a C string.
unsafe fn identify(dirfd: RawFd, path: *const c_char, stat: &Stat) -> Ordinary {
    // SAFETY: the caller's promise.
    let flags = if unsafe { *path } == 0 { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: all-zero bytes are a valid statx; the kernel fills it in.
    let born = unsafe {
        let mut more: libc::statx = core::mem::zeroed();
        let done = raw!(SYS_statx, dirfd, path, flags, libc::STATX_BTIME, &raw mut more);
        if done == 0 { (more.stx_btime.tv_sec, more.stx_btime.tv_nsec) } else { (0, 0) }
    };
    Ordinary { dev: stat.st_dev, ino: stat.st_ino, born }
}

/// Whether the file was demoted earlier in this process.
///
/// # Safety
/// `path` is a C string; empty: `dirfd` itself.
pub(super) unsafe fn is_ordinary_path(dirfd: RawFd, path: *const c_char, stat: &Stat) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    let file = unsafe { identify(dirfd, path, stat) };
    ordinary().contains(&file)
}

/// Demotes: the file is committed, settled and closed clean, then every description of it gets its position and flags
/// back from us. `fd` is any descriptor of it.
pub(super) fn demote_file(file: &Arc<AtomicFile>, path: &CStr, fd: RawFd, why: &str) -> Result<()> {
    if !file.is_demoted() {
        // SAFETY: an empty path with this flag is the descriptor itself.
        let identity = unsafe {
            let stat = super::open::stat_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH).map_err(Error::new)?;
            identify(fd, c"".as_ptr(), &stat)
        };
        ordinary().push(identity);
        COUNT.fetch_add(1, Ordering::Release);
        if let Err(error) = file.demote() {
            ordinary().retain(|other| *other != identity);
            COUNT.fetch_sub(1, Ordering::Release);
            return Err(error);
        }
        let what = format!("handed back to the kernel because of {why}: from here on it is an ordinary file");
        process::say(path, &what);
    }
    table::for_each(0, u32::MAX, |fd, handle| {
        if Arc::ptr_eq(handle.file(), file) {
            handle.hand_back(fd);
        }
    });
    Ok(())
}

fn demote_handle(fd: RawFd, handle: &Handle, why: &str) -> Result<()> {
    if !verify::enter(fd, handle)? {
        return Ok(());
    }
    if !super::close::is_still(fd, handle) {
        table::forget(fd);
        return Ok(());
    }
    demote_file(handle.file(), handle.path(), fd, why)
}

/// Demotes the file of `fd`, if it is an atomic one: 0, or a negated errno.
pub fn demote_descriptor(fd: RawFd, why: &str) -> Ret {
    let Some(handle) = table::get(fd) else { return 0 };
    if process::in_vfork_child() {
        return fail(libc::EBUSY);
    }
    match demote_handle(fd, &handle, why) {
        Ok(()) => 0,
        Err(error) => verify::failed(&handle, &error),
    }
}

/// Before a stream is made of `fd`: as [`demote_descriptor`]; `O_SYNC`, which the kernel cannot be told any more, is
/// refused.
pub(super) fn refuses_stream(handle: &Handle) -> bool {
    handle.syncs()
}

/// Before libc opens `path` by itself: a file that is open here is demoted; one that is meant is recovered first, and
/// stays ordinary. 0, or a negated errno.
///
/// # Safety
/// As `open(2)`: bad memory is left to libc's call.
pub unsafe fn demote_path(path: *const c_char, why: &str) -> Ret {
    // SAFETY: the caller's promise; `wanted` has the kernel check the path first.
    let Some(config) = (unsafe { super::open::wanted(libc::AT_FDCWD, path, libc::O_CREAT) }) else { return 0 };
    if lock::not_reentered().is_err() || process::in_vfork_child() {
        return fail(libc::EDEADLK);
    }
    // SAFETY: `wanted` found the path good.
    let said = unsafe { CStr::from_ptr(path) };
    // SAFETY: as above. A file that does not exist yet is created by libc, and its descriptor is libc's.
    let Ok(stat) = (unsafe { super::open::stat_at(libc::AT_FDCWD, path, 0) }) else {
        process::say(said, &format!("created by {why}: it is an ordinary file, not an atomic one"));
        return 0;
    };
    if let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino) {
        let mut result = None;
        table::for_each(0, u32::MAX, |fd, handle| {
            if result.is_none() && handle.is_ours() && Arc::ptr_eq(handle.file(), &file) {
                result = Some(match demote_file(&file, handle.path(), fd, why) {
                    Ok(()) => 0,
                    Err(error) => verify::failed(handle, &error),
                });
            }
        });
        if let Some(result) = result {
            return result;
        }
    }
    // SAFETY: as above; the descriptor is ours until it is closed below.
    unsafe {
        let mut fd = raw!(SYS_openat, libc::AT_FDCWD, path, libc::O_RDWR | libc::O_CLOEXEC, 0);
        let access = if fd < 0 { libc::O_RDONLY } else { libc::O_RDWR };
        if fd < 0 {
            fd = raw!(SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        }
        if fd < 0 {
            return 0;
        }
        let fd = fd as RawFd;
        let real = policy::path_of(fd, said);
        let opened = AtomicFile::open(BorrowedFd::borrow_raw(fd), table::access(access), &real, &config.settings);
        let done = opened.and_then(|file| {
            let demoted = demote_file(&file, &real, fd, why);
            let removed = file.remove_descriptor(fd);
            demoted.and(removed)
        });
        raw!(SYS_close, fd);
        match done {
            Ok(()) => 0,
            Err(error) => {
                if let Some(detail) = error.detail() {
                    process::say(&real, detail);
                }
                fail(error.errno())
            }
        }
    }
}

/// Before `fdopen`: 0, or a negated errno.
pub fn demote_for_stream(fd: RawFd, why: &str) -> Ret {
    if let Some(handle) = table::get(fd)
        && refuses_stream(&handle)
    {
        process::say(handle.path(), &format!("{why} refused: a stream of an atomic file opened with O_SYNC"));
        return fail(libc::EOPNOTSUPP);
    }
    demote_descriptor(fd, why)
}

/// Before `fclose` closes `fd` out of our sight.
pub fn stdio_close(fd: RawFd) {
    if table::is_managed(fd) && !process::in_vfork_child() && lock::not_reentered().is_ok() {
        super::close::release(fd);
    }
}

/// `mmap(2)`: a mapping of an atomic file makes it an ordinary one.
///
/// # Safety
/// As the system call.
pub unsafe fn mmap(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    if flags & libc::MAP_ANONYMOUS == 0
        && let Some(handle) = table::get(fd)
    {
        // The kernel's descriptor may be wider than what the program asked for.
        let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        if !handle.may_read()
            || (shared && prot & libc::PROT_WRITE != 0 && handle.flags() & libc::O_ACCMODE != libc::O_RDWR)
        {
            return fail(libc::EACCES);
        }
        let demoted = demote_descriptor(fd, "mmap(2)");
        if demoted < 0 {
            return demoted;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { raw!(SYS_mmap, addr, length, prot, flags, fd, offset) }
}
