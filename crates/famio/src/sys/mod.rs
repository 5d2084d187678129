//! System calls for which rustix has no safe form, reads and writes of all bytes asked for, and the clock.

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

/// Writes a message for the user to the configured target ([`log`]), by system calls only: no function of the library
/// is re-entered, and errors are ignored.
pub fn notice(line: &str) {
    notice_parts(&[line.as_bytes()]);
}

/// As [`notice`], from up to six pieces of one line. Does not allocate: it may be called in a signal handler.
pub(crate) fn notice_parts(parts: &[&[u8]]) {
    log::say(log::Level::Warning, parts);
}

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

/// Device and inode of the file that is known to be standard error, from the start or by `dup2`; 0: none.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The signal numbers that mark a description of a demoted file (`posix::mark`).
pub(crate) const HANDED_BACK: core::ops::Range<i32> = 40..48;
/// Marks a description that has the number of standard error without being it: the program closed standard error and
/// opened a file of its own. Set before another program starts with it. The mark is the signal number that `F_SETSIG`
/// stores in a description, without effect on a regular file: this number, or this bit in the number of a demoted
/// file.
const DATA: i32 = 39;
const DATA_BIT: i32 = 4;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

fn standard_error(command: i32, argument: i32) -> i32 {
    let number = libc::STDERR_FILENO as usize;
    // SAFETY: no memory is passed.
    (unsafe { syscall(libc::SYS_fcntl, [number, command as usize, argument as usize, 0, 0, 0]) }) as i32
}

/// The numbers with and without the mark; `None`: the program uses `F_SETSIG` itself.
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

/// At the start: finds standard error, unless the program before `exec` had opened a file of its own there.
pub(crate) fn find_standard_error() {
    note(is_marked_as_data());
}

/// The present descriptor 2 was put there as standard error.
pub(crate) fn note_standard_error() {
    if is_marked_as_data() {
        marks().map(|[_, without]| standard_error(F_SETSIG, without));
    }
    note(false);
}

/// Before another program gets this one's descriptors: marks descriptor 2 if it is a file of the program's own.
pub(crate) fn tell_of_standard_error() {
    if STANDARD_ERROR[1].load(Ordering::Relaxed) != 0
        && standard_error(libc::F_GETFD, 0) >= 0
        && !is_for_messages(libc::STDERR_FILENO)
    {
        marks().map(|[data, _]| standard_error(F_SETSIG, data));
    }
}

/// Whether messages may be written to the descriptor. Not if the program closed standard error and one of its own
/// files got that number, the lowest free one. If it is unknown what was there, a regular file that is also open for
/// reading, without `O_APPEND`, counts as the program's own; a log is only written.
fn is_for_messages(number: i32) -> bool {
    let known = STANDARD_ERROR.each_ref().map(|word| word.load(Ordering::Relaxed));
    if known[1] != 0 {
        // SAFETY: not -1, and only queried.
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
    // SAFETY: not -1, and only queried.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(number) });
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile)
}

/// Keeps this mapping out of forked children: with it a child would keep the locks of the file behind it, and this
/// process would seem to live on.
pub(crate) fn keep_from_children(at: *mut u8, len: usize) {
    // SAFETY: our mapping, which a child does not use.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DONTFORK as usize, 0, 0, 0]) };
}

/// Undoes [`keep_from_children`].
pub(crate) fn give_to_children(at: *mut u8, len: usize) {
    // SAFETY: our mapping, or one of the program's, for which it is the default.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DOFORK as usize, 0, 0, 0]) };
}

/// The machine's memory in bytes.
pub(crate) fn memory() -> u64 {
    // SAFETY: plain words, filled in by the kernel.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]);
        info
    };
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// The time of day with which the kernel stamps files, a few milliseconds coarse. From the vDSO: no system call.
pub fn coarse_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing; the clock exists on every Linux since 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now
}

/// Whether the machine has no such thread.
pub(crate) fn thread_is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is not sent, only checked.
    let asked = unsafe { syscall(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    asked == -(libc::ESRCH as isize)
}

/// The monotonic clock, in nanoseconds. From the vDSO.
pub(crate) fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The entries of a folder.
pub(crate) fn list(folder: impl AsFd) -> rustix::io::Result<rustix::fs::Dir> {
    rustix::fs::Dir::new(internal::open_list(folder.as_fd())?)
}

/// The process's limit on file sizes. The library makes no file longer, so that its own work raises no SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(i64::MAX as u64)
}

/// The present path of an open file. A file that was deleted, or that this process cannot reach by a path, has none.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, &link, Vec::new())
        .map_err(|e| Error::from(e).context(format_args!("cannot tell where the file lies: {link}")))?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.is_absolute() {
        return Err(Error::with(libc::ESTALE, format!("{}: cannot be reached by a path", path.display())));
    }
    Ok(path.to_path_buf())
}

/// An internal descriptor of the same open file description, kept for longer than a call: see [`internal`].
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    InternalFd::duplicate(fd)
}
