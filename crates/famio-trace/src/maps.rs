//! Which file is mapped at an address: from `/proc/self/maps`, since `msync` is rare and maps change in many ways.

use crate::stat::Path;
use famio::sys::syscall as raw;

/// A line has at most a path and the fields before it.
const LINE: usize = libc::PATH_MAX as usize + 128;

/// The path of the file mapped there.
pub fn file_at(address: usize) -> Option<Path> {
    let name = c"/proc/self/maps";
    // SAFETY: a C string; the descriptor is ours, and closed again.
    unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let fd = raw(libc::SYS_openat, [libc::AT_FDCWD as usize, name.as_ptr() as usize, flags, 0, 0, 0]);
        if fd < 0 {
            return None;
        }
        let found = search(fd as i32, address);
        raw(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
        found
    }
}

fn search(fd: i32, address: usize) -> Option<Path> {
    let mut buffer = [0u8; LINE];
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        // SAFETY: a buffer with its length.
        let got = unsafe { raw(libc::SYS_read, [fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0]) };
        filled += usize::try_from(got).ok().filter(|&got| got > 0)?;
        let mut begin = 0;
        while let Some(length) = buffer[begin..filled].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[begin..begin + length];
            if holds(line, address)? {
                let at = line.iter().position(|&byte| byte == b'/')?;
                return Path::copy(&line[at..]);
            }
            begin += length + 1;
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
    }
}

/// Whether `start-end ...` holds the address.
fn holds(line: &[u8], address: usize) -> Option<bool> {
    let mut numbers = line.splitn(3, |&byte| byte == b'-' || byte == b' ').map(hexadecimal);
    let (start, end) = (numbers.next()??, numbers.next()??);
    Some((start..end).contains(&address))
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    digits
        .iter()
        .try_fold(0usize, |value, &digit| Some(value.checked_mul(16)? + char::from(digit).to_digit(16)? as usize))
}
