//! What a copy would replace, which is looked at first: a mistyped name is not to cost anything.

use super::openers::{self, Who};
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::reach::{is_regular, look_at, open_looked_at};
use crate::journal::{control, mark, path_of};
use crate::settings::Settings;
use crate::sys::{InternalFd, identity};
use rustix::fs::{FileType, OFlags, fstat, lstat};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Where a copy goes to.
pub(super) struct Destination {
    /// After the symbolic links.
    pub path: PathBuf,
    /// The file that has the name now, only looked at.
    pub there: Option<InternalFd>,
}

/// Looks at a path. A symbolic link stays, and the copy takes the place of what it leads to.
///
/// # Errors
/// `EINVAL`: something other than a regular file is there.
pub(super) fn find(to: &Path) -> Result<Destination> {
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

/// By whatever names.
pub(super) fn refuse_same(from: BorrowedFd<'_>, from_path: &Path, to: BorrowedFd<'_>, to_path: &Path) -> Result<()> {
    if identity(from)? != identity(to)? {
        return Ok(());
    }
    let (from, to) = (from_path.display(), to_path.display());
    Err(Error::with(libc::EINVAL, format!("{from} and {to} are the same file; nothing was done")))
}

/// A copy takes the place of a copy, never that of an atomic file, nor of one that somebody writes.
pub(super) fn refuse_atomic(there: BorrowedFd<'_>, settings: &Settings) -> Result<()> {
    let busy = |what| Err(Error::with(libc::EBUSY, what));
    let found = control::find(there, settings.pool.as_deref());
    if found.is_ok_and(|found| found.map(Control::new).is_some_and(|c| c.is_claimed() || c.has_unowned_session())) {
        return busy("a process uses it as an atomic file; give another name");
    }
    let is_marked = match mark::of_looked_at(there) {
        Ok(mark) => mark.is_some(),
        Err(e) => e.errno() == libc::EIO, // a damaged one
    };
    if is_marked {
        return busy("an atomic file that is in use, or was left by a crash; give another name, or see famio restore");
    }
    match open_looked_at(there, OFlags::RDONLY) {
        Ok(file) => openers::refuse(file.as_fd(), Who::Writers),
        Err(e) if e.errno() == libc::EAGAIN => busy("a process has it open with a lease; give another name"),
        Err(_) => Ok(()), // not to be read by us, so that nothing is known
    }
}
