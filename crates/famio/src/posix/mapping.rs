//! The program's maps of atomic files. All but the checks that the kernel makes by the descriptor is `file::shadow`'s.

use super::demote::demote_file;
use super::description::Description;
use super::{Ret, fail, lock, process, raw, table, verify};
use crate::error::{Error, Result};
use crate::file::shadow::{self, MapRequest, Mapped};
use std::os::fd::RawFd;

/// `mmap(2)`: see [`shadow`]. A file that takes too much memory for that is handed back.
///
/// # Safety
/// As the system call.
pub unsafe fn mmap(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    let mapped = || unsafe { mmap_there(addr, length, prot, flags, fd, offset) };
    if flags & libc::MAP_FIXED != 0 { change(addr, length, mapped) } else { mapped() }
}

/// As [`mmap`], when what is there is known to go.
///
/// # Safety
/// As the system call.
unsafe fn mmap_there(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_mmap, addr, length, prot, flags, fd, offset) };
    if flags & libc::MAP_ANONYMOUS == 0
        && let Some(handle) = table::get(fd)
        && !process::in_vfork_child()
    {
        let may_store = handle.flags() & libc::O_ACCMODE == libc::O_RDWR;
        let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        // The kernel's descriptor may be wider than what the program asked for.
        if !handle.may_read() || (shared && prot & libc::PROT_WRITE != 0 && !may_store) {
            return fail(libc::EACCES);
        }
        let request = MapRequest { addr, length, prot, flags, fd, offset, may_store };
        match map(&handle, &request) {
            Ok(Some(address)) => return address as Ret,
            Ok(None) => return kernel(),
            Err(error) => return verify::failed(&handle, &error),
        }
    }
    kernel()
}

/// Runs `kernel`, after which what is at `addr` now is gone.
fn change(addr: usize, length: usize, kernel: impl FnOnce() -> Ret) -> Ret {
    answer(addr, length, kernel, |kernel| shadow::discard(addr, length, kernel))
}

/// A call about `addr`: the kernel's, or `ours`, which asks the kernel as part of it.
fn answer<K: FnOnce() -> Ret>(addr: usize, length: usize, kernel: K, ours: impl FnOnce(K) -> Ret) -> Ret {
    match is_kernels(addr, length) {
        Ok(true) => kernel(),
        Ok(false) => ours(kernel),
        Err(error) => fail(error.errno()),
    }
}

/// Whether the kernel alone is asked about `addr`. In a signal handler that interrupted a call of ours, and in an allocator that
/// one has called for memory, it is, unless there is a map (`EDEADLK`).
fn is_kernels(addr: usize, length: usize) -> Result<bool> {
    if !shadow::any() || process::in_vfork_child() {
        return Ok(true);
    }
    match lock::not_reentered() {
        Ok(()) => Ok(false),
        Err(error) if shadow::may_touch(addr, addr.saturating_add(length)) => Err(error),
        Err(_) => Ok(true),
    }
}

/// `None`: the kernel answers.
fn map(handle: &Description, request: &MapRequest) -> Result<Option<usize>> {
    let fd = request.fd;
    if !verify::enter(fd, handle)? {
        return Ok(None);
    }
    if !super::close::is_still(fd, handle) {
        table::forget(fd);
        return Ok(None);
    }
    match shadow::map(handle.file(), request)? {
        Mapped::At(address) => Ok(Some(address)),
        Mapped::HandBack => {
            demote_file(handle.file(), handle.path(), fd, "mmap(2) of more than a quarter of this machine's memory")?;
            Ok(None)
        }
    }
}

/// `munmap(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn munmap(addr: usize, length: usize) -> Ret {
    // SAFETY: the caller's promise.
    change(addr, length, || unsafe { raw!(SYS_munmap, addr, length) })
}

/// `mremap(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn mremap(addr: usize, old_length: usize, length: usize, flags: i32, target: usize) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_mremap, addr, old_length, length, flags, target) };
    let target = (flags & libc::MREMAP_FIXED != 0).then_some(target);
    answer(addr, old_length, kernel, |kernel| shadow::remap((addr, old_length), length, (flags, target), kernel))
}

/// `mprotect(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn mprotect(addr: usize, length: usize, prot: i32) -> Ret {
    // SAFETY: the caller's promise.
    protect(addr, length, prot, || unsafe { raw!(SYS_mprotect, addr, length, prot) })
}

/// `pkey_mprotect(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn pkey_mprotect(addr: usize, length: usize, prot: i32, key: i32) -> Ret {
    // SAFETY: the caller's promise.
    protect(addr, length, prot, || unsafe { raw!(SYS_pkey_mprotect, addr, length, prot, key) })
}

fn protect(addr: usize, length: usize, prot: i32, kernel: impl FnOnce() -> Ret) -> Ret {
    answer(addr, length, kernel, |kernel| {
        shadow::protect(addr, length, prot, kernel).unwrap_or_else(|error| said(&error))
    })
}

/// `msync(2)`: with `MS_SYNC` a SYNC of each atomic file that is mapped there.
pub fn msync(addr: usize, length: usize, flags: i32) -> Ret {
    // SAFETY: changes no memory.
    let kernel = || unsafe { raw!(SYS_msync, addr, length, flags) };
    answer(addr, length, kernel, |kernel| {
        // The kernel's checks first.
        let checked = kernel();
        if checked < 0 || flags & libc::MS_SYNC == 0 {
            return checked;
        }
        match shadow::msync(addr, length) {
            Ok(()) => checked,
            Err(error) => said(&error),
        }
    })
}

/// `madvise(2)`. Holes that it would make are refused, as by a file system that has none: the shadow's would be no write.
pub fn madvise(addr: usize, length: usize, advice: i32) -> Ret {
    // SAFETY: changes no bytes of the program's, unless it is asked to, and what is asked for is its own.
    let kernel = || unsafe { raw!(SYS_madvise, addr, length, advice) };
    if advice != libc::MADV_REMOVE {
        return kernel();
    }
    answer(addr, length, kernel, |kernel| {
        if shadow::touches(addr, addr.saturating_add(length)) { fail(libc::EOPNOTSUPP) } else { kernel() }
    })
}

fn said(error: &Error) -> Ret {
    process::say_error(c"a map of an atomic file", error);
    fail(error.errno())
}
