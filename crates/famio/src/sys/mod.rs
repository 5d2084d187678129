//! Raw system calls that rustix has no safe form for; reads and writes that go on to the end; and the clock.

pub(crate) mod address_space;
mod bytes;
pub(crate) mod events;
mod futexes;
mod identity;
pub(crate) mod internal;
pub(crate) mod locks;
pub mod log;
pub(crate) mod membarrier;
pub(crate) mod namespaces;
mod raw;
pub mod shm;
mod signal;
pub(crate) mod users;

pub(crate) use bytes::{each_data, each_piece, next_data, read_at, with_position_kept, write_at, write_out};
pub(crate) use futexes::{Ended, WORDS_MAX, Word, wait_for_any};
pub(crate) use identity::{identity, identity_and_size, look_at};
pub use raw::{check, syscall};

use crate::error::Error;
use crate::error::Result;
use core::sync::atomic::{AtomicU64, Ordering};
pub(crate) use internal::{InternalFd, open as openat, open_again, with_number};
use rustix::fs::CWD;

pub use signal::{
    ALL_BUT_LIBCS, SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread,
    unblock_signals,
};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Says something to who runs the program, where they want it ([`log`]), by bare system calls: nothing of ours is re-entered, errors are
/// ignored.
pub fn notice(line: &str) {
    notice_parts(&[line.as_bytes()]);
}

/// As [`notice`], of up to six pieces that make one line. Allocates nothing: it may come from a signal handler.
pub(crate) fn notice_parts(parts: &[&[u8]]) {
    log::say(log::Level::Warning, parts);
}

/// One line to stderr.
fn stderr_line(parts: &[&[u8]]) {
    debug_assert!(parts.len() <= 6);
    if !is_for_messages(libc::STDERR_FILENO) {
        return;
    }
    let mut all: [&[u8]; 8] = [b""; 8];
    all[0] = b"famio: ";
    all[1..].iter_mut().zip(parts.iter().copied().chain([&b"\n"[..]])).for_each(|(to, part)| *to = part);
    let vector = all.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the pieces are alive during the call, which reads them.
    unsafe { syscall(libc::SYS_writev, [2, vector.as_ptr() as usize, vector.len(), 0, 0, 0]) };
}

/// Device and inode of the file that is known to be standard error: from the start, or put there by `dup2`. None: 0.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The numbers of signals by which a description of a file is marked that was handed back (`posix::mark`).
pub(crate) const HANDED_BACK: core::ops::Range<i32> = 40..48;
/// What the program opened under that number itself, having closed its standard error, is marked before another program starts with
/// it: by the number of the signal that `F_SETSIG` keeps for a description, of which nothing comes of a regular file's. This one, or
/// this bit in that of a file that was handed back.
const DATA: i32 = 39;
const DATA_BIT: i32 = 4;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

fn standard_error(command: i32, argument: i32) -> i32 {
    let number = libc::STDERR_FILENO as usize;
    // SAFETY: no memory is passed.
    (unsafe { syscall(libc::SYS_fcntl, [number, command as usize, argument as usize, 0, 0, 0]) }) as i32
}

/// The mark with which standard error is a file of the program's data, and the one without; `None`: the program has a mark of its own.
fn marks() -> Option<[i32; 2]> {
    match standard_error(F_GETSIG, 0) {
        0 | DATA => Some([DATA, 0]),
        left if HANDED_BACK.contains(&left) => {
            let bits = left - HANDED_BACK.start;
            Some([bits | DATA_BIT, bits & !DATA_BIT].map(|bits| HANDED_BACK.start + bits))
        }
        _ => None,
    }
}

fn is_marked_as_data() -> bool {
    marks().is_some_and(|[data, _]| standard_error(F_GETSIG, 0) == data)
}

fn note(is_data: bool) {
    // SAFETY: not -1, and only asked what it is.
    let now = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) });
    let known = now.map_or((0, u64::MAX), |stat| (stat.st_dev, stat.st_ino));
    let (device, inode) = if is_data { (0, u64::MAX) } else { known };
    STANDARD_ERROR[0].store(device, Ordering::Relaxed);
    STANDARD_ERROR[1].store(inode, Ordering::Relaxed);
}

