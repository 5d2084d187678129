//! A mark on the kernel's open description of an atomic file that other processes may come to have: with what flags the program
//! opened it. It stays through fork, exec and sockets. It is the number of the signal that `F_SETSIG` keeps for a description:
//! of a regular file's nobody asks for it but leases, which a shared description has none of.

use super::raw;
use std::os::fd::RawFd;

const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// The first of sixteen signals that no program uses for this.
const FIRST: i32 = 48;
const BITS: [(i32, i32); 4] =
    [(1, libc::O_APPEND), (2, libc::O_DSYNC), (4, libc::O_SYNC & !libc::O_DSYNC), (8, libc::O_WRONLY)];

/// Marks the description of `fd`, which was opened with `flags`.
pub(super) fn set(fd: RawFd, flags: i32) {
    let bits = BITS.iter().filter(|(_, flag)| flags & flag != 0).fold(0, |bits, (bit, _)| bits | bit);
    // SAFETY: no memory is passed.
    unsafe { raw!(SYS_fcntl, fd, F_SETSIG, FIRST + bits) };
}

/// No other process has the description, or knows what to do with it.
pub(super) fn remove(fd: RawFd) {
    // SAFETY: no memory is passed.
    unsafe { raw!(SYS_fcntl, fd, F_SETSIG, 0) };
}

/// What the program opened the description of `fd` with, of a mark's flags; `None`: it has none.
pub(super) fn get(fd: RawFd) -> Option<i32> {
    // SAFETY: no memory is passed.
    let bits = unsafe { raw!(SYS_fcntl, fd, F_GETSIG) } as i32 - FIRST;
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
        remove(other.as_raw_fd());
        assert_eq!(get(file.as_raw_fd()), None);
    }
}
