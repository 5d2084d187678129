//! `fcntl` and `ioctl`: locks, leases and the like go to the kernel on the real descriptor.

use super::description::{Description, KEPT};
use super::verify::may_wait_for;
use super::{close, description_mark, dup, locks, table};
use crate::posix::call::user;
use crate::posix::runtime::numbers::with_lowest;
use crate::posix::{Ret, fail, raw, steadily};
use std::os::fd::RawFd;

/// `F_SETOWN`, `F_GETOWN`, `F_SETSIG`, `F_GETSIG`: 8 to 11.
const F_SETOWN: i32 = 8;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

/// Flags that `F_SETFL` may change and the library emulates.
const SETTABLE: i32 = libc::O_APPEND | libc::O_DIRECT;

/// Flags that `F_SETFL` may change on the kernel's description.
const KERNELS: i32 = libc::O_NONBLOCK | libc::O_NOATIME;

/// `fcntl(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn fcntl(fd: RawFd, command: i32, argument: usize) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { raw!(SYS_fcntl, fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => return dup::from(fd, argument as RawFd, kernel),
        libc::F_GETFL | libc::F_SETFL => {}
        libc::F_GETFD | libc::F_SETFD => return while_number_stays(fd, kernel),
        _ if locks::is_lock(command) => {}
        // A lease uses these settings, so from here on they belong to the program.
        libc::F_SETLEASE | libc::F_GETLEASE | F_SETOWN..=F_GETSIG | F_SETOWN_EX | F_GETOWN_EX => {
            if let Some(handle) = table::get(fd)
                && handle.is_ours()
                && let Err(error) = handle.file().bar_lease()
            {
                return fail(error.errno());
            }
            if command == libc::F_SETLEASE && argument as i32 != libc::F_UNLCK {
                description_mark::make_way(fd);
            }
            return kernel();
        }
        _ => return if close::is_hidden(fd) { fail(libc::EBADF) } else { kernel() },
    }
    let Some(handle) = table::get(fd) else {
        if close::is_hidden(fd) {
            return fail(libc::EBADF);
        }
        if locks::is_lock(command) {
            locks::before_lock_of_other(fd);
        }
        return kernel();
    };
    match command {
        libc::F_GETFL => match steadily(fd, kernel) {
            flags if flags < 0 => flags,
            flags => shown_flags(fd, &handle, flags as i32) as Ret,
        },
        libc::F_SETFL => set_flags(fd, &handle, argument as i32),
        // SAFETY: the caller's promise.
        _ => unsafe { locks::fcntl_lock(fd, &handle, command, argument) },
    }
}

/// Runs a call on the descriptor itself, while no other thread leads the number to another
/// description (`file::operations::twins`), and no descriptor of the library has it for a moment.
fn while_number_stays(fd: RawFd, call: impl FnOnce() -> Ret) -> Ret {
    match table::get(fd) {
        Some(handle) if may_wait_for(&handle) => handle.file().while_numbers_stay(call),
        Some(_) => call(),
        None => with_lowest(|| if close::is_hidden(fd) { fail(libc::EBADF) } else { call() }),
    }
}

/// The kernel's flags, plus those that the program asked for.
fn shown_flags(fd: RawFd, handle: &Description, kernel: i32) -> i32 {
    let mut own = libc::O_ACCMODE | KEPT;
    if handle.is_demoted() {
        own &= !SETTABLE;
    }
    // For a moment the number may lead to an `O_PATH` descriptor.
    let kernel = kernel & !libc::O_PATH;
    kernel & !own | handle.flags_now(fd) & own
}

fn set_flags(fd: RawFd, handle: &Description, flags: i32) -> Ret {
    let kept = if handle.is_demoted() { flags } else { flags & !SETTABLE };
    // SAFETY: no memory is passed.
    let kernel = || unsafe { raw!(SYS_fcntl, fd, libc::F_SETFL, kept) };
    // SAFETY: as above.
    let changes = || (unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) } as i32 ^ kept) & KERNELS != 0;
    let result = match () {
        () if !handle.is_ours() || handle.is_demoted() => kernel(),
        () if handle.file().has_twins() && !changes() => 0,
        () => handle.file().while_apart(kernel),
    };
    if result == 0 {
        handle.set_flags(handle.flags() & !SETTABLE | flags & SETTABLE);
        if handle.is_demoted() {
            description_mark::mark_demoted(fd, handle.flags());
        } else if handle.is_shared() {
            description_mark::set(fd, handle.flags());
        }
    }
    result
}

