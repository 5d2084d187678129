//! Paths as text: joined, resolved, and asked of the kernel. Short ones without the heap.

use crate::name_prefilter::name_start;
use crate::posix::raw;
use core::mem::MaybeUninit;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

const PATH: usize = libc::PATH_MAX as usize;

/// Room for a path of usual length. A call on a file may run on a small stack: a signal handler's, or a thread's.
const FEW: usize = 256;

/// A path under construction.
///
/// Invariant: the first `length` bytes are initialized, and `length` is less than the room: [`FEW`], or [`PATH`] with
/// `many`. The rest is not: zeroing a page at every `open` would take a tenth of a microsecond.
pub(in crate::posix) struct PathText {
    few: [MaybeUninit<u8>; FEW],
    /// In place of `few`, for a long path. The library's heap may be used in any call: see `crate::heap`.
    many: Option<Box<[MaybeUninit<u8>]>>,
    length: usize,
}

impl PathText {
    pub(in crate::posix) fn new() -> Self {
        Self { few: [const { MaybeUninit::uninit() }; FEW], many: None, length: 0 }
    }

    fn room(&self) -> &[MaybeUninit<u8>] {
        self.many.as_deref().unwrap_or(&self.few)
    }

    fn room_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.many.as_deref_mut().unwrap_or(&mut self.few)
    }

    /// Makes room for a long path.
    #[cold]
    #[inline(never)]
    fn enlarge(&mut self) {
        let mut many = Box::new_uninit_slice(PATH);
        many[..self.length].copy_from_slice(&self.few[..self.length]);
        self.many = Some(many);
    }

    pub(in crate::posix) fn get(&self) -> &[u8] {
        // SAFETY: these bytes are initialized (see the invariant).
        unsafe { core::slice::from_raw_parts(self.room().as_ptr().cast(), self.length) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Shortens it to `length` bytes.
    pub(super) fn cut(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Becomes what a system call writes. Returns whether it has written anything. The call is made again if what it
    /// writes may be longer than the usual room.
    ///
    /// # Safety
    /// The call gets a buffer and its length, and returns how many bytes at its beginning it has written, at most the
    /// length; or zero, or an error below zero, `ERANGE` if the buffer is too short.
    pub(super) unsafe fn fill(&mut self, mut call: impl FnMut(*mut u8, usize) -> isize) -> bool {
        self.length = 0;
        let room = self.room_mut();
        let mut done = call(room.as_mut_ptr().cast(), room.len() - 1);
        if self.many.is_none() && (done == (FEW - 1) as isize || done == -(libc::ERANGE as isize)) {
            self.enlarge();
            done = call(self.room_mut().as_mut_ptr().cast(), PATH - 1);
        }
        self.length = usize::try_from(done).unwrap_or(0);
        self.length > 0
    }

    /// Appends bytes; false if they do not fit with a terminating zero.
    pub(in crate::posix) fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.length + bytes.len();
        if end >= FEW || self.many.is_some() {
            return self.push_long(bytes);
        }
        self.few[self.length..end].iter_mut().zip(bytes).for_each(|(to, from)| *to = MaybeUninit::new(*from));
        self.length = end;
        true
    }

    #[cold]
    #[inline(never)]
    fn push_long(&mut self, bytes: &[u8]) -> bool {
        let (start, end) = (self.length, self.length + bytes.len());
        if end >= PATH {
            return false;
        }
        if self.many.is_none() {
            self.enlarge();
        }
        self.room_mut()[start..end].iter_mut().zip(bytes).for_each(|(to, from)| *to = MaybeUninit::new(*from));
        self.length = end;
        true
    }

    /// Appends a path, and resolves `.` and `..` textually.
    pub(super) fn join(&mut self, path: &[u8]) -> bool {
        for part in path.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => self.cut(self.get().iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
                part => {
                    if !self.push(b"/") || !self.push(part) {
                        return false;
                    }
                }
            }
        }
        true
    }

    pub(in crate::posix) fn c_str(&mut self) -> *const u8 {
        let end = self.length;
        self.room_mut()[end].write(0);
        self.room().as_ptr().cast()
    }
}

pub(super) fn folder_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    let start = name_start(path);
    let folder = match start {
        0 | 1 => &path[..start],
        _ => &path[..start - 1],
    };
    (folder, &path[start..])
}

/// The name of the link in `/proc` that leads to a descriptor's file.
pub(in crate::posix) fn descriptor_name(fd: RawFd, room: &mut [u8; 32]) -> &CStr {
    let prefix = b"/proc/self/fd/";
    *room = [0; 32];
    room[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0u8; 12];
    let mut at = digits.len();
    let mut rest = fd as u32;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    room[prefix.len()..prefix.len() + digits.len() - at].copy_from_slice(&digits[at..]);
    CStr::from_bytes_until_nul(room).unwrap_or_default()
}

/// The kernel's path of a descriptor's file.
pub(in crate::posix) fn descriptor_path(fd: RawFd, text: &mut PathText) -> bool {
    let mut room = [0u8; 32];
    let name = descriptor_name(fd, &mut room);
    // SAFETY: the name is terminated by a zero; the kernel writes at most the buffer's length.
    let found = unsafe { text.fill(|to, length| raw!(SYS_readlinkat, libc::AT_FDCWD, name.as_ptr(), to, length)) };
    found && text.get()[0] == b'/'
}

