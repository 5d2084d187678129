//! Which files have a lease, from the kernel's list: the only way to see, without disturbing it, whether a process
//! has a growing file open.

use crate::sys::{InternalFd, monotonic_now, read_whole};
use rustix::fs::{CWD, Mode, OFlags, major, minor, stat};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::path::Path;

/// The most bytes of the list that are read.
const MOST: usize = 4 << 20;
/// The kernel gives out pieces of up to a page. If a lock is released between two of them, it passes over another one: a
/// longer list is looked at several times.
const PIECE: usize = 4000;
const LOOKS: usize = 3;
/// Pause between two attempts to open a file with a lease.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// Nanoseconds after which the caller is told which process has the lease. A process that is not stopped gives it up
/// within milliseconds.
const LONG: u64 = 1_000_000_000;

/// Opens a file for reading, after waiting for the end of another process's lease. If that takes long, calls `report`
/// with the process.
pub(in crate::recovery) fn open_after(path: &Path, report: &dyn Fn(Option<u32>)) -> Result<InternalFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let begun = monotonic_now();
    let mut is_told = false;
    loop {
        match crate::sys::openat(CWD, path, flags | OFlags::NONBLOCK, Mode::empty()) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
        if !is_told && monotonic_now() > begun + LONG {
            report(stat(path).ok().and_then(|stat| holder(stat.st_dev, stat.st_ino)));
            is_told = true;
        }
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
}

/// The kernel's list of locks and leases; empty if it cannot be read.
pub fn kernel_locks() -> Vec<u8> {
    let list = crate::sys::openat(CWD, c"/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    list.map(|list| read_whole(&list, MOST)).unwrap_or_default()
}

/// The process that has a lease on a file; `None` if the kernel does not say.
pub(in crate::recovery) fn holder(device: u64, inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    for _ in 0..LOOKS {
        let text = kernel_locks();
        let found = text.split(|&byte| byte == b'\n').find_map(|line| holder_in(line, wanted.as_bytes()));
        if found.is_some() || text.len() < PIECE {
            return found;
        }
    }
    None
}

/// `1: LEASE  ACTIVE    WRITE 4711 fe:00:1234 0 EOF`
fn holder_in(line: &[u8], file: &[u8]) -> Option<u32> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    if words.nth(1) != Some(b"LEASE") {
        return None;
    }
    let (process, of) = (words.nth(2)?, words.next()?);
    if of == file { core::str::from_utf8(process).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_told_from_a_lock() {
        let holder = |line| holder_in(line, b"fe:00:1234");
        assert_eq!(holder(b"1: LEASE  ACTIVE    WRITE 4711 fe:00:1234 0 EOF"), Some(4711));
        assert_eq!(holder(b"1: LEASE  BREAKING  READ  4711 fe:00:1234 0 EOF"), Some(4711));
        assert_eq!(holder(b"1: LEASE  ACTIVE    WRITE 4711 fe:00:12345 0 EOF"), None);
        assert_eq!(holder(b"1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(holder(b""), None);
    }
}
