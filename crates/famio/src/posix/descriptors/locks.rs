//! File locks, kept in memory or in the kernel on the real descriptor (`file::locks`). Their offsets use the logical
//! file position.

use super::description::Description;
use super::table;
use super::unlock::{before_unlock, has_locked, has_unlocked, is_kept};
use crate::file;
use crate::file::locks::{InKernel, Kind, Lock, Outcome, Owner, Range};
use crate::file::{LockOf, any_deferred_close, end_deferred_closes};
use crate::posix::call::look::stat_of;
use crate::posix::call::{lock, user};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use core::mem::{MaybeUninit, offset_of};
use std::os::fd::RawFd;

/// A call is to be made again. No system call returns this.
const AGAIN: Ret = Ret::MIN;
/// How often a lock that does not wait is asked for again.
const TRIES: u32 = 10;

/// Whether `command` is about record locks.
pub(in crate::posix) fn is_lock(command: i32) -> bool {
    use libc::{F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLK, F_SETLKW};
    matches!(command, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW)
}

fn is_of_description(command: i32) -> bool {
    matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW)
}

fn may_wait(command: i32) -> bool {
    matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

/// `fcntl(2)` with a command for record locks.
///
/// # Safety
/// `argument` is the caller's: bad memory gives `EFAULT`.
pub(in crate::posix) unsafe fn fcntl_lock(fd: RawFd, handle: &Description, command: i32, argument: usize) -> Ret {
    let theirs = argument as *mut libc::flock;
    let mut lock = MaybeUninit::<libc::flock>::uninit();
    // SAFETY: ours has room; theirs may be bad.
    if let Err(error) = unsafe { file::copy_in(lock.as_mut_ptr().cast(), theirs.cast(), size_of::<libc::flock>()) } {
        return fail(error.errno());
    }
    // SAFETY: any bytes are a `flock`.
    let mut lock = unsafe { lock.assume_init() };
    let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    // The kernel's descriptor may have a wider access mode than the program asked for.
    let refused = match i32::from(lock.l_type) {
        libc::F_RDLCK => !handle.may_read(),
        libc::F_WRLCK => !handle.may_write(),
        _ => false,
    };
    if refused && !asks {
        return fail(libc::EBADF);
    }
    let base = match i32::from(lock.l_whence) {
        libc::SEEK_CUR if !handle.is_demoted() => Some(handle.position(fd)),
        libc::SEEK_END if !handle.is_demoted() => Some(handle.file().size()),
        _ => None,
    };
    if let Some(base) = base {
        let Some(start) = lock.l_start.checked_add_unsigned(base) else { return fail(libc::EOVERFLOW) };
        (lock.l_start, lock.l_whence) = (start, libc::SEEK_SET as i16);
    }
    if asks { ask(fd, handle, command, &mut lock, theirs) } else { set(fd, handle, command, &mut lock) }
}

/// The owner, kind and range of the request; `None`: the kernel refuses it wherever the locks are kept.
fn request(handle: &Description, command: i32, lock: &libc::flock) -> Option<(Owner, Option<Kind>, Range)> {
    let kind = match i32::from(lock.l_type) {
        libc::F_RDLCK => Some(Kind::Read),
        libc::F_WRLCK => Some(Kind::Write),
        libc::F_UNLCK => None,
        _ => return None,
    };
    let of_description = is_of_description(command);
    if i32::from(lock.l_whence) != libc::SEEK_SET || of_description && lock.l_pid != 0 {
        return None;
    }
    let owner = if of_description { Owner::Description(handle.number()) } else { Owner::Process };
    Some((owner, kind, Range::from_flock(lock.l_start, lock.l_len).ok()?))
}

/// Before a lock of a descriptor that is not managed: it may be of a file that is open as an atomic file by another one,
/// whose deferred close would drop the lock.
#[cold]
pub(super) fn before_lock_of_other(fd: RawFd) {
    if any_deferred_close()
        && lock::not_reentered().is_ok()
        && !in_vfork_child()
        && let Ok(stat) = stat_of(fd)
    {
        end_deferred_closes(Some((stat.st_dev, stat.st_ino)));
    }
}

/// `F_SETLK` and its variants.
fn set(fd: RawFd, handle: &Description, command: i32, lock: &mut libc::flock) -> Ret {
    let kind = i32::from(lock.l_type);
    let of = if is_of_description(command) { LockOf::Description } else { LockOf::Process };
    let all = (lock.l_start, lock.l_len, i32::from(lock.l_whence)) == (0, 0, libc::SEEK_SET);
    // A process that turns a write lock into a read lock lets other processes in, as by an unlock.
    if kind != libc::F_WRLCK
        && let Err(error) = before_unlock(handle, kind == libc::F_UNLCK, all.then_some(of))
    {
        return fail(error.errno());
    }
    let mut result = set_once(fd, handle, command, lock, of);
    if result == AGAIN {
        result = set_again(fd, handle, command, lock, of);
    }
    if result == 0 && kind == libc::F_UNLCK {
        has_unlocked(handle);
    }
    if result == 0 && kind != libc::F_UNLCK {
        has_locked(handle, (kind == libc::F_WRLCK).then_some(of));
    }
    result
}

/// The locks were moved to or from the lock table during the call.
#[cold]
fn set_again(fd: RawFd, handle: &Description, command: i32, lock: &mut libc::flock, of: LockOf) -> Ret {
    let waits = may_wait(command);
    let mut tries = 0;
    while waits || tries < TRIES {
        let result = set_once(fd, handle, command, lock, of);
        if result != AGAIN {
            return result;
        }
        tries += 1;
    }
    fail(libc::EAGAIN)
}

#[inline]
fn is_refused(result: Ret) -> bool {
    [fail(libc::EAGAIN), fail(libc::EACCES)].contains(&result)
}

/// Asks the lock table or the kernel, wherever the locks are now.
#[inline(always)] // locks in memory cost little more than the call
fn set_once(fd: RawFd, handle: &Description, command: i32, lock: &mut libc::flock, of: LockOf) -> Ret {
    let waits = may_wait(command);
    let asked = if is_kept(handle) { request(handle, command, lock) } else { None };
    let outcome = match asked {
        Some((owner, kind, range)) => {
            if kind.is_some() && matches!(of, LockOf::Description) {
                handle.keeps_locks();
            }
            handle.file().set_lock(owner, kind, range, waits)
        }
        None => Outcome::Kernel(InKernel::uncounted()),
    };
    match outcome {
        Outcome::Done(Ok(())) => 0,
        Outcome::Done(Err(errno)) => fail(errno),
        Outcome::Kernel(in_kernel) => set_in_kernel(fd, handle, command, lock, asked, in_kernel),
    }
}

/// Asks the kernel.
fn set_in_kernel(
    fd: RawFd,
    handle: &Description,
    command: i32,
    lock: &mut libc::flock,
    asked: Option<(Owner, Option<Kind>, Range)>,
    in_kernel: InKernel<'_>,
) -> Ret {
    let (kind, waits) = (i32::from(lock.l_type), may_wait(command));
    // A call that waits there for the cover of other processes would wait for long.
    if waits && kind != libc::F_UNLCK && is_kept(handle) && handle.file().may_share_locks() && !in_kernel.is_known() {
        let first = if command == libc::F_SETLKW { libc::F_SETLK } else { libc::F_OFD_SETLK };
        // SAFETY: our copy, which the kernel reads.
        let result = unsafe { raw!(SYS_fcntl, fd, first, &raw mut *lock) };
        if !is_refused(result) {
            return result;
        }
        if in_kernel.may_have_moved() {
            return AGAIN;
        }
    }
    // SAFETY: our copy, which the kernel reads.
    let result = unsafe { raw!(SYS_fcntl, fd, command, &raw mut *lock) };
    if result == 0 && kind == libc::F_UNLCK {
        in_kernel.unlocked();
    } else if result == 0
        && let Some((owner, Some(kind), range)) = asked
        && !in_kernel.holds(owner, kind, range)
    {
        let mut undone = *lock;
        undone.l_type = libc::F_UNLCK as i16;
        let command = if is_of_description(command) { libc::F_OFD_SETLK } else { libc::F_SETLK };
        // SAFETY: as above.
        unsafe { raw!(SYS_fcntl, fd, command, &raw mut undone) };
        return AGAIN;
    } else if is_refused(result) && !waits && in_kernel.may_have_moved() {
        return AGAIN;
    }
    result
}

/// `F_GETLK` and its variants.
fn ask(fd: RawFd, handle: &Description, command: i32, lock: &mut libc::flock, theirs: *mut libc::flock) -> Ret {
    let asked = *lock;
    for tries in 0.. {
        match find_conflict(handle, command, lock) {
            Outcome::Done(Err(errno)) => return fail(errno),
            Outcome::Done(Ok(None)) => lock.l_type = libc::F_UNLCK as i16,
            Outcome::Done(Ok(Some(found))) => show(lock, found),
            Outcome::Kernel(_in_kernel) => {
                // SAFETY: our copy, to which an answer may be written.
                let result = unsafe { raw!(SYS_fcntl, fd, command, &raw mut *lock) };
                if result != 0 {
                    return result;
                }
                // A description's lock, of no process.
                let may_be_cover = i32::from(lock.l_type) != libc::F_UNLCK && lock.l_pid == -1;
                if may_be_cover && tries < TRIES && is_kept(handle) && handle.file().may_share_locks() {
                    let _ = handle.file().uses_table();
                    *lock = asked;
                    continue;
                }
            }
        }
        break;
    }
    // Without a conflict, the kernel changes only the type. The range that the library filled in must not be seen.
    let done = match i32::from(lock.l_type) == libc::F_UNLCK {
        true => user::put(theirs.wrapping_byte_add(offset_of!(libc::flock, l_type)).cast(), &lock.l_type),
        false => user::put(theirs, &*lock),
    };
    done.map_or_else(|error| fail(error.errno()), |()| 0)
}

/// What the lock table or the locks in memory have; or the kernel is to be asked.
fn find_conflict<'a>(handle: &'a Description, command: i32, lock: &libc::flock) -> Outcome<'a, Option<Lock>> {
    match request(handle, command, lock) {
        _ if !is_kept(handle) => Outcome::Kernel(InKernel::uncounted()),
        Some((owner, Some(kind), range)) => handle.file().find_conflict(Lock { owner, kind, range }),
        None => Outcome::Kernel(InKernel::uncounted()),
        // The kernel's answer to this differs between versions.
        Some((_, None, _)) => match handle.file().locks_in_kernel() {
            Outcome::Done(done) => Outcome::Done(done.map(|()| None)),
            Outcome::Kernel(in_kernel) => Outcome::Kernel(in_kernel),
        },
    }
}

