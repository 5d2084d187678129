//! `openat2(2)`: the kernel checks the request and resolves the path under the request's restrictions. Whether the
//! file is selected depends on where that leads.

use super::open::adopt;
use super::open_atomic::{OPENS, for_kernel, make_atomic, open_atomic, say_write_only};
use super::ordinary_writer;
use super::selected::{asks_for_data, is_open};
use crate::file::AtomicFile;
use crate::posix::call::look::stat_of;
use crate::posix::call::user;
use crate::posix::descriptors::{demote, table};
use crate::posix::life::process;
use crate::posix::selection::config::Config;
use crate::posix::selection::ordinary;
use crate::posix::{Ret, fail, raw, with_lowest};
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `struct open_how`: flags, mode, restrictions.
type How = [u64; 3];

/// A request that the kernel would grant, as far as that can be known without a path.
struct Request<'a> {
    dirfd: RawFd,
    path: &'a CStr,
    flags: i32,
    resolve: u64,
}

/// `openat2(2)`.
///
/// # Safety
/// As the system call: bad memory gives `EFAULT`.
pub(in crate::posix) unsafe fn openat2(dirfd: RawFd, path: *const c_char, how: *const How, size: usize) -> Ret {
    // SAFETY: the caller's promise; any bytes are numbers.
    unsafe {
        let kernel = || table::fresh(with_lowest(|| raw!(SYS_openat2, dirfd, path, how, size)));
        let Some(config) = process::config().filter(|_| size >= size_of::<How>()) else { return kernel() };
        let Ok([flags, mode, resolve]) = user::get(how) else { return kernel() };
        // The kernel checks the request before the path. If it refuses the request, it also refuses it with the real
        // path.
        let is_granted = raw!(SYS_openat2, libc::AT_FDCWD, c"".as_ptr(), how, size) == fail(libc::ENOENT);
        if !is_granted || !asks_for_data(flags as i32) {
            return kernel();
        }
        let passing = crate::posix::passing();
        // Opens nothing, and also checks that the path is readable memory.
        let look =
            open_by_kernel(dirfd, path, libc::O_PATH | libc::O_CLOEXEC | flags as i32 & libc::O_NOFOLLOW, 0, resolve);
        if look == fail(libc::EFAULT) {
            return look;
        }
        let request = Request { dirfd, path: CStr::from_ptr(path), flags: flags as i32, resolve };
        let is_selected = match look {
            fd if fd >= 0 => request.leads_to_selected(config, &OwnedFd::from_raw_fd(fd as RawFd)),
            error => error == fail(libc::ENOENT) && request.makes_selected(config),
        };
        drop(passing);
        if !is_selected {
            // It may have become another name of a file that is open here.
            let open = |now: i32| {
                let with = || table::fresh(with_lowest(|| open_by_kernel(dirfd, path, now, mode, resolve)));
                match if now == flags as i32 { kernel() } else { with() } {
                    fd if fd >= 0 => adopt(fd as RawFd, core::ptr::null()),
                    error => error,
                }
            };
            return match resolve {
                0 => ordinary_writer::open(dirfd, path, flags as i32, open),
                // The path as written may have another meaning.
                _ => ordinary_writer::opened(open(flags as i32), flags as i32),
            };
        }
        let (access, kernel_flags) = for_kernel(flags as i32);
        let mut opens = OPENS;
        let fd = loop {
            let fd = table::fresh(with_lowest(|| open_by_kernel(dirfd, path, kernel_flags, mode, resolve)));
            if fd < 0 {
                say_write_only(fd, flags as i32, access, dirfd, request.path);
                return fd;
            }
            opens -= 1;
            if opens == 0 || request.is_exclusive() || !request.was_replaced(fd as RawFd) {
                break fd as RawFd;
            }
            raw!(SYS_close, fd);
        };
        let (flags, mode) = (flags as i32, mode as u32);
        demote::unless_standard(match resolve {
            0 => open_atomic(config, dirfd, path, flags, mode, Some(fd)),
            _ => make_atomic(config, dirfd, path, flags, mode, fd),
        })
    }
}

/// # Safety
/// As `openat2`.
unsafe fn open_by_kernel(dirfd: RawFd, path: *const c_char, flags: i32, mode: u64, resolve: u64) -> Ret {
    let how: How = [u64::from(flags as u32), if flags & libc::O_CREAT != 0 { mode } else { 0 }, resolve];
    // SAFETY: the kernel checks the path; `how` is as long as stated.
    unsafe { raw!(SYS_openat2, dirfd, path, &raw const how, size_of_val(&how)) }
}

impl Request<'_> {
    /// Whether the existing file that `look` found is to be opened as an atomic file.
    fn leads_to_selected(&self, config: &Config, look: &OwnedFd) -> bool {
        let fd = look.as_raw_fd();
        let Ok(stat) = stat_of(fd) else { return false };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || self.is_exclusive() {
            return false;
        }
        // Under another root, the path as written has another meaning.
        let by_name = || {
            self.resolve & libc::RESOLVE_IN_ROOT == 0
                && config.globs.matches(self.dirfd, self.path.to_bytes(), self.flags & libc::O_NOFOLLOW == 0)
        };
        let is_here = is_open(&stat);
        // SAFETY: an empty path is the descriptor itself.
        let is_selected = (is_here || config.globs.matches_open(fd) || by_name())
            && !unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) };
        if is_selected
            && is_here
            && let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino)
        {
            let _ = file.give_up_lease(); // it would make the open wait
        }
        is_selected
    }

    /// Whether another file had got the name of this one, which is not open here otherwise, when it was opened.
    fn was_replaced(&self, fd: RawFd) -> bool {
        let Ok(stat) = stat_of(fd) else { return false };
        if stat.st_nlink > 0 || is_open(&stat) {
            return false;
        }
        let flags = libc::O_PATH | libc::O_CLOEXEC | self.flags & libc::O_NOFOLLOW;
        // SAFETY: a C string.
        let look = unsafe { open_by_kernel(self.dirfd, self.path.as_ptr(), flags, 0, self.resolve) };
        // SAFETY: a new descriptor of ours.
        let look = (look >= 0).then(|| unsafe { OwnedFd::from_raw_fd(look as RawFd) });
        look.and_then(|look| stat_of(look.as_raw_fd()).ok()).is_some_and(|now| {
            now.st_mode & libc::S_IFMT == libc::S_IFREG && (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino)
        })
    }

    /// Whether a file that the call creates is to be atomic.
    fn makes_selected(&self, config: &Config) -> bool {
        let path = self.path.to_bytes();
        let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, name) = path.split_at(at);
        let mut buffer = [0u8; libc::PATH_MAX as usize];
        if self.flags & libc::O_CREAT == 0 || name.is_empty() || folder.len() >= buffer.len() {
            return false;
        }
        match folder {
            b"" => buffer[0] = b'.',
            folder => buffer[..folder.len()].copy_from_slice(folder),
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the buffer ends with a zero.
        let folder = unsafe { open_by_kernel(self.dirfd, buffer.as_ptr().cast(), flags, 0, self.resolve) };
        if folder < 0 {
            return false;
        }
        // SAFETY: a new descriptor of ours.
        let folder = unsafe { OwnedFd::from_raw_fd(folder as RawFd) };
        // The name is the end of the path, with the terminating zero.
        config.globs.matches(folder.as_raw_fd(), name, false)
    }

    fn is_exclusive(&self) -> bool {
        self.flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL
    }
}
