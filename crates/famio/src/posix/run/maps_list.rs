//! The kernel's list of this process's maps: tells which file is mapped at an address. Allocates nothing.

use crate::posix::{Ret, raw};
use crate::sys;

/// Calls `found` with device and inode, and with the path, of the file that is mapped at `address`, if the map is
/// shared and writable.
pub(in crate::posix) fn shared_file_at(address: usize, found: impl FnOnce((u64, u64), &[u8])) {
    let mut lines = Lines::new();
    while let Some(line) = lines.next() {
        if let Some((of, path)) = shared_file_in(line, address) {
            return found(of, path);
        }
    }
}

/// The file and its path, if this line of `/proc/self/maps` describes a shared writable map at `address`.
fn shared_file_in(line: &[u8], address: usize) -> Option<((u64, u64), &[u8])> {
    let line = core::str::from_utf8(line).ok()?;
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    let rights = words.next()?.as_bytes();
    if !range.contains(&address) || rights.get(1) != Some(&b'w') || rights.get(3) != Some(&b's') {
        return None;
    }
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    (path.starts_with('/') && !path.ends_with(" (deleted)")).then_some(((device, inode), path.as_bytes()))
}

/// The lines of `/proc/self/maps`.
struct Lines {
    fd: Ret,
    _passing: Option<sys::internal::Passing>,
    text: Vec<u8>, // the stack may be small
    from: usize,
    to: usize,
}

impl Lines {
    fn new() -> Self {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let passing = crate::posix::passing();
        // SAFETY: a C string.
        let fd = crate::posix::with_number(|| unsafe {
            raw!(SYS_openat, libc::AT_FDCWD, c"/proc/self/maps".as_ptr(), flags, 0)
        });
        Self { fd, _passing: passing, text: vec![0; 8192], from: 0, to: 0 }
    }

    fn next(&mut self) -> Option<&[u8]> {
        loop {
            if let Some(end) = self.text[self.from..self.to].iter().position(|&byte| byte == b'\n') {
                let line = self.from..self.from + end;
                self.from = line.end + 1;
                return Some(&self.text[line]);
            }
            self.text.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
            if self.fd < 0 || self.to == self.text.len() {
                return None;
            }
            let room = &mut self.text[self.to..];
            // SAFETY: the kernel writes at most the room's length.
            let read = unsafe {
                sys::syscall(libc::SYS_read, [self.fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0])
            };
            if read <= 0 {
                return None;
            }
            self.to += read as usize;
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.fd >= 0 {
            // SAFETY: the descriptor is ours.
            unsafe { raw!(SYS_close, self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn lines_of_maps() {
        let line = b"7f00-7f10 rw-s 00001000 08:01 1234      /a b/app.db";
        let device = rustix::fs::makedev(8, 1);
        assert_eq!(shared_file_in(line, 0x7f0f), Some(((device, 1234), &b"/a b/app.db"[..])));
        assert_eq!(shared_file_in(line, 0x7f10), None);
        for other in [
            "r--s 00001000 08:01 1234      /a",
            "rw-p 00001000 08:01 1234      /a",
            "rw-s 0 00:01 7      /x (deleted)",
            "rw-p 0 00:00 0",
        ] {
            assert_eq!(shared_file_in(format!("7f00-7f10 {other}").as_bytes(), 0x7f00), None, "{other}");
        }
    }

    #[test]
    fn a_map_of_ours_is_found() {
        let path = std::env::temp_dir().join(format!("famio-maps-{}", std::process::id()));
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let at = unsafe { rustix::mm::mmap(ptr::null_mut(), 4096, protection, rustix::mm::MapFlags::SHARED, &file, 0) };
        let at = at.unwrap().addr();
        let mut found = None;
        shared_file_at(at, |of, path| found = Some((of.1, path.to_vec())));
        let (inode, found) = found.unwrap();
        assert_eq!(inode, std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()));
        assert_eq!(found, path.canonicalize().unwrap().as_os_str().as_encoded_bytes());
        std::fs::remove_file(path).unwrap();
    }
}
