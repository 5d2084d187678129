//! Hooks for maps of atomic files. This module makes the kernel's checks of the descriptor; `file::shadow` does the
//! rest.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::shadow;
use crate::file::shadow::{MapRequest, Mapped};
use crate::map::Advice;
use crate::posix::call::lock;
use crate::posix::call::user::Vectors;
use crate::posix::descriptors::demote::demote_file;
use crate::posix::descriptors::description::Description;
use crate::posix::descriptors::verify::is_still;
use crate::posix::descriptors::{close, table, verify};
use crate::posix::run::run_notes;
use crate::posix::runtime::say::say_error;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw, steadily};
use std::ffi::CString;
use std::os::fd::RawFd;

/// `mmap(2)`: see `shadow`. A file that would take too much memory is demoted.
///
/// # Safety
/// As the system call.
pub unsafe fn mmap(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    // SAFETY: the caller's promise.
    unsafe { mmap_or(addr, length, prot, flags, fd, offset, None) }
}

/// In the flags of `nvmmap`: only copies are to change the map. Of an ordinary file, it means nothing.
const NVMAP_COPIES: i32 = 0x200_0000;

/// `nvmmap`: as [`mmap`], but a file that would take too much memory stays atomic, and the call returns `ENOMEM`.
///
/// # Safety
/// As [`mmap`].
pub(crate) unsafe fn map_region(addr: usize, length: usize, prot: i32, flags: i32, fd: RawFd, offset: i64) -> Ret {
    let is_asked = flags & NVMAP_COPIES != 0;
    if is_asked && flags & libc::MAP_TYPE == libc::MAP_PRIVATE {
        return fail(libc::EINVAL);
    }
    let copies = is_asked && prot & libc::PROT_WRITE != 0;
    // SAFETY: the caller's promise.
    unsafe { mmap_or(addr, length, prot, flags & !NVMAP_COPIES, fd, offset, Some(Region { copies })) }
}

const PAGE: usize = 4096;
/// Larger than any process's address space.
const ADDRESSES: usize = 1 << 47;

/// A map that the program asked the library for.
#[derive(Clone, Copy)]
struct Region {
    /// For copies alone.
    copies: bool,
}

/// # Safety
/// As [`mmap`].
unsafe fn mmap_or(
    addr: usize,
    length: usize,
    prot: i32,
    flags: i32,
    fd: RawFd,
    offset: i64,
    region: Option<Region>,
) -> Ret {
    // SAFETY: the caller's promise.
    let mapped = || unsafe { mmap_there(addr, length, prot, flags, fd, offset, region) };
    if flags & libc::MAP_FIXED != 0 { change(addr, length, mapped) } else { mapped() }
}

/// As [`mmap`], when the map that is there is known to be replaced.
///
/// # Safety
/// As the system call.
unsafe fn mmap_there(
    addr: usize,
    length: usize,
    prot: i32,
    flags: i32,
    fd: RawFd,
    offset: i64,
    region: Option<Region>,
) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_mmap, addr, length, prot, flags, fd, offset) };
    if flags & libc::MAP_ANONYMOUS == 0 && close::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    if flags & libc::MAP_ANONYMOUS == 0
        && let Some(handle) = table::get(fd)
        && !in_vfork_child()
    {
        if is_refused_unseen(length, flags, offset) {
            return kernel();
        }
        let may_store = handle.flags() & libc::O_ACCMODE == libc::O_RDWR;
        let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        // The kernel's descriptor may have a wider access mode than the program asked for.
        if !handle.may_read() || (shared && prot & libc::PROT_WRITE != 0 && !may_store) {
            return fail(libc::EACCES);
        }
        let copies = region.is_some_and(|region| region.copies);
        let asked = if copies { prot & !libc::PROT_WRITE } else { prot };
        let request = MapRequest { addr, length, prot: asked, flags, fd, offset, may_store, copies };
        match map(&handle, &request, region) {
            Ok(Some(address)) => return address as Ret,
            Ok(None) => {
                if shared && may_store && handle.file().is_demoted() {
                    handle.file().keep_demotion_note();
                }
                return kernel();
            }
            Err(error) => return verify::failed(&handle, &error),
        }
    }
    kernel()
}

/// Whether the kernel refuses such a map before it checks the access mode of the descriptor.
fn is_refused_unseen(length: usize, flags: i32, offset: i64) -> bool {
    let known = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_SHARED_VALIDATE);
    length == 0 || length > ADDRESSES || !(offset as usize).is_multiple_of(PAGE) || !known
}

/// Runs `kernel`, which removes what is mapped at `addr`.
fn change(addr: usize, length: usize, kernel: impl FnOnce() -> Ret) -> Ret {
    answer(addr, length, kernel, |kernel| shadow::discard(addr, length, kernel))
}

/// A call about `addr`: answered by `kernel`, or by `ours`, which calls the kernel as a part.
fn answer<K: FnOnce() -> Ret>(addr: usize, length: usize, kernel: K, ours: impl FnOnce(K) -> Ret) -> Ret {
    match is_kernels(addr, length) {
        Ok(true) => kernel(),
        Ok(false) => ours(kernel),
        Err(error) => fail(error.errno()),
    }
}