const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIDEDUPERANGE: u32 = 0xc018_9436;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FIBMAP: u32 = 1;
const FIONREAD: u32 = 0x541b;
const FIONCLEX: u32 = 0x5450;
const FIOCLEX: u32 = 0x5451;
/// `FS_IOC_RESVSP` to `FS_IOC_ZERO_RANGE`: old forms of `fallocate`.
const SPACE: [u32; 5] = [0x4030_5828, 0x4030_5829, 0x4030_582a, 0x4030_582b, 0x4030_5839];

/// `ioctl(2)`. Requests that would read or move blocks of an atomic file past its log return `EOPNOTSUPP`; programs
/// then copy.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub unsafe fn ioctl(fd: RawFd, request: u32, argument: usize) -> Ret {
    // SAFETY: the caller's promise.
    let kernel = || steadily(fd, || unsafe { raw!(SYS_ioctl, fd, request, argument) });
    if !table::any() {
        return kernel();
    }
    let source = match request {
        FICLONE => Some(argument as RawFd),
        // SAFETY: any bytes are a number; `file_clone_range` starts with the source descriptor.
        FICLONERANGE => unsafe { user::get(argument as *const i64) }.ok().map(|fd| fd as RawFd),
        _ => None,
    };
    if source.is_some_and(is_live) {
        return fail(libc::EOPNOTSUPP);
    }
    if !is_live(fd) {
        return kernel();
    }
    match request {
        FIONCLEX | FIOCLEX => while_number_stays(fd, kernel),
        // No process can write the file after this, not even recovery, so everything is written to it first.
        FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR => {
            if let Some(handle) = table::get(fd)
                && handle.is_ours()
                && let Err(error) = handle.file().checkpoint()
            {
                return super::verify::failed(&handle, &error);
            }
            kernel()
        }
        FICLONE | FICLONERANGE | FIDEDUPERANGE | FS_IOC_FIEMAP | FIBMAP => fail(libc::EOPNOTSUPP),
        request if SPACE.contains(&request) => fail(libc::EOPNOTSUPP),
        FIONREAD => {
            let Some(handle) = table::get(fd) else { return kernel() };
            let left = (handle.file().size() as i64).wrapping_sub(handle.position(fd) as i64) as i32;
            match user::put(argument as *mut i32, &left) {
                Ok(()) => 0,
                Err(error) => fail(error.errno()),
            }
        }
        _ => kernel(),
    }
}

/// Whether `fd` is an atomic file that has not been demoted.
pub(in crate::posix) fn is_live(fd: RawFd) -> bool {
    table::get(fd).is_some_and(|handle| !handle.is_demoted() && !handle.file().is_demoted())
}

/// `lockf(3)`: a record lock that begins at the position.
pub fn lockf(fd: RawFd, what: i32, len: i64) -> Ret {
    let (kind, command) = match what {
        libc::F_LOCK => (libc::F_WRLCK, libc::F_SETLKW),
        libc::F_TLOCK => (libc::F_WRLCK, libc::F_SETLK),
        libc::F_ULOCK => (libc::F_UNLCK, libc::F_SETLK),
        libc::F_TEST => (libc::F_RDLCK, libc::F_GETLK),
        _ => return fail(libc::EINVAL),
    };
    // SAFETY: zeros are a `flock`.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_len) = (kind as i16, libc::SEEK_CUR as i16, len);
    // SAFETY: our own.
    let result = unsafe { fcntl(fd, command, &raw mut lock as usize) };
    // SAFETY: no arguments.
    let me = || unsafe { raw!(SYS_getpid) };
    let is_free = || i32::from(lock.l_type) == libc::F_UNLCK || lock.l_pid as isize == me();
    if result == 0 && what == libc::F_TEST && !is_free() { fail(libc::EACCES) } else { result }
}