/// Fills in a lock as the kernel would.
fn show(lock: &mut libc::flock, found: Lock) {
    let kind = match found.kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (found.range.start, found.range.flock_length());
    lock.l_pid = match found.owner {
        // SAFETY: no arguments.
        Owner::Process => unsafe { raw!(SYS_getpid) as i32 },
        Owner::OtherProcess(pid) => pid as i32,
        Owner::Description(_) => -1,
    };
}

/// Share modes for Samba; until Linux 5.17.
const LOCK_MAND: i32 = 32;

/// `flock(2)`.
pub fn flock(fd: RawFd, how: i32) -> Ret {
    let (handle, kind) = (table::get(fd), how & !libc::LOCK_NB);
    let Some(handle) = &handle else {
        // SAFETY: no memory is passed.
        return unsafe { raw!(SYS_flock, fd, how) };
    };
    if kind != libc::LOCK_EX
        && let Err(error) = before_unlock(handle, kind == libc::LOCK_UN, Some(LockOf::Description))
    {
        return fail(error.errno());
    }
    let wanted = match kind {
        libc::LOCK_SH => Some(Kind::Read),
        libc::LOCK_EX => Some(Kind::Write),
        _ => None,
    };
    let file = handle.file();
    let outcome = match kind {
        _ if !is_kept(handle) => Outcome::Kernel(InKernel::uncounted()),
        libc::LOCK_SH | libc::LOCK_EX | libc::LOCK_UN => {
            if wanted.is_some() {
                handle.keeps_locks();
            }
            file.set_flock(handle.number(), wanted)
        }
        _ if kind & LOCK_MAND != 0 => file.locks_in_kernel(), // old kernels
        _ => Outcome::Kernel(InKernel::uncounted()),
    };
    let result = match outcome {
        Outcome::Done(Ok(())) => 0,
        Outcome::Done(Err(errno)) => fail(errno),
        Outcome::Kernel(in_kernel) => {
            let flocks = file.flocks();
            // SAFETY: no memory is passed.
            let result = unsafe { raw!(SYS_flock, fd, how) };
            if result == 0 && kind == libc::LOCK_UN {
                file.flock_ended(flocks);
                in_kernel.unlocked();
            }
            result
        }
    };
    if result == 0 && kind == libc::LOCK_UN {
        has_unlocked(handle);
    }
    if result == 0 && kind != libc::LOCK_UN {
        has_locked(handle, (kind == libc::LOCK_EX).then_some(LockOf::Description));
    }
    result
}
