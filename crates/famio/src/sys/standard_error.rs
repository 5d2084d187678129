//! Standard error, where it is for messages, and not a file of the program's data.

use crate::kernel::{check, syscall};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

pub(super) fn stderr_line(parts: &[&[u8]]) {
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

/// The signal numbers that mark a description of a demoted file (`posix::descriptors::mark`).
pub(crate) const DEMOTED_SIGNALS: core::ops::Range<i32> = 40..48;
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
        left if DEMOTED_SIGNALS.contains(&left) => {
            let bits = left - DEMOTED_SIGNALS.start;
            Some([bits | DATA_BIT, bits & !DATA_BIT].map(|bits| DEMOTED_SIGNALS.start + bits))
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
