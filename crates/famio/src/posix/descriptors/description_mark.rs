//! A mark on the kernel's open description of an atomic file that other processes may get: the flags with which the
//! program opened it. The mark survives fork, exec and sockets. It is the signal number that `F_SETSIG` stores in a
//! description; for regular files only leases use it, and a shared description has no lease.
//!
//! A description of a demoted file has another mark: the process that receives it has an ordinary file, too, and must
//! not read what was opened write-only, though the kernel's description is open for both.

use crate::posix::raw;
use crate::sys::DEMOTED_SIGNALS;
use std::os::fd::RawFd;

const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// The first of sixteen signal numbers that no program uses for this purpose.
const FIRST: i32 = 48;
const BITS: [(i32, i32); 4] =
    [(1, libc::O_APPEND), (2, libc::O_DSYNC), (4, libc::O_SYNC & !libc::O_DSYNC), (8, libc::O_WRONLY)];

/// Marks the description of `fd`, which was opened with `flags`.
pub(in crate::posix) fn set(fd: RawFd, flags: i32) {
    let bits = BITS.iter().filter(|(_, flag)| flags & flag != 0).fold(0, |bits, (bit, _)| bits | bit);
    put(fd, FIRST + bits);
}

/// Sets the mark, unless the program has a lease on the description: its lease breaks would come by the mark's
/// signal.
fn put(fd: RawFd, signal: i32) {
    // SAFETY: no memory is passed.
    let lease = unsafe { raw!(SYS_fcntl, fd, libc::F_GETLEASE) };
    if ![libc::F_RDLCK, libc::F_WRLCK].contains(&(lease as i32)) {
        set_signal(fd, signal);
    }
}

fn set_signal(fd: RawFd, signal: i32) {
    // SAFETY: no memory is passed.
    unsafe { raw!(SYS_fcntl, fd, F_SETSIG, signal) };
}

/// Before the program takes a lease: removes the mark, so that lease breaks come by the signal that the program
/// chooses, or the default one.
pub(in crate::posix) fn make_way(fd: RawFd) {
    let signal = signal_of(fd);
    if (FIRST..FIRST + 16).contains(&signal) || DEMOTED_SIGNALS.contains(&signal) {
        set_signal(fd, 0);
    }
}

/// Marks of demoted descriptions.
const LEFT: [(i32, i32); 2] = [(1, libc::O_WRONLY), (2, libc::O_APPEND)];

fn signal_of(fd: RawFd) -> i32 {
    // SAFETY: no memory is passed.
    (unsafe { raw!(SYS_fcntl, fd, F_GETSIG) }) as i32
}

/// Marks the description of `fd`, opened with `flags`, as an ordinary file's, whichever process receives it.
pub(in crate::posix) fn mark_demoted(fd: RawFd, flags: i32) {
    let bits = LEFT.iter().filter(|(_, flag)| flags & flag != 0).fold(0, |bits, (bit, _)| bits | bit);
    put(fd, DEMOTED_SIGNALS.start + bits);
}

/// For a description of a demoted file: the flags with which the program opened it, as far as the mark has them.
pub(in crate::posix) fn demoted_flags(fd: RawFd) -> Option<i32> {
    let signal = signal_of(fd);
    let bits = signal - DEMOTED_SIGNALS.start;
    DEMOTED_SIGNALS
        .contains(&signal)
        .then(|| LEFT.iter().filter(|(bit, _)| bits & bit != 0).fold(0, |flags, (_, flag)| flags | flag))
}

/// The flags with which the program opened the description of `fd`, as far as the mark has them; `None` without a
/// mark.
pub(in crate::posix) fn get(fd: RawFd) -> Option<i32> {
    let bits = signal_of(fd) - FIRST;
    (0..16)
        .contains(&bits)
        .then(|| BITS.iter().filter(|(bit, _)| bits & bit != 0).fold(0, |flags, (_, flag)| flags | flag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn tells_what_was_asked_for_to_whoever_has_the_description() {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let other = rustix::io::dup(&file).unwrap();
        assert_eq!(get(file.as_raw_fd()), None);
        for flags in [0, libc::O_APPEND, libc::O_WRONLY | libc::O_SYNC, libc::O_DSYNC | libc::O_APPEND] {
            set(file.as_raw_fd(), flags | libc::O_CLOEXEC);
            assert_eq!(get(other.as_raw_fd()), Some(flags));
        }
        for flags in [0, libc::O_WRONLY, libc::O_APPEND, libc::O_WRONLY | libc::O_APPEND] {
            mark_demoted(other.as_raw_fd(), flags | libc::O_SYNC);
            assert_eq!((get(file.as_raw_fd()), demoted_flags(file.as_raw_fd())), (None, Some(flags)));
        }
    }
}
