//! Where internal descriptors lie: as high as the process may have them, and never at the standard descriptors.

use super::registry::{NUMBERS, is_open, is_taken};
use crate::error::{Error, Result};
use crate::sys::{check, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The numbers end here even if the process may have more: the kernel's table of descriptors, and each fork, grow with the highest.
const TOP: RawFd = 4096;
/// The lowest that is taken when all others are used.
const LOWEST: RawFd = 3;
/// Numbers that are tried one by one before larger steps are taken.
const TRIES: u32 = 16;

fn duplicate(fd: BorrowedFd<'_>, least: RawFd) -> Result<OwnedFd> {
    let args = [fd.as_raw_fd() as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0];
    // SAFETY: no memory is passed; the new descriptor is nobody else's.
    check(unsafe { syscall(libc::SYS_fcntl, args) }).map(|new| unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// A duplicate with a high number, closed on exec: just below the limit, or above [`TOP`] where all below it are used.
pub(super) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.map_or(NUMBERS as u64, |limit| limit.min(NUMBERS as u64)) as RawFd;
    let top = limit.min(TOP);
    let (mut least, mut tried) = (top - 1, 0);
    while least >= LOWEST {
        if is_taken(least) {
            least -= 1;
            continue;
        }
        match duplicate(fd, least) {
            Ok(new) => return Ok(new),
            Err(error) if error.errno() != libc::EMFILE => return Err(error),
            Err(_) => {}
        }
        // All from there on are used.
        tried += 1;
        least -= if tried < TRIES { 1 } else { 1 << (tried - TRIES).min(10) };
    }
    let above = if limit > TOP { duplicate(fd, TOP) } else { Err(Error::new(libc::EMFILE)) };
    above.or_else(|_| duplicate(fd, LOWEST)).or_else(|_| duplicate_beyond_limit(fd))
}

/// Held while the limit is another than the program's. A word, since a forked child has to free it.
static RAISED: AtomicBool = AtomicBool::new(false);

/// A number that the program could not have: for a moment the soft limit is the hard one. Where they are the same, `EMFILE`.
#[cold]
fn duplicate_beyond_limit(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let _held = Held::of_process();
    while RAISED.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let mut result = Err(Error::new(libc::EMFILE));
    if before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let beyond = before.current.unwrap_or(0).clamp(LOWEST as u64, NUMBERS as u64 - 1);
        result = duplicate(fd, beyond as RawFd).map_err(|_| Error::new(libc::EMFILE));
        // Unless the program has set another meanwhile.
        if getrlimit(Resource::Nofile).current == raised.current {
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
    RAISED.store(false, Ordering::Release);
    result
}

/// In a forked child, whose other threads are gone.
pub(super) fn begin_child() {
    RAISED.store(false, Ordering::Release);
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
