//! Examines a file: its mark, its journal, and the verdict that follows.

use super::found_file::{FoundFile, pool_of};
use super::{outsider, same_identity};
use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::header::{first_bytes, is_blank};
use crate::journal::{
    BootClock, BootId, Facts, GrowingMark, Header, Identity, Journal, Mark, Marked, Pool, Stamp, Verdict, beside_path,
    journal_name, mark, path_of, verdict,
};
use crate::recovery::formats::growing;
use crate::settings::Settings;
use crate::sys::InternalFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A file, with its mark and journal.
pub(super) struct Examined {
    pub identity: Identity,
    /// Whether the file has a mark, even a damaged one.
    pub is_marked: bool,
    /// The mark, if it says that the session was closing.
    pub closing: Option<Mark>,
    /// The mark of a growing file.
    pub growing: Option<GrowingMark>,
    /// The journal under the file's name, if there is one, and its length.
    pub journal: Option<(InternalFd, u64)>,
    /// The pool where the journal is, or would be.
    pub pool: Option<Pool>,
    /// The journal's header, if valid.
    pub header: Option<Header>,
    pub file_path: PathBuf,
    pub journal_path: PathBuf,
    /// The journal is not to be touched, since it may be another file's: the file is a copy, with its file system.
    pub is_of_another: bool,
    pub verdict: Verdict,
}

impl Examined {
    /// Whether the file is marked as having a journal, and has none.
    pub fn is_without_journal(&self) -> bool {
        self.is_marked
            && self.growing.is_none()
            && self.journal.is_none()
            && matches!(self.verdict, Verdict::Conflict(_))
    }

    /// Whether the journal has a valid header, of this file.
    pub fn has_own_journal(&self) -> bool {
        self.journal.is_some() && self.header.as_ref().is_some_and(|header| header.identity == self.identity)
    }

    /// The error for a journal that is pending and cannot be read. `undone`: what therefore was not done.
    pub fn unreadable(&self, undone: &str, why: &Error) -> Error {
        let (file, journal) = (self.file_path.display(), self.journal_path.display());
        Error::with(
            why.errno(),
            format!(
                "{undone}, since its journal {journal} can't be read: {why}; both are kept: famio check {file} says more; famio recover --use=file {file} keeps the file as it is, without what only the journal has; or see famio restore"
            ),
        )
    }

    /// The journal's name in its pool.
    pub fn name(&self) -> String {
        journal_name(&self.identity)
    }
}

