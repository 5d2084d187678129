//! Which files have a lease, as the kernel lists them: whether a process has a growing file can be seen by nothing else, without
//! disturbing it.

use crate::sys::read_at;
use rustix::fs::{CWD, Mode, OFlags, major, minor};

/// Bytes of the list that are looked at.
const MOST: usize = 4 << 20;

/// Whether somebody has a lease on a file. Not, where the kernel does not tell.
pub(super) fn is_on(device: u64, inode: u64) -> bool {
    let Ok(list) = crate::sys::openat(CWD, c"/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut text = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while text.len() < MOST
        && let Ok(read @ 1..) = read_at(&list, text.len() as u64, &mut piece)
    {
        text.extend_from_slice(&piece[..read]);
    }
    let wanted = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    text.split(|&byte| byte == b'\n').any(|line| is_lease_on(line, wanted.as_bytes()))
}

/// `1: LEASE  ACTIVE    WRITE 4711 fe:00:1234 0 EOF`
fn is_lease_on(line: &[u8], file: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    words.nth(1) == Some(b"LEASE") && words.any(|word| word == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_told_from_a_lock() {
        assert!(is_lease_on(b"1: LEASE  ACTIVE    WRITE 4711 fe:00:1234 0 EOF", b"fe:00:1234"));
        assert!(!is_lease_on(b"1: LEASE  ACTIVE    WRITE 4711 fe:00:12345 0 EOF", b"fe:00:1234"));
        assert!(!is_lease_on(b"1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", b"fe:00:1234"));
        assert!(!is_lease_on(b"", b"fe:00:1234"));
    }
}
