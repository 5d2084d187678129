//! The open for writing of a file that is ordinary in this process. Another process may have a session of it, which
//! would overwrite what this one writes: it sees the note that a demoted file gets, but only when it begins a session.

use crate::posix::call::lock::not_reentered;
use crate::posix::call::look::stat_of;
use crate::posix::descriptors::description::KEPT;
use crate::posix::descriptors::{inherit, table};
use crate::posix::life::process;
use crate::posix::runtime::say::say;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::{ordinary, path_text};
use crate::posix::{Ret, fail};
use std::os::fd::RawFd;

const IN_SESSION: &str = "open for writing refused (EBUSY): this process uses it as an ordinary file, and another process has changed it as an atomic file, or was killed then; close it there, or run famio recover";

/// After an `open` with `flags` that returned `fd`, or an error: notes that this process writes the file, or closes
/// the descriptor again and returns `EBUSY`.
pub(super) fn opened(fd: Ret, flags: i32) -> Ret {
    if fd < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY || !ordinary::any() || table::is_managed(fd as RawFd) {
        return fd;
    }
    match in_vfork_child() || not_reentered().is_err() {
        true => fd,
        false => note_writer(fd as RawFd, flags),
    }
}

#[cold]
fn note_writer(fd: RawFd, flags: i32) -> Ret {
    // SAFETY: an empty path is the descriptor itself.
    let is_ordinary = || stat_of(fd).is_ok_and(|stat| unsafe { ordinary::is(fd, c"".as_ptr(), &stat, true) });
    let Some(config) = process::config().filter(|_| is_ordinary()) else { return fd as Ret };
    let access = flags & libc::O_ACCMODE;
    let path = path_text::path_of(fd, c"?");
    match inherit::install_demoted(config, fd, path.clone(), access | flags & KEPT, access) {
        Ok(file) if !file.may_be_written_demoted(fd) => {
            crate::posix::close(fd);
            say(&path, IN_SESSION);
            fail(libc::EBUSY)
        }
        // It cannot be noted; it is written like any ordinary file.
        _ => fd as Ret,
    }
}
