//! Opens a file for the library: with the lowest free number, which is confirmed before anything is done with it,
//! then duplicated to a high one.
//!
//! Meanwhile the hooks keep the program from that number (`passing`). A system call that no hook sees may still put
//! one of the program's files there. So a descriptor is the library's only if the kernel says that it is the file
//! asked for; and only then is the number closed.

use super::{numbers, undisturbed};
use crate::error::{Error, Result};
use crate::sys::{check, identity, identity_at, syscall};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Tries at a step that the program prevents by closing descriptors that it did not open.
pub(crate) const TRIES: u32 = 8;

/// A way to get a descriptor.
pub(super) trait Way {
    fn open(&self) -> rustix::io::Result<OwnedFd>;

    /// Whether `found` is what [`open`](Self::open) returned.
    fn is_it(&self, found: BorrowedFd<'_>) -> bool;

    /// For a descriptor that is not (or no longer) what was asked for: whether it is still the library's, to be
    /// closed.
    fn is_ours(&self, _found: BorrowedFd<'_>) -> bool {
        false
    }
}

/// Opens a file by its name.
pub(super) struct Named<'a> {
    pub at: BorrowedFd<'a>,
    pub path: &'a CStr,
    pub flags: OFlags,
    pub mode: Mode,
    /// An earlier call made the file, but its descriptor was lost.
    pub made: Cell<bool>,
}

impl Named<'_> {
    fn look(&self) -> rustix::io::Result<(u64, u64)> {
        let is_link = self.flags.contains(OFlags::NOFOLLOW) || self.flags.contains(OFlags::CREATE | OFlags::EXCL);
        let how = if is_link { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        identity_at(self.at, self.path, how)
    }
}

impl Way for Named<'_> {
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let exclusive = OFlags::CREATE | OFlags::EXCL;
        if !self.flags.contains(exclusive) || !self.made.get() {
            let opened = rustix::fs::openat(self.at, self.path, self.flags, self.mode)?;
            self.made.set(true);
            return Ok(opened);
        }
        // An earlier call of this process made it, if it is still as it was made.
        let opened =
            rustix::fs::openat(self.at, self.path, (self.flags - exclusive) | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = rustix::fs::fstat(&opened)?;
        let is_made = stat.st_size == 0 && stat.st_nlink == 1 && stat.st_uid == rustix::process::geteuid().as_raw();
        if is_made { Ok(opened) } else { Err(Errno::EXIST) }
    }

    fn is_it(&self, found: BorrowedFd<'_>) -> bool {
        if self.flags.contains(OFlags::TMPFILE) {
            let flags = rustix::fs::fcntl_getfl(found);
            return flags.is_ok_and(|flags| flags.contains(OFlags::TMPFILE))
                && rustix::fs::fstat(found).is_ok_and(|stat| stat.st_nlink == 0 && stat.st_size == 0);
        }
        let Ok(found) = identity(found) else { return false };
        match self.look() {
            Ok(named) => named == found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::SRCH) => false,
            // Unknown.
            Err(_) => true,
        }
    }

    /// Whether the file has lost its name since, which the kernel remembers.
    fn is_ours(&self, found: BorrowedFd<'_>) -> bool {
        let mut buffer = [0u8; libc::PATH_MAX as usize];
        let Some(length) = link_of(found, &mut buffer) else { return false };
        let path = buffer[..length].strip_suffix(b" (deleted)").unwrap_or(&buffer[..length]);
        let last = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let name = &self.path.to_bytes()[last(self.path.to_bytes())..];
        !name.is_empty() && &path[last(path)..] == name
    }
}

/// Opens the file of a descriptor again.
pub(super) struct Again<'a> {
    pub of: BorrowedFd<'a>,
    pub access: OFlags,
    /// The identity of that file: the program may replace the descriptor meanwhile.
    pub known: (u64, u64),
}

impl Way for Again<'_> {
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let mut buffer = [0; 40];
        rustix::fs::openat(rustix::fs::CWD, link_path(self.of.as_raw_fd(), &mut buffer), self.access, Mode::empty())
    }

    fn is_it(&self, found: BorrowedFd<'_>) -> bool {
        identity(found).is_ok_and(|found| found == self.known)
    }

    /// Whether the program has replaced the descriptor.
    fn is_ours(&self, found: BorrowedFd<'_>) -> bool {
        identity(found).is_ok_and(|found| identity(self.of).is_ok_and(|other| other == found))
    }
}

