//! File locks, kept in memory or in the kernel on the real descriptor (`file::locks`). Their offsets use the logical
//! file position.

use super::description::Description;
use super::table;
use super::unlock::{before_unlock, has_locked, has_unlocked, is_kept};
use crate::file;
use crate::file::locks::{InKernel, Kind, Lock, Outcome, Owner, Range, Waiting};
use crate::file::locks::{are_any_kept, keep_no_locks_of};
use crate::file::{LockOf, any_deferred_close, end_deferred_closes};
use crate::posix::call::look::stat_of;
use crate::posix::call::{lock, user};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use core::mem::{MaybeUninit, offset_of};
use std::os::fd::RawFd;

/// How often a lock for writing is asked for again after locks that other processes kept were recalled.
const TRIES: u32 = 12;

/// Whether `command` is about record locks.
pub(in crate::posix) fn is_lock(command: i32) -> bool {
    use libc::{F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLK, F_SETLKW};
    matches!(command, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW)
}

fn is_of_description(command: i32) -> bool {
    matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW)
}

fn is_to_wait(command: i32) -> bool {
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
/// whose deferred close would drop the lock, or whose locks are kept.
#[cold]
pub(super) fn before_lock_of_other(fd: RawFd) {
    if (any_deferred_close() || are_any_kept())
        && lock::not_reentered().is_ok()
        && !in_vfork_child()
        && let Ok(stat) = stat_of(fd)
    {
        end_deferred_closes(Some((stat.st_dev, stat.st_ino)));
        keep_no_locks_of((stat.st_dev, stat.st_ino));
    }
}

/// A lock of a descriptor of the parent, or of an ordinary file.
#[cold]
fn by_another_descriptor<'a, T>(fd: RawFd) -> Outcome<'a, T> {
    before_lock_of_other(fd);
    Outcome::Kernel(InKernel::uncounted())
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
    let outcome = match request(handle, command, lock) {
        _ if !is_kept(handle) => by_another_descriptor(fd),
        Some((owner, kind, range)) => {
            if kind.is_some() && matches!(of, LockOf::Description) {
                handle.keeps_locks();
            }
            handle.file().set_lock(owner, kind, range, is_to_wait(command))
        }
        None => Outcome::Kernel(InKernel::uncounted()),
    };
    let result = match outcome {
        Outcome::Done(Ok(())) => 0,
        Outcome::Done(Err(errno)) => fail(errno),
        Outcome::Kernel(in_kernel) => {
            let result = set_in_kernel(fd, command, lock, &in_kernel);
            if result == 0 && kind == libc::F_UNLCK {
                in_kernel.unlocked(all && matches!(of, LockOf::Process));
            } else if result == 0 {
                in_kernel.locked();
            }
            result
        }
    };
    if result == 0 && kind == libc::F_UNLCK {
        has_unlocked(handle);
    }
    if result == 0 && kind != libc::F_UNLCK {
        has_locked(handle, (kind == libc::F_WRLCK).then_some(of));
    }
    result
}

/// Asks the kernel. A lock for writing that it refuses, because other processes keep locks, is asked for again.
fn set_in_kernel(fd: RawFd, command: i32, lock: &mut libc::flock, in_kernel: &InKernel<'_>) -> Ret {
    // SAFETY: our copy, which the kernel reads.
    let call = |command: i32, lock: &mut libc::flock| unsafe { raw!(SYS_fcntl, fd, command, &raw mut *lock) };
    if i32::from(lock.l_type) != libc::F_WRLCK {
        return call(command, lock);
    }
    let (at_once, ask) = match command {
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => (libc::F_OFD_SETLK, libc::F_OFD_GETLK),
        _ => (libc::F_SETLK, libc::F_GETLK),
    };
    let is_refused = |result: Ret| [fail(libc::EAGAIN), fail(libc::EACCES)].contains(&result);
    let mut result = call(at_once, lock);
    if !is_refused(result) {
        return result;
    }
    let waiting = in_kernel.waits(command != at_once);
    if command != at_once {
        waiting.iter().for_each(Waiting::recalls_at_once);
        return call(command, lock);
    }
    let Some(waiting) = waiting else { return result };
    for tries in 0..TRIES {
        let mut found = *lock;
        let is_for_writing = call(ask, &mut found) == 0 && i32::from(found.l_type) == libc::F_WRLCK; // not kept
        if is_for_writing || !waiting.asks_again(tries) {
            break;
        }
        result = call(at_once, lock);
        if !is_refused(result) {
            break;
        }
    }
    result
}

/// `F_GETLK` and its variants.
fn ask(fd: RawFd, handle: &Description, command: i32, lock: &mut libc::flock, theirs: *mut libc::flock) -> Ret {
    let outcome = match request(handle, command, lock) {
        _ if !is_kept(handle) => by_another_descriptor(fd),
        Some((owner, Some(kind), range)) => handle.file().find_conflict(Lock { owner, kind, range }),
        None => Outcome::Kernel(InKernel::uncounted()),
        // The kernel's answer to this differs between versions.
        Some((_, None, _)) => match handle.file().locks_in_kernel() {
            Outcome::Done(done) => Outcome::Done(done.map(|()| None)),
            Outcome::Kernel(in_kernel) => Outcome::Kernel(in_kernel),
        },
    };
    match outcome {
        Outcome::Done(Err(errno)) => return fail(errno),
        Outcome::Done(Ok(None)) => lock.l_type = libc::F_UNLCK as i16,
        Outcome::Done(Ok(Some(found))) => show(lock, found),
        Outcome::Kernel(in_kernel) => {
            let result = ask_kernel(fd, command, lock, &in_kernel);
            if result != 0 {
                return result;
            }
        }
    }
    // Without a conflict, the kernel changes only the type. The range that the library filled in must not be seen.
    let done = match i32::from(lock.l_type) == libc::F_UNLCK {
        true => user::put(theirs.wrapping_byte_add(offset_of!(libc::flock, l_type)).cast(), &lock.l_type),
        false => user::put(theirs, &*lock),
    };
    done.map_or_else(|error| fail(error.errno()), |()| 0)
}

/// Asks the kernel; again if it reports a lock that another process may only keep.
fn ask_kernel(fd: RawFd, command: i32, lock: &mut libc::flock, in_kernel: &InKernel<'_>) -> Ret {
    let asked = *lock;
    // SAFETY: our copy, to which an answer may be written.
    let call = |lock: &mut libc::flock| unsafe { raw!(SYS_fcntl, fd, command, &raw mut *lock) };
    let result = call(lock);
    if result != 0 || i32::from(lock.l_type) != libc::F_RDLCK {
        return result;
    }
    match in_kernel.waits(false) {
        Some(waiting) if waiting.recalls() => {
            *lock = asked;
            call(lock)
        }
        _ => result,
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
                in_kernel.unlocked(false);
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
