//! Files in `/dev/shm` that the processes of one atomic file share: the shadow and the hand-over image. Their names
//! cannot be guessed, they are always newly made, and only users who may write the atomic file can open them.

use crate::error::Result;
use crate::file::Descriptors;
use crate::index::{Membership, sign};
use crate::journal::{check_shared, give_to_writers_of};
use crate::sys::{InternalFd, internal};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::AsFd;

const FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Makes an empty one for the file of `fds`. `EEXIST`: there is one.
pub(in crate::file) fn make(fds: &Descriptors, membership: &Membership, path: &str) -> Result<InternalFd> {
    let flags = FLAGS | OFlags::CREATE | OFlags::EXCL;
    let made = internal::open(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    sign(made.as_fd(), membership);
    let given = fds.with(false, |file| give_to_writers_of(file, made.as_fd()));
    if given.is_err() {
        let _ = rustix::fs::unlinkat(CWD, path, AtFlags::empty());
    }
    given.map(|()| made)
}

/// Opens one that another process has made. `EACCES`: that process may not write the file.
pub(in crate::file) fn open(fds: &Descriptors, path: &str) -> Result<InternalFd> {
    let there = internal::open(CWD, path, FLAGS, Mode::empty())?;
    fds.with(false, |file| check_shared(there.as_fd(), file, None))?;
    Ok(there)
}