/// Makes a descriptor without a file name. `link` is the beginning of the link that the kernel shows for it.
pub(super) struct Nameless<'a> {
    pub make: &'a dyn Fn() -> rustix::io::Result<OwnedFd>,
    pub link: &'a [u8],
}

impl Way for Nameless<'_> {
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        (self.make)()
    }

    fn is_it(&self, found: BorrowedFd<'_>) -> bool {
        let mut buffer = [0; 64];
        // Without /proc this is unknown.
        link_of(found, &mut buffer).is_none_or(|length| buffer[..length].starts_with(self.link))
            && identity(found).is_ok()
    }
}

/// `/proc/thread-self/fd/` and the number. Does not allocate: it may be called in a signal handler.
fn link_path(number: RawFd, buffer: &mut [u8; 40]) -> &CStr {
    const FOLDER: &[u8] = b"/proc/thread-self/fd/";
    buffer[..FOLDER.len()].copy_from_slice(FOLDER);
    let (mut at, mut rest) = (38, number.unsigned_abs());
    let mut digits = [0u8; 40];
    loop {
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
        at -= 1;
    }
    let length = 39 - at;
    buffer[FOLDER.len()..FOLDER.len() + length].copy_from_slice(&digits[at..39]);
    buffer[FOLDER.len() + length] = 0;
    CStr::from_bytes_until_nul(buffer).unwrap_or_default()
}

fn link_of(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Option<usize> {
    let mut path = [0; 40];
    let read = rustix::fs::readlinkat_raw(rustix::fs::CWD, link_path(fd.as_raw_fd(), &mut path), &mut *buffer);
    read.ok()
}

fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: never -1. The kernel is only asked about it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn close(number: RawFd) {
    // SAFETY: the caller has made sure that it is the library's.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// Whether both belong to one open file description: another one of the same file may be the program's.
fn is_same(one: RawFd, other: &OwnedFd) -> bool {
    const KCMP_FILE: usize = 0;
    let me = rustix::process::getpid().as_raw_nonzero().get() as usize;
    // SAFETY: no memory is passed.
    let compared =
        check(unsafe { syscall(libc::SYS_kcmp, [me, me, KCMP_FILE, one as usize, other.as_raw_fd() as usize, 0]) });
    match compared {
        Ok(order) => order == 0,
        Err(error) if error.errno() == libc::EBADF => false,
        // For a kernel or a sandbox without `kcmp`.
        Err(_) => identity(borrow(one)).is_ok_and(|found| identity(other.as_fd()).is_ok_and(|kept| kept == found)),
    }
}

/// As [`high`], while nobody can replace a descriptor: there is nothing to confirm.
fn high_undisturbed(way: &dyn Way) -> Result<(OwnedFd, (u64, u64))> {
    let low = crate::sys::with_number(|| way.open())?;
    let found = identity(low.as_fd())?;
    match numbers::high_duplicate(low.as_fd()) {
        Ok(high) => Ok((high, found)),
        Err(error) if error.errno() == libc::EMFILE && low.as_raw_fd() > libc::STDERR_FILENO => Ok((low, found)),
        Err(error) => Err(error),
    }
}

/// Opens a descriptor, with a high number if there is one. Also returns the file's identity: the program may replace
/// the descriptor at any moment. Called while a `Passing` lives.
pub(super) fn high(way: &dyn Way) -> Result<(OwnedFd, (u64, u64))> {
    if undisturbed::now().is_some() {
        return high_undisturbed(way);
    }
    for _ in 0..TRIES {
        let low = crate::sys::with_number(|| way.open())?.into_raw_fd();
        #[cfg(test)]
        super::tests::just_opened(low);
        if !way.is_it(borrow(low)) {
            if way.is_ours(borrow(low)) {
                close(low);
            }
            continue;
        }
        let Ok(found) = identity(borrow(low)) else { continue };
        match numbers::high_duplicate(borrow(low)) {
            Ok(high) if identity(high.as_fd())? == found => {
                #[cfg(test)]
                super::tests::just_opened(low);
                if is_same(low, &high) {
                    close(low);
                }
                return Ok((high, found));
            }
            Ok(_) => {}
            Err(error) if error.errno() == libc::EBADF => {}
            Err(error) if error.errno() == libc::EMFILE && low > libc::STDERR_FILENO => {
                // SAFETY: opened and confirmed above.
                return Ok((unsafe { OwnedFd::from_raw_fd(low) }, found));
            }
            Err(error) => {
                close(low);
                return Err(error);
            }
        }
    }
    Err(Error::with(libc::EBADF, "the program replaced a descriptor that it had not opened"))
}
