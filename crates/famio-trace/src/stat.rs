//! What the kernel says about a descriptor or a path, by direct system calls.

use core::ffi::c_char;
use core::mem::MaybeUninit;
use famio::sys::syscall as raw;

/// A regular file.
#[derive(Clone, Copy)]
pub struct Regular {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// It has a name: it was neither deleted nor created without one.
    pub is_named: bool,
}

fn asked(number: libc::c_long, fd: i32, path: *const c_char, flags: i32) -> Option<Regular> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let at = found.as_mut_ptr() as usize;
    let arguments = match number {
        libc::SYS_fstat => [fd as usize, at, 0, 0, 0, 0],
        _ => [fd as usize, path as usize, at, flags as usize, 0, 0],
    };
    // SAFETY: the kernel writes one stat; the path is the program's, and a bad one is EFAULT.
    if unsafe { raw(number, arguments) } != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    let found = unsafe { found.assume_init() };
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(Regular {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size as u64,
        is_named: found.st_nlink > 0,
    })
}

/// The file of a descriptor; `None` if it is not a regular file.
pub fn of(fd: i32) -> Option<Regular> {
    asked(libc::SYS_fstat, fd, core::ptr::null(), 0)
}

/// The file of a path; a link itself, if it is one.
pub fn at(dirfd: i32, path: *const c_char) -> Option<Regular> {
    asked(libc::SYS_newfstatat, dirfd, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The flags of an open description.
pub fn flags(fd: i32) -> i32 {
    // SAFETY: no memory is passed.
    unsafe { raw(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) as i32 }
}

/// The position of a descriptor.
pub fn position(fd: i32) -> u64 {
    // SAFETY: no memory is passed.
    unsafe { raw(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0]).max(0) as u64 }
}

/// The path of a descriptor.
pub struct Path {
    bytes: [u8; libc::PATH_MAX as usize],
    length: usize,
}

impl Path {
    /// From the kernel; `None` if unknown.
    pub fn of(fd: i32) -> Option<Self> {
        let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
        let (mut digits, mut count, mut rest) = ([0u8; 10], 0, u32::try_from(fd).ok()?);
        while count == 0 || rest > 0 {
            digits[count] = b'0' + (rest % 10) as u8;
            (rest, count) = (rest / 10, count + 1);
        }
        for (to, from) in link[14..].iter_mut().zip(digits[..count].iter().rev()) {
            *to = *from;
        }
        let mut path = Self { bytes: [0; libc::PATH_MAX as usize], length: 0 };
        let arguments =
            [libc::AT_FDCWD as usize, link.as_ptr() as usize, path.bytes.as_mut_ptr() as usize, path.bytes.len(), 0, 0];
        // SAFETY: a C string, and a buffer with its length.
        let length = unsafe { raw(libc::SYS_readlinkat, arguments) };
        path.length = usize::try_from(length).ok()?;
        Some(path)
    }

    /// The path that the program names, with links in its folders followed.
    pub fn named(dirfd: i32, name: *const c_char) -> Option<Self> {
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: the path is the program's, and a bad one is EFAULT. The descriptor is ours, and closed again.
        unsafe {
            let fd = raw(libc::SYS_openat, [dirfd as usize, name as usize, flags as usize, 0, 0, 0]);
            if fd < 0 {
                return None;
            }
            let path = Self::of(fd as i32);
            raw(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
            path
        }
    }

    /// A copy of these bytes, if there are not too many.
    pub fn copy(from: &[u8]) -> Option<Self> {
        let mut path = Self { bytes: [0; libc::PATH_MAX as usize], length: from.len() };
        path.bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(path)
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