/// The kernel's path of an open file, or the path that the caller gave.
pub(in crate::posix) fn path_of(fd: RawFd, said: &CStr) -> CString {
    let mut text = PathText::new();
    if descriptor_path(fd, &mut text) {
        CString::new(text.get()).unwrap_or_else(|_| said.to_owned())
    } else {
        said.to_owned()
    }
}

/// The kernel's name of the file that was just opened by this path, through no symbolic link. `None` if only the kernel
/// knows: the path has dots. To ask it (`path_of`) takes 4 µs and more, this 0.5, or 1.5 if the path is relative to a
/// descriptor.
pub(in crate::posix) fn path_without_links(dirfd: RawFd, path: &CStr) -> Option<CString> {
    let bytes = path.to_bytes();
    let rest = bytes.strip_prefix(b"/");
    if rest.unwrap_or(bytes).split(|&byte| byte == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        return None;
    }
    if rest.is_some() {
        return Some(path.to_owned());
    }
    let mut text = PathText::new();
    let is_found = start(dirfd, bytes, &mut text) && text.push(b"/") && text.push(bytes);
    is_found.then(|| CString::new(text.get()).ok()).flatten()
}

pub(super) fn start(dirfd: RawFd, path: &[u8], text: &mut PathText) -> bool {
    text.clear();
    if path.first() == Some(&b'/') {
        return true;
    }
    let is_absolute = if dirfd != libc::AT_FDCWD {
        descriptor_path(dirfd, text)
    } else {
        // SAFETY: the kernel writes at most the buffer's length.
        let found = unsafe {
            text.fill(|to, length| match raw!(SYS_getcwd, to, length) {
                with_zero if with_zero > 0 => with_zero - 1,
                error => error,
            })
        };
        found && text.get()[0] == b'/'
    };
    if text.get() == b"/" {
        text.clear();
    }
    is_absolute
}

/// The real folder of `path`, with the name appended.
pub(super) fn real_path(dirfd: RawFd, path: &[u8], text: &mut PathText) -> bool {
    let (folder, name) = folder_and_name(path);
    text.clear();
    if !text.push(if folder.is_empty() { b"." } else { folder }) {
        return false;
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let _passing = crate::posix::passing();
    // SAFETY: the text is terminated by a zero.
    let fd = crate::posix::with_number(|| unsafe { raw!(SYS_openat, dirfd, text.c_str(), flags, 0) });
    if fd < 0 {
        return false;
    }
    let known = descriptor_path(fd as RawFd, text);
    // SAFETY: the descriptor is ours, and refers to a folder.
    unsafe { raw!(SYS_close, fd) };
    if text.get() == b"/" {
        text.clear();
    }
    known && text.push(b"/") && text.push(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn long_paths() {
        let mut text = PathText::new();
        let long = [b'x'; PATH];
        for length in [0, 1, FEW - 1, FEW, PATH - 1] {
            text.clear();
            assert!(text.push(&long[..length / 2]) && text.push(&long[length / 2..length]));
            assert_eq!(text.get(), &long[..length]);
            // SAFETY: the text ends with a zero.
            assert_eq!(unsafe { CStr::from_ptr(text.c_str().cast()) }.to_bytes(), &long[..length]);
        }
        assert!(!text.push(b"x"));
        for (length, errno) in
            [(1, None), (FEW - 2, None), (FEW - 1, None), (FEW, Some(libc::ERANGE)), (PATH - 1, None)]
        {
            let mut text = PathText::new();
            // SAFETY: it writes no more than the room.
            let found = unsafe {
                text.fill(|to, room| {
                    if let Some(errno) = errno.filter(|_| length > room) {
                        return -(errno as isize);
                    }
                    to.write_bytes(b'y', length.min(room));
                    length.min(room) as isize
                })
            };
            assert!(found && text.get() == vec![b'y'; length]);
        }
    }

    #[test]
    fn paths_without_links() {
        let real = |dirfd, path| path_without_links(dirfd, path).map(|path| path.into_string().unwrap());
        let here = std::env::current_dir().unwrap().into_os_string().into_string().unwrap();
        for name in [c"a", c"a/b", c".a", c"a..b"] {
            assert_eq!(real(libc::AT_FDCWD, name), Some(format!("{here}/{}", name.to_str().unwrap())));
            assert_eq!(real(-1, name), None);
        }
        let [root, folder] = ["/", "/usr"].map(|path| std::fs::File::open(path).unwrap());
        assert_eq!(real(root.as_raw_fd(), c"a/b").as_deref(), Some("/a/b"));
        assert_eq!(real(folder.as_raw_fd(), c"a").as_deref(), Some("/usr/a"));
        for dirfd in [libc::AT_FDCWD, 3] {
            assert_eq!(real(dirfd, c"/a/b").as_deref(), Some("/a/b"));
            for unknown in [c"", c"/", c".", c"./a", c"a/../b", c"a//b", c"a/", c"/a/./b"] {
                assert_eq!(real(dirfd, unknown), None, "{unknown:?}");
            }
        }
    }
}