/// At the start: what the program has as standard error, unless the program before `exec` had opened a file of its data there.
pub(crate) fn find_standard_error() {
    note(is_marked_as_data());
}

/// What is standard error now was put there as such.
pub(crate) fn note_standard_error() {
    if is_marked_as_data() {
        marks().map(|[_, without]| standard_error(F_SETSIG, without));
    }
    note(false);
}

/// Before another program gets this one's descriptors: where a file of the program's data has the number of standard error, the
/// other is to know.
pub(crate) fn tell_of_standard_error() {
    if STANDARD_ERROR[1].load(Ordering::Relaxed) != 0
        && standard_error(libc::F_GETFD, 0) >= 0
        && !is_for_messages(libc::STDERR_FILENO)
    {
        marks().map(|[data, _]| standard_error(F_SETSIG, data));
    }
}

/// Whether what is printed there is a message: not where the program, having closed its standard error, has a file of its data
/// under that number, since it was the lowest that was free. Where it is not known what was there: such a file is read, too; a
/// log is only written.
fn is_for_messages(number: i32) -> bool {
    let known = STANDARD_ERROR.each_ref().map(|word| word.load(Ordering::Relaxed));
    if known[1] != 0 {
        // SAFETY: not -1, and only asked what it is.
        return rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(number) }).is_ok_and(|now| {
            let is_regular = rustix::fs::FileType::from_raw_mode(now.st_mode) == rustix::fs::FileType::RegularFile;
            !is_regular || [now.st_dev, now.st_ino] == known
        });
    }
    let fcntl = [number as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: no memory is passed.
    let Ok(flags) = check(unsafe { syscall(libc::SYS_fcntl, fcntl) }) else { return false };
    if flags as i32 & libc::O_ACCMODE != libc::O_RDWR || flags as i32 & libc::O_APPEND != 0 {
        return true;
    }
    // SAFETY: not -1, and only asked for its kind.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(number) });
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile)
}

/// A forked child does not get this mapping of ours: with it it would keep the locks of the file behind it, and this process
/// would seem to live on in it.
pub(crate) fn keep_from_children(at: *mut u8, len: usize) {
    // SAFETY: a mapping of ours, which a child makes no use of.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DONTFORK as usize, 0, 0, 0]) };
}

/// What [`keep_from_children`] has kept a forked child gets.
pub(crate) fn give_to_children(at: *mut u8, len: usize) {
    // SAFETY: a mapping of ours, or one of the program's, as it is by itself.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DOFORK as usize, 0, 0, 0]) };
}

/// Bytes of memory that the machine has.
pub(crate) fn memory() -> u64 {
    // SAFETY: plain words, filled in by the kernel.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]);
        info
    };
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// The time of day as the kernel stamps files with, a few milliseconds coarse. From the vDSO: no system call.
pub fn coarse_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing; the clock exists on every Linux since 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now
}

/// Whether there is no such thread on the machine.
pub(crate) fn thread_is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is none, it only asks.
    let asked = unsafe { syscall(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    asked == -(libc::ESRCH as isize)
}

/// The clock that only goes forward, in nanoseconds. From the vDSO.
pub(crate) fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What is in a folder.
pub(crate) fn list(folder: impl AsFd) -> rustix::io::Result<rustix::fs::Dir> {
    rustix::fs::Dir::new(internal::open_list(folder.as_fd())?)
}

/// The process's limit on file sizes: nothing of ours is made longer than it, so that no SIGXFSZ comes from work of ours.
pub(crate) fn file_size_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(i64::MAX as u64)
}

/// The path by which the kernel knows an open file now. A file that was deleted, or that this process cannot reach by a path,
/// has none.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, &link, Vec::new())
        .map_err(|e| Error::from(e).context(format_args!("cannot tell where the file lies: {link}")))?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.is_absolute() {
        return Err(Error::nameless(format!("{}: cannot be reached by a path", path.display())));
    }
    Ok(path.to_path_buf())
}

/// A descriptor that is kept for longer than a call, of the same open file description: see [`internal`].
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    InternalFd::duplicate(fd)
}
