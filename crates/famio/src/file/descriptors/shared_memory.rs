//! Files in `/dev/shm` that processes share of one atomic file: the shadow, and the open epoch on its way. Their names can't be
//! guessed, they are never one that somebody has made before, and only those who may write the atomic file can open them.

use crate::error::Result;
use crate::file::Descriptors;
use crate::index::{Door, sign};
use crate::journal::{check_shared, give_to_writers_of};
use crate::sys::{InternalFd, internal};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::AsFd;

const FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Makes an empty one for the file that `fds` lead to. `EEXIST`: there is one.
pub(in crate::file) fn make(fds: &Descriptors, door: &Door, path: &str) -> Result<InternalFd> {
    let flags = FLAGS | OFlags::CREATE | OFlags::EXCL;
    let made = internal::open(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    sign(made.as_fd(), door);
    let given = fds.with(false, |file| give_to_writers_of(file, made.as_fd()));
    if given.is_err() {
        let _ = rustix::fs::unlinkat(CWD, path, AtFlags::empty());
    }
    given.map(|()| made)
}

/// Opens one that another process has made. `EACCES`: it is not from one that may write the file.
pub(in crate::file) fn open(fds: &Descriptors, path: &str) -> Result<InternalFd> {
    let there = internal::open(CWD, path, FLAGS, Mode::empty())?;
    fds.with(false, |file| check_shared(there.as_fd(), file))?;
    Ok(there)
}
