//! `famio forget`: shows and removes a journal whose file was moved or deleted. Never one that a file may still need.

use super::find::Place;
use super::survey::epoch_of;
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::pools::pool::{Pool, is_beside_name, is_journal_name};
use crate::journal::pools::reach::{is_regular, look, look_at, open_looked_at};
use crate::journal::{Header, Marked, State, control, lock, mark};
use crate::sys::openat;
use rustix::fs::{CWD, Mode, OFlags, fstat};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A journal without its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Where its file was last seen.
    pub file: PathBuf,
    /// `in place`, `records` or `tiered`.
    pub kind: &'static str,
    /// Its last commit.
    pub epoch: u64,
    /// Bytes of the journal's file.
    pub size: u64,
    /// Time of its last change, in seconds since 1970.
    pub changed: i64,
    /// It holds bytes that its file may lack.
    pub is_pending: bool,
    /// The file was certainly deleted. Only root can know; for other users it may also have been moved.
    pub is_deleted: bool,
}

/// Examines a journal by its own path, and removes it if `remove`.
///
/// # Errors
/// `EINVAL`: not a journal's path. `ENOENT`. `EEXIST`: its file exists. `EBUSY`: a process uses it. Others: it cannot
/// be read or removed.
pub fn forget(journal: &Path, remove: bool) -> Result<Orphan> {
    look_at(journal)?; // a mistyped name is reported as missing, whatever it looks like
    let (place, name) = place_of(journal)?;
    let name = name.as_str();
    let (header, fd) = place.header(name)?;
    if lock::is_in_session(&fd) || is_owned(&place, name) {
        return Err(Error::with(libc::EBUSY, "a process has its file in use"));
    }
    let there = |path: &Path| {
        let path = path.display();
        Error::with(
            libc::EEXIST,
            format!("its file is {path}: famio recover brings that to its last SYNC, and removes the journal"),
        )
    };
    if let Ok(found) = place.file_of(name) {
        return Err(there(&found.path));
    }
    // If the file was moved, its mark decides: `famio recover --use=file` may have accepted the file as it is.
    if let Some(path) = header.identity.path_of(fd.as_fd())
        && is_named_by(&path, &header)
    {
        return Err(match place.pool.is_beside() {
            true => moved(&path, &header.path_hint),
            false => there(&path),
        });
    }
    let stat = fstat(&fd)?;
    let orphan = Orphan {
        kind: header.kind.name(),
        epoch: epoch_of(&place, name, &header, &fd, stat.st_size as u64),
        size: stat.st_size as u64,
        changed: stat.st_mtime as i64,
        is_pending: header.state != State::Clean,
        is_deleted: header.identity.is_gone(fd.as_fd()),
        file: header.path_hint,
    };
    if remove {
        place.forget(name)?;
        crate::index::sweep();
    }
    Ok(orphan)
}

/// The error for a file that was moved away from its journal, which can be found only from the old place.
fn moved(now: &Path, before: &Path) -> Error {
    let (now, before) = (now.display(), before.display());
    Error::with(
        libc::EEXIST,
        format!(
            "its file was moved to {now} and needs it: move it back to {before} and let famio recover bring it to its last SYNC; or \
             famio recover --use=file {now} keeps it as it is, and the journal can go then"
        ),
    )
}

/// Whether a file's mark names this journal; true if that is unknown.
fn is_named_by(path: &Path, header: &Header) -> bool {
    let mark = look_at(path).and_then(|file| mark::of_looked_at(file.as_fd()));
    match mark {
        Ok(mark) => mark.and_then(Marked::journal).is_some_and(|mark| mark.journal_id == header.journal_id),
        Err(_) => true,
    }
}

/// Whether a process owns the journal's file.
fn is_owned(place: &Place, name: &str) -> bool {
    let looked = look(place.pool.folder(), control::name_beside(name).as_bytes());
    let looked = looked.ok().filter(|looked| fstat(looked).is_ok_and(|stat| is_regular(&stat)));
    let opened = looked.and_then(|looked| open_looked_at(looked.as_fd(), OFlags::RDWR).ok());
    opened.map(Control::new).is_some_and(|control| control.is_owned() || control.has_unowned_session())
}

/// The pool and the name of a journal, from its path.
pub(in crate::recovery) fn place_of(journal: &Path) -> Result<(Place, String)> {
    let not_one = || Error::with(libc::EINVAL, "not a journal: give the path that famio status shows under JOURNAL");
    let name =
        journal.file_name().and_then(|name| name.to_str()).filter(|name| is_journal_name(name)).ok_or_else(not_one)?;
    let folder_path = journal.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder_path = std::path::absolute(folder_path).map_err(|_| not_one())?;
    let open = |path: &Path| {
        let flags = OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::from(e).context(path.display()))
    };
    let parent = match folder_path.file_name().is_some_and(is_beside_name) {
        true => folder_path.parent().map(open).transpose()?,
        false => None,
    };
    let pool = Pool::of_folder(open(&folder_path)?, folder_path.clone(), parent);
    Ok((Place::new(pool), name.to_owned()))
}
