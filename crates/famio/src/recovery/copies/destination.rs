//! Examines what a copy would replace, so that a mistyped name does no harm.

use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::pools::reach::{is_regular, look_at, open_looked_at};
use crate::journal::{control, mark, path_of};
use crate::recovery::search::openers;
use crate::recovery::search::openers::Who;
use crate::settings::Settings;
use crate::sys::{InternalFd, identity};
use rustix::fs::{FileType, OFlags, fstat, lstat};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The target of a copy.
pub(in crate::recovery) struct Destination {
    /// With symbolic links resolved.
    pub path: PathBuf,
    /// The file that has the name now, as an `O_PATH` descriptor.
    pub there: Option<InternalFd>,
}

/// Examines a path. If it is a symbolic link, the link stays, and the copy replaces its target.
///
/// # Errors
/// `EINVAL`: there is something other than a regular file.
pub(in crate::recovery) fn find(to: &Path) -> Result<Destination> {
    let Ok(stat) = lstat(to) else { return Ok(Destination { path: to.to_path_buf(), there: None }) };
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let there = look_at(to).map_err(|e| match e.errno() {
        libc::ENOENT => refused(to, "a symbolic link to what is not there; give the name that it leads to"),
        _ => e,
    })?;
    if !is_regular(&fstat(&there)?) {
        return Err(refused(to, "not a regular file, and not replaced; give the name of a file"));
    }
    let path = if is_link { path_of(there.as_fd())? } else { to.to_path_buf() };
    Ok(Destination { path, there: Some(there) })
}

fn refused(path: &Path, what: &str) -> Error {
    Error::with(libc::EINVAL, format!("{}: {what}", path.display()))
}

/// An error if both are the same file, under whatever names.
pub(in crate::recovery) fn refuse_same(
    from: BorrowedFd<'_>,
    from_path: &Path,
    to: BorrowedFd<'_>,
    to_path: &Path,
) -> Result<()> {
    if identity(from)? != identity(to)? {
        return Ok(());
    }
    let (from, to) = (from_path.display(), to_path.display());
    Err(Error::with(libc::EINVAL, format!("{from} and {to} are the same file; nothing was done")))
}

/// An error if the copy would replace an atomic file, or a file that a process is writing.
pub(in crate::recovery) fn refuse_atomic(there: BorrowedFd<'_>, settings: &Settings) -> Result<()> {
    let busy = |what| Err(Error::with(libc::EBUSY, what));
    let found = control::find(there, settings.pool.as_deref());
    if found.is_ok_and(|found| found.map(Control::new).is_some_and(|c| c.is_owned() || c.has_unowned_session())) {
        return busy("a process uses it as an atomic file; give another name");
    }
    let is_marked = match mark::of_looked_at(there) {
        Ok(mark) => mark.is_some(),
        Err(e) => e.errno() == libc::EIO, // a damaged mark
    };
    if is_marked {
        return busy("an atomic file that is in use, or was left by a crash; give another name, or see famio restore");
    }
    match open_looked_at(there, OFlags::RDONLY) {
        Ok(file) => openers::refuse(file.as_fd(), Who::Writers),
        Err(e) if e.errno() == libc::EAGAIN => busy("a process has it open with a lease; give another name"),
        Err(_) => Ok(()), // this process may not read it, so nothing is known
    }
}