/// Whether the kernel alone handles `addr`. This is so in a signal handler, or an allocator, that runs inside one of
/// the library's calls, unless the library has a map there (`EDEADLK`).
fn is_kernels(addr: usize, length: usize) -> Result<bool> {
    if !shadow::any() || in_vfork_child() {
        return Ok(true);
    }
    match lock::not_reentered() {
        Ok(()) => Ok(false),
        Err(error) if shadow::may_touch(addr, addr.saturating_add(length)) => Err(error),
        Err(_) => Ok(true),
    }
}

/// Maps the file; `None`: the kernel does.
fn map(handle: &Description, request: &MapRequest, region: Option<Region>) -> Result<Option<usize>> {
    let fd = request.fd;
    if !verify::enter(fd, handle)? {
        return Ok(None);
    }
    if !is_still(fd, handle) {
        table::forget(fd);
        return Ok(None);
    }
    let mapped = match shadow::map(handle.file(), request) {
        Err(_) if handle.file().is_demoted() => {
            handle.demote(fd)?;
            return Ok(None);
        }
        mapped => mapped?,
    };
    match (mapped, region) {
        (Mapped::At(address), _) => Ok(Some(address)),
        // If the file is demoted already, the kernel maps it.
        (Mapped::Demote, _) if handle.file().is_demoted() => Ok(None),
        (Mapped::Demote, Some(_)) => Err(shadow::too_large(handle.file())),
        (Mapped::Demote, None) => {
            demote_file(
                handle.file(),
                handle.path(),
                fd,
                "mmap(2) of more than what map-memory allows (by default a quarter of this machine's memory)",
            )?;
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

/// `msync(2)`: `MS_SYNC` is a SYNC of each atomic file mapped in the range.
pub fn msync(addr: usize, length: usize, flags: i32) -> Ret {
    let kernel = || {
        // SAFETY: changes no memory.
        let done = unsafe { raw!(SYS_msync, addr, length, flags) };
        if done == 0 && flags & libc::MS_SYNC != 0 {
            run_notes::synced_map(addr);
        }
        done
    };
    answer(addr, length, kernel, |kernel| {
        // The kernel's checks first.
        let checked = kernel();
        if checked < 0 || flags & libc::MS_SYNC == 0 {
            return checked;
        }
        match shadow::msync(addr, length) {
            Ok(()) => {
                run_notes::protected();
                checked
            }
            Err(error) => said(&error),
        }
    })
}

/// Of `linux/mman.h`.
const DONTNEED_LOCKED: i32 = 24;
const COLLAPSE: i32 = 25;

/// `madvise(2)`: the kernel's, plus [`crate::region::advise`] for maps of atomic files. Advice that would punch holes
/// is refused, as on a file system without holes: a hole in the shadow would not be a write to the file.
pub fn madvise(addr: usize, length: usize, advice: i32) -> Ret {
    // SAFETY: changes no bytes of the program's, unless the program asks for that, of its own memory.
    let kernel = || unsafe { raw!(SYS_madvise, addr, length, advice) };
    if [libc::MADV_DONTNEED, DONTNEED_LOCKED, libc::MADV_HUGEPAGE, COLLAPSE].contains(&advice) {
        shadow::may_lose_page_tables(addr, addr.saturating_add(length));
    }
    if shadow::any_private()
        && let Some(kind) = OfPrivate::of(advice)
    {
        return answer(addr, length, kernel, |kernel| advise_private(addr, length, advice, kind, kernel));
    }
    // The constants are those of `posix_madvise`. Allocators often give up memory while they hold one of their locks;
    // that memory is not a map of a file.
    if let Some(ours) = Advice::from_posix(advice)
        && shadow::may_touch(addr, addr.saturating_add(length))
    {
        return answer(addr, length, kernel, |kernel| {
            let tell = || crate::region::advised(addr, addr.saturating_add(length), ours);
            if ours == Advice::DontNeed {
                tell();
            }
            let done = kernel();
            if done == 0 && ours != Advice::DontNeed {
                tell();
            }
            done
        });
    }
    if advice != libc::MADV_REMOVE {
        return kernel();
    }
    answer(addr, length, kernel, |kernel| {
        if shadow::touches(addr, addr.saturating_add(length)) { fail(libc::EOPNOTSUPP) } else { kernel() }
    })
}

/// `process_madvise(2)`: the kernel's. Advice by which maps of atomic files in this process would lose bytes is refused, as
/// Linux refused all such advice for the own process before 6.13: [`madvise`] keeps the bytes.
///
/// # Safety
/// As the system call.
pub unsafe fn process_madvise(pidfd: RawFd, parts: *const UserBuf, count: usize, advice: i32, flags: u32) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_process_madvise, pidfd, parts, count, advice, flags) };
    let may_drop = [libc::MADV_DONTNEED, DONTNEED_LOCKED, libc::MADV_REMOVE].contains(&advice)
        || matches!(OfPrivate::of(advice), Some(OfPrivate::Nothing | OfPrivate::Refused));
    if !may_drop || !shadow::any() || !is_this_process(pidfd) {
        return kernel();
    }
    // SAFETY: the pointer is the caller's, and is checked.
    match unsafe { Vectors::copy(parts, count) } {
        Ok(parts) if parts.slice().iter().any(|part| shadow::may_have_map(part.base as usize, part.len)) => {
            fail(libc::EINVAL)
        }
        _ => kernel(),
    }
}

