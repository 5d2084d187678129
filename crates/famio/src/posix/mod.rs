//! What the POSIX hooks call: descriptors, open descriptions, positions, path selection.
//!
//! Nearly every function here has the arguments and the result of its system call: `-4095..=-1` is a negated errno;
//! errno itself is never touched. A call on any other descriptor costs two loads before it goes to the kernel
//! unchanged.

mod aio;
mod close;
pub mod config;
mod control;
mod copy;
mod demote;
mod description;
mod direct;
mod dup;
pub mod exec;
mod full_disk;
pub mod handlers;
mod inherit;
mod io;
mod limits;
mod lock;
mod locks;
pub mod lost;
mod mapping;
mod maps_list;
mod mark;
mod meant;
mod names;
pub mod nv;
mod open;
mod open_plain;
mod openat2;
mod ordinary;
pub mod patterns;
mod policy;
mod position;
pub mod process;
mod report;
mod rights;
mod rings;
mod route;
pub mod run_notes;
pub mod run_record;
mod seek;
mod size;
mod spare;
mod splice;
mod stat;
mod streams;
mod sync;
pub mod table;
mod times;
mod traces;
mod twin;
mod unreadable;
mod user;
mod vector;
mod verify;

pub use aio::{Done, Event, Request, aio};
pub use close::{close, close_each_from, close_range, is_hidden as is_internal};
pub use config::Config;
pub use control::{fcntl, ioctl};
pub use copy::{copy_file_range, sendfile};
pub use demote::{demote_descriptor, demote_for_stream};
pub use dup::{dup, dup2, dup3};
pub use inherit::{pass_descriptor, receive_descriptor};
pub use io::{pread, pwrite, read, write};
pub use limits::{begin as begin_limits, getrlimit, prlimit, setrlimit};
pub use locks::{flock, lockf};
pub(crate) use mapping::map_region;
pub use mapping::{fadvise, madvise, mmap, mprotect, mremap, msync, munmap, pkey_mprotect, posix_madvise};
pub use names::{linkat, remove, renameat2, truncate, unlinkat};
pub(crate) use nv::is_elsewhere as is_interposed_elsewhere;
pub use open::{O_ATOMIC, adopt, may_be_atomic, open_meant, openat};
pub use open_plain::{Tried, try_open};
pub use policy::{Globs, MOST_TOLD_APART, Marks, Nearly};
pub use rights::{before_change as before_change_of_rights, change as change_of_rights};
pub use rings::{io_submit, io_uring};
pub use route::{ROUTED, syscall};
pub use seek::lseek;
pub use size::{fallocate, ftruncate};
pub use splice::splice;
pub use stat::{fstat, fstatat, statx};
pub use streams::{stream_closing, stream_opened, stream_opening, streams_matter};
pub use sync::{fdatasync, fsync, sync, sync_file_range, syncfs};
pub use times::{mode_was_set, owner_was_set, set_by_descriptor, set_by_path};
pub use twin::allow as allow_twins;
pub use vector::{preadv, preadv2, pwritev, pwritev2, readv, writev};

/// What a system call returns: `-4095..=-1` is a negated errno.
pub type Ret = isize;

/// A system call by name, with up to six arguments of any integer or pointer type.
macro_rules! raw {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        // The caller states in its own SAFETY comment why the arguments are sound.
        $crate::sys::syscall(libc::$number, raw!(@six $($arg as usize,)* 0, 0, 0, 0, 0, 0))
    }};
    (@six $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(, $none:literal)*) => { [$a, $b, $c, $d, $e, $f] };
}
pub(crate) use raw;

/// Held while an internal descriptor that lives for a few calls has the lowest number. A `vfork` child has numbers of
/// its own.
fn passing() -> Option<crate::sys::internal::Passing> {
    (!process::in_vfork_child()).then(crate::sys::internal::Passing::begin)
}

/// Makes a call that gives the program the lowest free number. A `vfork` child has its own numbers.
fn with_lowest(call: impl FnOnce() -> Ret) -> Ret {
    if process::in_vfork_child() { call() } else { crate::sys::internal::with_lowest(call) }
}

/// An `O_PATH` descriptor of what a path leads to, by the kernel alone; with `nofollow`, of the link itself.
///
/// # Safety
/// The path is a C string.
unsafe fn look(dirfd: i32, path: *const core::ffi::c_char, nofollow: bool) -> Option<crate::sys::InternalFd> {
    use core::ffi::CStr;
    use rustix::fs::{CWD, Mode, OFlags};
    use std::os::fd::BorrowedFd;
    let flags = OFlags::PATH | if nofollow { OFlags::NOFOLLOW } else { OFlags::empty() };
    // SAFETY: `borrow_raw` is not given -1, which is valid with an absolute path; the rest is the caller's promise.
    let (at, path) = unsafe { (if dirfd == -1 { CWD } else { BorrowedFd::borrow_raw(dirfd) }, CStr::from_ptr(path)) };
    crate::sys::openat(at, path, flags, Mode::empty()).ok()
}

/// A system call on `fd`, repeated while the number leads to a descriptor that the kernel refuses: an atomic file's
/// may for a moment (`file::twins`).
fn steadily(fd: std::os::fd::RawFd, call: impl Fn() -> Ret) -> Ret {
    let done = call();
    if done != fail(libc::EBADF)
        || !table::is_managed(fd)
        || process::in_vfork_child()
        || lock::not_reentered().is_err()
    {
        return done;
    }
    match table::get(fd) {
        Some(handle) if handle.is_ours() => handle.file().while_numbers_stay(call),
        _ => done,
    }
}

/// Makes an internal system call that returns a descriptor, even if the program has used all its numbers.
fn with_number(mut call: impl FnMut() -> Ret) -> Ret {
    let errno = |e: crate::Error| rustix::io::Errno::from_raw_os_error(e.errno());
    let made = crate::sys::with_number(|| crate::sys::check(call()).map_err(errno));
    made.map_or_else(|e| fail(e.raw_os_error()), |made| made as Ret)
}

/// An errno as a system call's result.
#[inline]
const fn fail(errno: i32) -> Ret {
    -(errno as isize)
}
