//! Numbers of descriptors: the lowest is the program's, and which there are.

use super::state::in_vfork_child;
use crate::posix::{Ret, fail, raw};
use std::os::fd::RawFd;

/// Held while an internal descriptor that lives for a few calls has the lowest number. A `vfork` child has numbers of
/// its own.
pub(in crate::posix) fn passing() -> Option<crate::sys::internal::Passing> {
    (!in_vfork_child()).then(crate::sys::internal::Passing::begin)
}

/// Makes a call that gives the program the lowest free number. A `vfork` child has its own numbers.
pub(in crate::posix) fn with_lowest(call: impl FnOnce() -> Ret) -> Ret {
    if in_vfork_child() { call() } else { crate::sys::internal::with_lowest(call) }
}

/// Makes an internal system call that returns a descriptor, even if the program has used all its numbers.
pub(in crate::posix) fn with_number(mut call: impl FnMut() -> Ret) -> Ret {
    let errno = |e: crate::Error| rustix::io::Errno::from_raw_os_error(e.errno());
    let made = crate::sys::with_number(|| crate::sys::check(call()).map_err(errno));
    made.map_or_else(|e| fail(e.raw_os_error()), |made| made as Ret)
}

/// Calls `visit` for every descriptor of the process.
pub(in crate::posix) fn each_descriptor(mut visit: impl FnMut(RawFd)) {
    let _passing = passing();
    // SAFETY: a path of ours.
    let folder = with_number(|| unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        raw!(SYS_openat, libc::AT_FDCWD, c"/proc/self/fd".as_ptr(), flags, 0)
    });
    if folder < 0 {
        return;
    }
    let mut buffer = [0u64; 512];
    loop {
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe { raw!(SYS_getdents64, folder, buffer.as_mut_ptr(), size_of_val(&buffer)) };
        if got <= 0 {
            break;
        }
        // SAFETY: the kernel has written `got` bytes.
        let mut rest = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), got as usize) };
        // An entry: 8 bytes of inode, 8 of offset, 2 of length, 1 of kind, the name.
        while rest.len() > 19 {
            let length = usize::from(u16::from_le_bytes([rest[16], rest[17]])).clamp(19, rest.len());
            let name = rest[19..length].split(|&byte| byte == 0).next().unwrap_or_default();
            let number = core::str::from_utf8(name).ok().and_then(|name| name.parse::<RawFd>().ok());
            number.filter(|&fd| fd as Ret != folder).into_iter().for_each(&mut visit);
            rest = &rest[length..];
        }
    }
    // SAFETY: ours.
    unsafe { raw!(SYS_close, folder) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_descriptor_is_found() {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut found = Vec::new();
        each_descriptor(|fd| found.push(fd));
        assert!(found.contains(&file.as_raw_fd()) && found.contains(&2), "{found:?}");
    }
}
