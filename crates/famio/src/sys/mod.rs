//! Raw system calls that rustix has no safe form for; reads and writes that go on to the end; and the clock.

pub(crate) mod address_space;
mod bytes;
mod clock;
pub(crate) mod events;
mod file_size;
mod futexes;
mod identity;
pub(crate) mod internal;
pub(crate) mod locks;
pub mod log;
pub(crate) mod membarrier;
pub(crate) mod namespaces;
mod raw;
pub mod shm;
mod signal;
mod standard_error;
pub(crate) mod users;

pub(crate) use bytes::{each_data, each_piece, next_data, read_at, with_position_kept, write_at, write_out};
pub use clock::coarse_now;
pub(crate) use clock::monotonic_now;
pub(crate) use file_size::file_size_limit;
pub(crate) use futexes::{Ended, WORDS_MAX, Word, wait_for_any};
pub(crate) use identity::{identity, identity_and_size, look_at};
pub use raw::{check, syscall};
pub(crate) use standard_error::{HANDED_BACK, find_standard_error, note_standard_error, tell_of_standard_error};

use crate::error::Error;
use crate::error::Result;
pub(crate) use internal::{InternalFd, open as openat, open_again, with_number};
use rustix::fs::CWD;

pub use signal::{
    ALL_BUT_LIBCS, SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread,
    unblock_signals,
};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Says something to who runs the program, where they want it ([`log`]), by bare system calls: nothing of ours is re-entered, errors are
/// ignored.
pub fn notice(line: &str) {
    notice_parts(&[line.as_bytes()]);
}

/// As [`notice`], of up to six pieces that make one line. Allocates nothing: it may come from a signal handler.
pub(crate) fn notice_parts(parts: &[&[u8]]) {
    log::say(log::Level::Warning, parts);
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

/// Bytes of memory that the machine has.
pub(crate) fn memory() -> u64 {
    // SAFETY: plain words, filled in by the kernel.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]);
        info
    };
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// Whether there is no such thread on the machine.
pub(crate) fn thread_is_gone(thread: u32) -> bool {
    // SAFETY: signal 0 is none, it only asks.
    let asked = unsafe { syscall(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    asked == -(libc::ESRCH as isize)
}

/// What is in a folder.
pub(crate) fn list(folder: impl AsFd) -> rustix::io::Result<rustix::fs::Dir> {
    rustix::fs::Dir::new(internal::open_list(folder.as_fd())?)
}

/// The path by which the kernel knows an open file now. A file that was deleted, or that this process cannot reach by a path,
/// has none.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, &link, Vec::new())
        .map_err(|e| Error::from(e).context(format_args!("cannot tell where the file lies: {link}")))?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.is_absolute() {
        return Err(Error::nameless(format!("{}: cannot be reached by a path", path.display())));
    }
    Ok(path.to_path_buf())
}

/// A descriptor that is kept for longer than a call, of the same open file description: see [`internal`].
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    InternalFd::duplicate(fd)
}