/// Whether a process descriptor is that of this process, or may be.
fn is_this_process(pidfd: RawFd) -> bool {
    let Ok(name) = CString::new(format!("/proc/thread-self/fdinfo/{pidfd}")) else { return true };
    if pidfd < 0 {
        return true; // by a constant
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let mut text = [0; 512];
    let read =
        rustix::fs::open(&*name, flags, rustix::fs::Mode::empty()).and_then(|file| rustix::io::read(&file, &mut text));
    let Ok(text) = read.map_err(|_| ()).and_then(|len| core::str::from_utf8(&text[..len]).map_err(|_| ())) else {
        return true;
    };
    // In this process's own namespace, whichever `/proc` is mounted: the last of them.
    let pids = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let pid = pids.and_then(|pids| pids.split_whitespace().last()).and_then(|pid| pid.parse::<u32>().ok());
    pid.is_none_or(|pid| pid == crate::sys::process_id())
}

/// What to do with advice for private maps, where the kernel would act differently from shared maps.
#[derive(Clone, Copy)]
enum OfPrivate {
    /// Their bytes stay.
    Nothing,
    /// Refused for shared maps, too.
    Refused,
    /// Pages are read in, not copied.
    Read,
}

impl OfPrivate {
    fn of(advice: i32) -> Option<Self> {
        const GUARD_INSTALL: i32 = 102;
        match advice {
            libc::MADV_DONTNEED | DONTNEED_LOCKED | libc::MADV_DOFORK => Some(Self::Nothing),
            libc::MADV_FREE | libc::MADV_WIPEONFORK | GUARD_INSTALL => Some(Self::Refused),
            libc::MADV_POPULATE_WRITE => Some(Self::Read),
            _ => None,
        }
    }
}

fn advise_private(addr: usize, length: usize, advice: i32, kind: OfPrivate, kernel: impl FnOnce() -> Ret) -> Ret {
    let end = addr.saturating_add(length);
    let Some(outside) = shadow::outside_private(addr, end) else { return kernel() };
    // SAFETY: as in `madvise`.
    let madvise = |at: usize, len: usize, advice: i32| unsafe { raw!(SYS_madvise, at, len, advice) };
    if !addr.is_multiple_of(PAGE) {
        return fail(libc::EINVAL);
    }
    match kind {
        OfPrivate::Refused => return fail(libc::EINVAL),
        OfPrivate::Read => return madvise(addr, length, libc::MADV_POPULATE_READ),
        OfPrivate::Nothing => {}
    }
    if advice == libc::MADV_DONTNEED {
        crate::region::advised(addr, end, Advice::DontNeed);
    }
    for part in outside {
        let done = madvise(part.start, part.end - part.start, advice);
        if done < 0 {
            return done;
        }
    }
    0
}

/// `posix_madvise(3)`: as [`madvise`], but `POSIX_MADV_DONTNEED` drops no bytes, as in libc: for a map of an atomic
/// file, only page tables are dropped.
pub fn posix_madvise(addr: usize, length: usize, advice: i32) -> Ret {
    if Advice::from_posix(advice).is_none() {
        return fail(libc::EINVAL);
    }
    if advice != libc::POSIX_MADV_DONTNEED {
        return madvise(addr, length, advice); // the constants are the same
    }
    answer(
        addr,
        length,
        || 0,
        |_| {
            for part in shadow::parts(addr, addr.saturating_add(length)) {
                // Advice: what cannot be dropped stays.
                let _ = crate::region::advise(part.start & !4095, part.len, Advice::DontNeed);
            }
            0
        },
    )
}

/// `fadvise64(2)`: the kernel's, for its copy of the file; and for the maps through which an atomic file is read.
pub fn fadvise(fd: RawFd, offset: i64, length: i64, advice: i32) -> Ret {
    // SAFETY: no memory is passed.
    let done = steadily(fd, || unsafe { raw!(SYS_fadvise64, fd, offset, length, advice) });
    let Some(advice) = Advice::from_posix(advice).filter(|_| done == 0) else { return done };
    if let Some(handle) = table::get(fd)
        && handle.is_ours()
        && lock::not_reentered().is_ok()
    {
        // Length 0 means up to the end.
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) as u64 };
        handle.file().advise(offset as u64..end, advice);
    }
    done
}

fn said(error: &Error) -> Ret {
    say_error(c"a map of an atomic file", error);
    fail(error.errno())
}