/// Examines a file; changes nothing. The caller owns the file, unless there is no control file to own it by.
/// `writable`: opens the journal for recovery.
pub(super) fn examine(
    file: BorrowedFd<'_>,
    owner_lock: Option<&OwnerLock>,
    settings: &Settings,
    writable: bool,
    given: FoundFile<'_>,
) -> Result<Examined> {
    let (mark, growing, damaged) = match mark::get_any(file) {
        Err(e) if e.errno() == libc::EIO => (None, None, Some(e)),
        mark => match mark? {
            Some(Marked::Growing(growing)) => (None, Some(growing), None),
            mark => (mark.and_then(Marked::journal), None, None),
        },
    };
    let is_marked = mark.is_some() || growing.is_some() || damaged.is_some();
    let identity = Identity::of_fd(file)?;
    let name = journal_name(&identity);
    let file_path = given.path.map_or_else(|| path_of(file), |path| Ok(path.to_path_buf()))?;
    let pool = match given.pool(file, &file_path, mark.as_ref(), settings) {
        // The pool is gone, but the mark says that there was one.
        Err(e) if mark.is_some() && e.errno() == libc::ENOENT => None,
        pool => pool?,
    };
    let journal_path = match (&pool, pool_of(mark.as_ref(), settings)) {
        (Some(pool), _) => pool.path_of(&name),
        (None, Some(pool)) => pool.join(&name),
        (None, None) => beside_path(&file_path).join(&name),
    };
    let mut untrusted = None;
    let opened = match &pool {
        Some(pool) if writable => pool.open(&name, Some(file)),
        Some(pool) => pool.open_read_only(&name, Some(file)),
        None => Ok(None),
    };
    let journal = match (opened, &pool) {
        // The file's users have set its mark: they had this journal, and have got other permissions since.
        (Err(e), Some(pool)) if mark.is_some() && !pool.is_trusted(&name, file) => {
            untrusted = Some(e);
            // One that cannot even be read may have anything in it.
            pool.open_read_only(&name, None).unwrap_or(None)
        }
        (opened, _) => opened?,
    };
    let (stamp, mut journal_stamp) = (Stamp::of(file)?, Stamp::default());
    let journal = match journal {
        Some(fd) => {
            journal_stamp = Stamp::of(fd.as_fd())?;
            Some((fd, journal_stamp.size))
        }
        None => None,
    };
    let (mut header, mut unreadable, mut blank) = (None, None, false);
    if let Some((fd, _)) = &journal {
        let (bytes, length) = first_bytes(fd.as_fd())?;
        match Header::read(&bytes[..length]) {
            Ok((found, _)) => header = Some(found),
            Err(_) if is_blank(&bytes[..length]) => blank = true,
            Err(e) => unreadable = Some(e),
        }
    }
    let found = match (&journal, &header, &unreadable) {
        (None, ..) => Journal::Absent,
        (Some(_), Some(header), _) => Journal::Valid(header),
        (Some(_), None, Some(error)) => Journal::Unreadable(error),
        (Some(_), None, None) => {
            debug_assert!(blank);
            Journal::Blank
        }
    };
    let mut decided = verdict(&Facts {
        file_path: &file_path,
        journal_path: &journal_path,
        mark: mark.as_ref(),
        journal: found,
        identity: &identity,
        stamp,
        journal_stamp,
        boot_id: BootId::current()?,
        boot_clock: BootClock::read(),
    });
    if let Some(growing) = &growing {
        let is_pending = |header: &Header| header.state.is_pending(false);
        let conflict = growing::conflict(growing, &identity, &stamp, &file_path)?;
        decided = match (conflict, &header) {
            (Some(text), _) => Verdict::Conflict(text),
            (None, Some(header)) if is_pending(header) => {
                stopped("a journal is pending, and the file's mark says that it has none", &file_path, &journal_path)
            }
            (None, _) => Verdict::Growing,
        };
    }
    if let Some(e) = untrusted {
        // That it has ended is believed only of the very journal that the file's users had.
        let is_the_same = is_of_mark(header.as_ref(), mark.as_ref()) && pool.as_ref().is_some_and(Pool::is_protected);
        if decided != Verdict::Leftover || !is_the_same {
            decided = Verdict::Conflict(format!(
                "{e}; both are kept. famio recover --use=file goes on without it, at the cost of what it has alone. To use it, give it to the file's owner (chown) or give back the permissions that the file had"
            ));
        }
        header = None; // nothing of it is used
    }
    if let Some(what) = damaged {
        decided = stopped(&what, &file_path, &journal_path);
    }
    if decided == Verdict::Recover
        && let Some(owner_lock) = owner_lock
    {
        match outsider::look(file, owner_lock)? {
            outsider::Found::Unchanged => {}
            outsider::Found::Changed(what) => decided = stopped(what, &file_path, &journal_path),
            outsider::Found::ChangedExact => decided = Verdict::Leftover,
        }
    }
    let mut is_of_another = false;
    if decided != Verdict::Nothing
        && let (Some((journal, _)), Some(header)) = (&journal, &header)
        && header.identity == identity
        && same_identity::is_of_another(file, journal.as_fd(), &identity, &header.path_hint)
    {
        is_of_another = true;
        decided = of_another(&file_path, &journal_path, &header.path_hint);
    }
    Ok(Examined {
        identity,
        is_marked,
        closing: mark.filter(|mark| mark.is_closing),
        growing,
        journal,
        pool,
        header,
        file_path,
        journal_path,
        is_of_another,
        verdict: decided,
    })
}

/// Whether the mark is about this very journal.
fn is_of_mark(header: Option<&Header>, mark: Option<&Mark>) -> bool {
    header.zip(mark).is_some_and(|(header, mark)| header.journal_id == mark.journal_id)
}

fn stopped(what: impl core::fmt::Display, file: &Path, journal: &Path) -> Verdict {
    let (file, journal) = (file.display(), journal.display());
    Verdict::Conflict(format!(
        "{what} (file {file}, journal {journal}); both are kept: famio recover --use=journal {file} or --use=file {file} decides"
    ))
}

fn of_another(file: &Path, journal: &Path, other: &Path) -> Verdict {
    let (file, journal, other) = (file.display(), journal.display(), other.display());
    Verdict::Conflict(format!(
        "{file} and {other} are on two file systems with the same UUID, of which one is a copy, and journal {journal} belongs to one of them; unmount the file system that it does not belong to; or famio recover --use=file {file} takes that file as it is, and keeps the journal"
    ))
}

/// The error that reports a conflict to a process that opens the file.
pub(super) fn conflict(text: &str) -> Error {
    crate::sys::events::count_conflict();
    Error::with(libc::EIO, text)
}
