//! Raw system calls that rustix has no safe form for; reads and writes that go on to the end; and the clock.

mod bytes;
mod futexes;
pub(crate) mod internal;
pub(crate) mod locks;
pub(crate) mod membarrier;
mod raw;
mod signal;

pub(crate) use bytes::{read_at, write_at};
pub(crate) use futexes::{Ended, WORDS_MAX, Word, wait_for_any};
pub use raw::{check, syscall};

use crate::error::Error;
use crate::error::Result;
pub(crate) use internal::InternalFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
pub use signal::{
    ALL_BUT_LIBCS, SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread,
    unblock_signals,
};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Writes one line to stderr by a bare system call: nothing of ours is re-entered, errors are ignored.
pub fn notice(line: &str) {
    notice_parts(&[line.as_bytes()]);
}

/// As [`notice`], of up to six pieces that make one line. Allocates nothing: it may come from a signal handler.
pub(crate) fn notice_parts(parts: &[&[u8]]) {
    debug_assert!(parts.len() <= 6);
    if !is_for_messages(libc::STDERR_FILENO) {
        return;
    }
    let mut all: [&[u8]; 8] = [b""; 8];
    all[0] = b"famio: ";
    all[1..].iter_mut().zip(parts.iter().copied().chain([&b"\n"[..]])).for_each(|(to, part)| *to = part);
    let vector = all.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the pieces are alive during the call, which reads them.
    unsafe { syscall(libc::SYS_writev, [2, vector.as_ptr() as usize, vector.len(), 0, 0, 0]) };
}

/// Whether what is printed there is a message: not where the program, having closed its standard error, has a file of its data
/// under that number. Such a file is read, too; a log is only written.
fn is_for_messages(number: i32) -> bool {
    let fcntl = [number as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: no memory is passed.
    let Ok(flags) = check(unsafe { syscall(libc::SYS_fcntl, fcntl) }) else { return false };
    if flags as i32 & libc::O_ACCMODE != libc::O_RDWR || flags as i32 & libc::O_APPEND != 0 {
        return true;
    }
    // SAFETY: not -1, and only asked for its kind.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(number) });
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile)
}

/// A forked child does not get this mapping of ours: with it it would keep the locks of the file behind it, and this process
/// would seem to live on in it.
pub(crate) fn keep_from_children(at: *mut u8, len: usize) {
    // SAFETY: a mapping of ours, which a child makes no use of.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DONTFORK as usize, 0, 0, 0]) };
}

/// What [`keep_from_children`] has kept a forked child gets.
pub(crate) fn give_to_children(at: *mut u8, len: usize) {
    // SAFETY: a mapping of ours, or one of the program's, as it is by itself.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DOFORK as usize, 0, 0, 0]) };
}

/// The time of day as the kernel stamps files with, a few milliseconds coarse. From the vDSO: no system call.
pub fn coarse_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing; the clock exists on every Linux since 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now
}

/// The clock that only goes forward, in nanoseconds. From the vDSO.
pub(crate) fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The device and inode of an open file: which file it is. Asks for no times: on a kernel with fine-grained time stamps
/// (since 6.13) a question for them makes the next write change the inode, which the next `fdatasync` may have to write.
pub(crate) fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64)> {
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO) {
        Ok(stat) => Ok((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)),
        // A sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = rustix::fs::fstat(fd)?;
            Ok((stat.st_dev, stat.st_ino))
        }
        Err(error) => Err(error.into()),
    }
}

/// An open file description of its own of the same file, with this access; by `/proc`, whatever names the file has.
pub(crate) fn open_again(fd: BorrowedFd<'_>, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    rustix::fs::openat(CWD, &*link, access | OFlags::CLOEXEC, Mode::empty())
}

/// The process's limit on file sizes: nothing of ours is made longer than it, so that no SIGXFSZ comes from work of ours.
pub(crate) fn file_size_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(i64::MAX as u64)
}

/// The path by which the kernel knows an open file now. A file that was deleted, or that this process cannot reach by a path,
/// has none.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, &link, Vec::new())
        .map_err(|e| Error::from(e).context(format_args!("cannot tell where the file lies: {link}")))?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.is_absolute() {
        return Err(Error::with(libc::ESTALE, format!("{}: cannot be reached by a path", path.display())));
    }
    Ok(path.to_path_buf())
}

/// A descriptor that is kept for longer than a call, of the same open file description: see [`internal`].
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    InternalFd::duplicate(fd)
}
