//! Examines what a copy would replace, so that a mistyped name does no harm.

use super::replace::{Owned, refuse_late, replace};
use crate::beside::is_beside_name;
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::pools::pool::is_journal_name;
use crate::journal::pools::reach::{is_regular, look_at, open_looked_at};
use crate::journal::{control, mark, path_of};
use crate::recovery::search::in_use::is_control_name;
use crate::recovery::search::openers;
use crate::recovery::search::openers::Who;
use crate::recovery::unfinished::Unfinished;
use crate::settings::Settings;
use crate::sys::{InternalFd, identity};
use rustix::fs::{FileType, OFlags, fstat, lstat};
use std::ffi::OsStr;
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
/// `EINVAL`: there is something other than a regular file, or a file of a pool.
pub(in crate::recovery) fn find(to: &Path) -> Result<Destination> {
    let Ok(stat) = lstat(to) else {
        refuse_in_pool(to, to)?;
        return Ok(Destination { path: to.to_path_buf(), there: None });
    };
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let there = look_at(to).map_err(|e| match e.errno() {
        libc::ENOENT => refused(to, "a symbolic link to what is not there; give the name that it leads to"),
        _ => e,
    })?;
    if !is_regular(&fstat(&there)?) {
        return Err(refused(to, "not a regular file, and not replaced; give the name of a file"));
    }
    let resolved = path_of(there.as_fd());
    refuse_in_pool(to, resolved.as_deref().unwrap_or(to))?;
    let path = if is_link { resolved? } else { to.to_path_buf() };
    Ok(Destination { path, there: Some(there) })
}

/// An error if the destination is a journal or a control file, which a file may need after a crash, or lies beside them.
/// `resolved`: its path, as far as known.
fn refuse_in_pool(to: &Path, resolved: &Path) -> Result<()> {
    let name = resolved.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_beside = resolved.parent().and_then(Path::file_name).is_some_and(is_beside_name);
    if is_beside || is_journal_name(name) || is_control_name(name) {
        return Err(refused(to, "lies among the journals of atomic files, and is not replaced; give another name"));
    }
    Ok(())
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
    let found = control::find(there, settings.pool.as_deref());
    if found.is_ok_and(|found| found.map(Control::new).is_some_and(|c| c.is_owned() || c.has_unowned_session())) {
        return busy(IN_USE);
    }
    refuse_marked(there)?;
    readable(there)?.map_or(Ok(()), |file| openers::refuse(file.as_fd(), Who::Writers))
}

/// Replaces that file by a copy.
///
/// # Errors
/// `EBUSY`: as [`refuse_atomic`]; or a process has opened the old file for writing just before it was replaced, as the
/// text says then.
pub(in crate::recovery) fn replace_ordinary(
    new: Unfinished,
    there: BorrowedFd<'_>,
    path: &Path,
    settings: &Settings,
) -> Result<()> {
    let readable = readable(there)?;
    let file = readable.as_ref().map_or(there, AsFd::as_fd);
    let Ok(owned) = Owned::take_if_possible(file, settings) else { return busy(IN_USE) };
    refuse_marked(there)?;
    replace(new, file, path, Who::Writers)?;
    drop(owned);
    refuse_late(file, Who::Writers, "replaced")
}

const IN_USE: &str = "a process uses it as an atomic file; give another name";

fn busy<T>(what: &str) -> Result<T> {
    Err(Error::with(libc::EBUSY, what))
}

fn refuse_marked(there: BorrowedFd<'_>) -> Result<()> {
    let is_marked = match mark::of_looked_at(there) {
        Ok(mark) => mark.is_some(),
        Err(e) => e.errno() == libc::EIO, // a damaged mark
    };
    if is_marked {
        return busy("an atomic file that is in use, or was left by a crash; give another name, or see famio restore");
    }
    Ok(())
}

/// The file, open for reading. `None`: this process may not read it, so less is known.
fn readable(there: BorrowedFd<'_>) -> Result<Option<InternalFd>> {
    match open_looked_at(there, OFlags::RDONLY) {
        Err(e) if e.errno() == libc::EAGAIN => busy("a process has it open with a lease; give another name"),
        file => Ok(file.ok()),
    }
}
