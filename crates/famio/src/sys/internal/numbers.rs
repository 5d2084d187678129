//! The numbers of internal descriptors: as high as the process may have them, and never the standard ones.

use super::registry::{is_open, is_taken};
use super::undisturbed;
use crate::error::{Error, Result};
use crate::fast_path::NUMBERS;
use crate::sys::{check, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The highest numbers, though the process may have more: the kernel's table of descriptors, and each fork, grow with
/// them.
pub(super) const TOP: RawFd = 4096;
/// The lowest number, used if all others are taken.
const LOWEST: RawFd = 3;
/// A program with a limit below this (the usual one) is taken to need all its numbers.
const FEW: u64 = 1024;
/// Numbers that are tried one by one before larger steps are taken.
const TRIES: u32 = 16;

fn duplicate(fd: BorrowedFd<'_>, least: RawFd) -> Result<OwnedFd> {
    let args = [fd.as_raw_fd() as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0];
    // SAFETY: no memory is passed; the new descriptor has no other owner.
    check(unsafe { syscall(libc::SYS_fcntl, args) }).map(|new| unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// A duplicate with a high number, closed on exec: just below the limit, or above [`TOP`] if all below it are taken.
/// Under a low limit the program needs all its numbers: then the duplicate gets one that the program could not have,
/// if the hard limit is higher.
pub(super) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    static LIMIT: undisturbed::Number = undisturbed::Number::new();
    let limit = LIMIT.get(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    let beyond = || beyond_limit(|hard| duplicate_below(hard, fd)).unwrap_or(Err(Error::new(libc::EMFILE)));
    let any = || duplicate(fd, LOWEST);
    if limit < FEW {
        return beyond().or_else(|_| duplicate_below(limit, fd)).or_else(|_| any());
    }
    // The last free numbers are the program's, as long as there are others.
    duplicate_below(limit, fd).or_else(|_| beyond()).or_else(|_| any())
}

/// A duplicate with the highest free number in the upper half below the limit, or below [`TOP`].
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
        // Otherwise the kernel may choose a number above the top. To enlarge the table of descriptors while there are
        // other threads takes 10 to 20 ms, since the kernel waits for all processors.
        let free = if !is_free(least) { Err(Error::new(libc::EMFILE)) } else { duplicate(fd, least) };
        match free {
            Ok(new) => return Ok(new),
            Err(error) if error.errno() != libc::EMFILE => return Err(error),
            Err(_) => {}
        }
        // All numbers from there on are taken.
        tried += 1;
        least -= if tried < TRIES { 1 } else { 1 << (tried - TRIES).min(10) };
    }
    if limit > TOP { duplicate(fd, TOP) } else { Err(Error::new(libc::EMFILE)) }
}

/// Numbers that the library closed last, by their distance from [`TOP`]: bits that are set. Few programs have
/// had them since.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// How often.
static TIMES: AtomicU64 = AtomicU64::new(0);

/// How often the library has closed a descriptor. As long as that stays the same, a number of its own leads to the same
/// file.
pub(crate) fn closed() -> u64 {
    TIMES.load(Ordering::Relaxed)
}

fn bit_of(number: RawFd) -> u64 {
    (number < TOP).then(|| 1u64.checked_shl((TOP - 1 - number) as u32)).flatten().unwrap_or(0)
}

/// The library has just closed this number.
pub(super) fn note_closed(number: RawFd) {
    TIMES.fetch_add(1, Ordering::Relaxed);
    CLOSED.fetch_or(bit_of(number), Ordering::Relaxed);
}

/// Whether no descriptor has this number. Does not ask the kernel if only the library can have taken the number since
/// it was free.
fn is_free(number: RawFd) -> bool {
    let bit = bit_of(number);
    let is_known = CLOSED.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
    is_known && undisturbed::now().is_some() || !is_open(number)
}

/// Enlarges the kernel's table of this process's descriptors to where the library's will be, while it has a single
/// thread: with several, the first write of a session would wait 10 to 20 ms for that.
pub(crate) fn enlarge_table() {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < FEW {
        return;
    }
    let top = (limit.min(NUMBERS as u64) as RawFd).min(TOP);
    let any = (0..LOWEST).find(|&number| is_open(number));
    // SAFETY: not -1, and open unless another thread has just closed it: then the call fails.
    drop(any.map(|number| duplicate(unsafe { BorrowedFd::borrow_raw(number) }, top - 1)));
}

/// The id of the thread that has raised the limit; 0: none. A word, since a forked child has to free it.
static RAISER: AtomicU32 = AtomicU32::new(0);
/// The program's soft limit meanwhile.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Makes a descriptor. If the program has used up its numbers, the descriptor gets one that the program could not
/// have.
pub(crate) fn with_number<T>(mut make: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::MFILE) => beyond_limit(|_| make()).unwrap_or(Err(Errno::MFILE)),
        made => made,
    }
}

/// Makes a call with a number that the kernel refuses (`EBADF`) if the program has lowered its limit below it since.
pub(crate) fn at_number<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    match make() {
        Err(error) if error.errno() == libc::EBADF => beyond_limit(|_| make()).unwrap_or(Err(error)),
        made => made,
    }
}

/// Raises the soft limit to the hard one while `work` runs, which gets that limit. `None`: they are the same.
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

/// Restores the program's limit, unless the program has set another one meanwhile.
fn put_back(raised: Option<u64>) {
    let now = getrlimit(Resource::Nofile);
    if now.current == raised {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(BEFORE.load(Ordering::Relaxed)), ..now });
    }
}

/// In a forked child, whose other threads are gone: undoes a limit that one of them had raised.
pub(super) fn begin_child() {
    if RAISER.load(Ordering::Acquire) != 0 {
        put_back(getrlimit(Resource::Nofile).maximum);
        RAISER.store(0, Ordering::Release);
    }
}

/// Descriptors without access to any file, in the place of standard descriptors that the program has closed.
#[must_use]
pub(crate) struct OccupiedStandard([Option<RawFd>; 3]);

/// While the value lives, no new descriptor becomes a standard one, even for a moment: the program's messages would
/// go to it. A read or write of an occupied one fails with `EBADF`, as if it were closed.
pub(crate) fn occupy_standard() -> OccupiedStandard {
    let mut occupied = OccupiedStandard([None; 3]);
    static ARE_OPEN: undisturbed::Number = undisturbed::Number::new();
    if ARE_OPEN.get(|| (0..3).all(is_open).into()) != 0 {
        return occupied;
    }
    // The kernel assigns the lowest free number.
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
            // Leaves a descriptor that the program has put in its place meanwhile.
            if flags.is_ok_and(|flags| flags & libc::O_PATH as usize != 0) {
                // SAFETY: opened above, and has no other owner.
                drop(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
}
