//! What system calls are used for in many places: reads and writes of all bytes asked for, clocks, users, messages.

pub(crate) mod address_space;
mod bytes;
mod clock;
pub(crate) mod device;
pub(crate) mod events;
mod file_size;
mod file_system;
mod futexes;
mod identity;
pub(crate) mod internal;
pub(crate) mod locks;
pub mod log;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod namespaces;
mod owner;
mod process_stat;
mod quiescence;
pub mod shm;
mod standard_error;
pub(crate) mod users;

pub(crate) use bytes::{
    each_data, each_piece, next_data, read_at, read_whole, with_position_kept, write_at, write_out, write_out_range,
};
pub use clock::coarse_now;
pub(crate) use clock::{may_be_stamped_again, monotonic_now, precise_now};
pub(crate) use file_size::{file_size_limit, without_signal_at_limit};
pub(crate) use file_system::FileSystem;
pub(crate) use futexes::{Ended, WORDS_MAX, Word, wait_for_any};
pub(crate) use identity::{Looked, birth_of, identity, identity_and_size, identity_at, look_at};
pub(crate) use memory::memory;
pub(crate) use owner::{owner_and_mode, owner_and_mode_of_folder};
pub(crate) use process_stat::{ProcessStat, process_stat};
pub(crate) use quiescence::Quiescence;
pub(crate) use standard_error::{DEMOTED_SIGNALS, find_standard_error, note_standard_error, tell_of_standard_error};

use crate::error::Error;
use crate::error::Result;
use internal::undisturbed::{Answer, Number};
pub(crate) use internal::{InternalFd, open as openat, open_again, with_number};
use rustix::fs::CWD;

pub use crate::kernel::{
    ALL_BUT_LIBCS, SignalAction, block_signals, check, restore_signals, signal_action, signal_bit, signal_this_thread,
    syscall, unblock_signals,
};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Writes a message for the user to the configured target ([`log`]), by system calls only: no function of the library
/// is re-entered, and errors are ignored.
pub fn notice(line: &str) {
    notice_parts(&[line.as_bytes()]);
}

/// As [`notice`], from up to six pieces of one line. Does not allocate: it may be called in a signal handler.
pub(crate) fn notice_parts(parts: &[&[u8]]) {
    log::say(log::Level::Warning, parts);
}

/// Keeps this mapping out of forked children: with it a child would keep the locks of the file behind it, and this
/// process would seem to live on.
pub(crate) fn keep_from_children(at: *mut u8, len: usize) {
    // SAFETY: our mapping, which a child does not use.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DONTFORK as usize, 0, 0, 0]) };
}

/// Undoes [`keep_from_children`].
pub(crate) fn give_to_children(at: *mut u8, len: usize) {
    // SAFETY: our mapping, or one of the program's, for which it is the default.
    unsafe { syscall(libc::SYS_madvise, [at.expose_provenance(), len, libc::MADV_DOFORK as usize, 0, 0, 0]) };
}

/// The id of this process.
pub(crate) fn process_id() -> u32 {
    static KNOWN: Number = Number::new();
    KNOWN.get(|| rustix::process::getpid().as_raw_nonzero().get() as u64) as u32
}

/// The user whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    static KNOWN: Number = Number::new();
    KNOWN.get(|| rustix::process::geteuid().as_raw().into()) as u32
}

/// Whether the kernel is of this version or a later one.
pub(crate) fn is_kernel_from(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    is_release_from(uname.release().to_bytes(), (major, minor))
}

fn is_release_from(release: &[u8], version: (u32, u32)) -> bool {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add((digit - b'0').into()))
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= version
}

/// Whether the machine has no such thread.
pub(crate) fn thread_is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is not sent, only checked.
    let asked = unsafe { syscall(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    asked == -(libc::ESRCH as isize)
}

/// The entries of a folder.
pub(crate) fn list(folder: impl AsFd) -> rustix::io::Result<rustix::fs::Dir> {
    rustix::fs::Dir::new(internal::open_list(folder.as_fd())?)
}

/// The present path of an open file. A file that was deleted, or that this process cannot reach by a path, has none.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    PATH.of_file(file, || path_now(file))
}

static PATH: Answer<PathBuf> = Answer::new();

/// The file was opened by this path just before, which is the kernel's: in this stretch it need not be asked for.
pub(crate) fn note_path(file: BorrowedFd<'_>, path: &Path) {
    let _ = PATH.of_file(file, || Ok::<_, Error>(path.to_path_buf()));
}

/// As [`path_of`], of this very moment.
pub(crate) fn path_now(file: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, &link, Vec::new())
        .map_err(|e| Error::from(e).context(format_args!("cannot tell where the file lies: {link}")))?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.is_absolute() {
        return Err(Error::nameless(format!("{}: cannot be reached by a path", path.display())));
    }
    Ok(path.to_path_buf())
}

/// An internal descriptor of the same open file description, kept for longer than a call: see [`internal`].
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    InternalFd::duplicate(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for release in ["6.18.44-fc", "6.18", "6.19-rc1", "7.0.0", "10.1"] {
            assert!(is_release_from(release.as_bytes(), (6, 18)), "{release}");
        }
        for release in ["6.17.9", "6.2", "5.19.1", "", "6", "x"] {
            assert!(!is_release_from(release.as_bytes(), (6, 18)), "{release}");
        }
        assert!(is_kernel_from(4, 0) && !is_kernel_from(1000, 0));
    }
}
