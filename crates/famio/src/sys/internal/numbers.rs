//! Where internal descriptors lie: as high as the process may have them, and never at the standard descriptors.

use super::registry::{is_open, is_taken};
use crate::error::{Error, Result};
use crate::near::NUMBERS;
use crate::sys::{check, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The numbers end here even if the process may have more: the kernel's table of descriptors, and each fork, grow with the highest.
pub(super) const TOP: RawFd = 4096;
/// The lowest that is taken when all others are used.
const LOWEST: RawFd = 3;
/// A program with a limit below this, the usual one, is taken to need all numbers that it may have.
const FEW: u64 = 1024;
/// Numbers that are tried one by one before larger steps are taken.
const TRIES: u32 = 16;

fn duplicate(fd: BorrowedFd<'_>, least: RawFd) -> Result<OwnedFd> {
    let args = [fd.as_raw_fd() as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0];
    // SAFETY: no memory is passed; the new descriptor is nobody else's.
    check(unsafe { syscall(libc::SYS_fcntl, args) }).map(|new| unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// A duplicate with a high number, closed on exec: just below the limit, or above [`TOP`] where all below it are used. Below a low
/// limit the program needs them all: then one that it could not have, where the hard limit is higher.
pub(super) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let beyond = || beyond_limit(|hard| duplicate_below(hard, fd)).unwrap_or(Err(Error::new(libc::EMFILE)));
    let any = || duplicate(fd, LOWEST);
    if limit < FEW {
        return beyond().or_else(|_| duplicate_below(limit, fd)).or_else(|_| any());
    }
    // The last numbers that are free are the program's, as long as there are others.
    duplicate_below(limit, fd).or_else(|_| beyond()).or_else(|_| any())
}

/// With the highest number that is free in the upper half below a limit, or below [`TOP`].
fn duplicate_below(limit: u64, fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let limit = limit.min(NUMBERS as u64) as RawFd;
    let top = limit.min(TOP);
    let (mut least, mut tried) = (top - 1, 0);
    let lowest = LOWEST.max(top / 2);
    while least >= lowest {
        if is_taken(least) {
            least -= 1;
            continue;
        }
        // Else the kernel may give one above the top, and a table of descriptors that grows beside other threads takes 10 to
        // 20 ms: it waits for all processors.
        let free = if is_open(least) { Err(Error::new(libc::EMFILE)) } else { duplicate(fd, least) };
        match free {
            Ok(new) => return Ok(new),
            Err(error) if error.errno() != libc::EMFILE => return Err(error),
            Err(_) => {}
        }
        // All from there on are used.
        tried += 1;
        least -= if tried < TRIES { 1 } else { 1 << (tried - TRIES).min(10) };
    }
    if limit > TOP { duplicate(fd, TOP) } else { Err(Error::new(libc::EMFILE)) }
}

/// The thread (its id) for which the limit is another than the program's; 0: none. A word, since a forked child has to free it.
static RAISER: AtomicU32 = AtomicU32::new(0);
/// The program's soft limit meanwhile.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Makes a descriptor. Where the program has all numbers that it may have in use, it gets one that the program could not have.
pub(crate) fn with_number<T>(mut make: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::MFILE) => beyond_limit(|_| make()).unwrap_or(Err(Errno::MFILE)),
        made => made,
    }
}

/// Makes a call that names a number, which the kernel refuses (`EBADF`) where the program has lowered its limit below that since.
pub(crate) fn at_number<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    match make() {
        Err(error) if error.errno() == libc::EBADF => beyond_limit(|_| make()).unwrap_or(Err(error)),
        made => made,
    }
}

/// Runs `work`, which gets the hard limit, while for a moment that is the soft one. `None`: they are the same.
#[cold]
fn beyond_limit<T>(work: impl FnOnce(u64) -> T) -> Option<T> {
    let _held = Held::of_process();
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    while RAISER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        rustix::thread::sched_yield();
    }
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let mut done = None;
    if before.current != before.maximum {
        BEFORE.store(before.current.unwrap_or(u64::MAX), Ordering::Relaxed);
        if setrlimit(Resource::Nofile, raised).is_ok() {
            done = Some(work(raised.current.unwrap_or(u64::MAX)));
            put_back(raised.current);
        }
    }
    RAISER.store(0, Ordering::Release);
    done
}

/// The program's limit again, unless it has set another meanwhile.
fn put_back(raised: Option<u64>) {
    let now = getrlimit(Resource::Nofile);
    if now.current == raised {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(BEFORE.load(Ordering::Relaxed)), ..now });
    }
}

/// In a forked child, whose other threads are gone. It has the limit that one of them had raised.
pub(super) fn begin_child() {
    if RAISER.load(Ordering::Acquire) != 0 {
        put_back(getrlimit(Resource::Nofile).maximum);
        RAISER.store(0, Ordering::Release);
    }
}

/// Descriptors without access to any file, in the place of standard descriptors that the program has closed.
#[must_use]
pub(crate) struct OccupiedStandard([Option<RawFd>; 3]);

/// Sees that no descriptor that is opened while the value lives becomes a standard descriptor, for a moment though it be: the
/// program's messages would go to it. A read or a write of one that is occupied fails with `EBADF`, as if it were closed.
pub(crate) fn occupy_standard() -> OccupiedStandard {
    let mut occupied = OccupiedStandard([None; 3]);
    if (0..3).all(is_open) {
        return occupied;
    }
    // The kernel gives the lowest number that is free.
    for slot in &mut occupied.0 {
        let Ok(low) = rustix::fs::openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { break };
        if low.as_raw_fd() >= LOWEST {
            break;
        }
        *slot = Some(low.into_raw_fd());
    }
    occupied
}

impl Drop for OccupiedStandard {
    fn drop(&mut self) {
        for number in self.0.into_iter().flatten() {
            // SAFETY: no memory is passed.
            let flags =
                check(unsafe { syscall(libc::SYS_fcntl, [number as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) });
            // Not one that the program has put in its place meanwhile.
            if flags.is_ok_and(|flags| flags & libc::O_PATH as usize != 0) {
                // SAFETY: opened above, and has no other owner.
                drop(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
}
