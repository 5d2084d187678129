//! `famio restore`: replaces a file, and everything that a crash has left of it, by a copy.
//!
//! The copy is complete and durable before anything is changed. Then it is renamed, and only then the old file's
//! journal is removed: after a crash in between, there is a journal of a file that no longer exists. In the other
//! order, the old file would exist without a journal that it needs.

use super::backup::{Backup, copy, give, named, source};
use super::destination;
use super::kept::Kept;
use super::replace::{Owned, refuse_late, replace};
use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::pools::reach::open_looked_at;
use crate::journal::{Verdict, lock};
use crate::recovery::examine::{Examined, examine};
use crate::recovery::found_file::FoundFile;
use crate::recovery::open::{Known, in_session, is_ordinary, recover};
use crate::recovery::search::leases::holder;
use crate::recovery::search::openers;
use crate::recovery::search::openers::{Who, busy};
use crate::recovery::search::paths::{open_own, owner};
use crate::recovery::unfinished::Unfinished;
use crate::recovery::{Options, Owner, Silent, Use};
use crate::settings::Settings;
use crate::sys::InternalFd;
use rustix::fs::{OFlags, Stat, fstat};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The file, with the symbolic links of its path resolved.
    pub file: PathBuf,
    /// The copy that replaced it.
    pub backup: Backup,
    /// A journal of the old file that could not be read, and was removed with it.
    pub unread_journal: Option<PathBuf>,
}

/// See [`restore`](fn@crate::recovery::restore). `kept`: as for a [`backup`](fn@super::backup::backup).
pub(crate) fn restore(
    from: &Path,
    to: &Path,
    settings: &Settings,
    waits: &dyn Fn(Option<u32>),
    kept: &Kept,
) -> Result<Restored> {
    crate::sys::shm::choose(settings.shm.as_deref())?;
    let source = source(from)?;
    let destination::Destination { path: to, there } = destination::find(to)?;
    let path = &to;
    let old = match there {
        Some(there) => {
            destination::refuse_same(source.as_fd(), from, there.as_fd(), path)?;
            Some(Old::open(there, settings).map_err(named(path))?)
        }
        None => None,
    };
    let (new, stat, backup) = copy(from, path, settings, waits, kept)?;
    let (like, stat) = old.as_ref().map_or((source.as_fd(), &stat), |old| (old.file.as_fd(), &old.stat));
    give(&new, like, stat).map_err(named(path))?;
    let unread_journal = match old {
        Some(old) => old.end(new, path, settings)?,
        None => new.publish(path).map(|()| None).map_err(named(path))?,
    };
    crate::index::sweep();
    Ok(Restored { file: to, backup, unread_journal })
}

/// The file to replace.
struct Old {
    file: InternalFd,
    stat: Stat,
    /// `None` for an ordinary file: a program that begins to use it during the copy is not hindered.
    atomic: Option<(Owned, Examined)>,
}

impl Old {
    fn open(looked: InternalFd, settings: &Settings) -> Result<Self> {
        let stat = fstat(&looked)?;
        let access = OFlags::RDWR;
        let opened = open_looked_at(looked.as_fd(), access);
        let file = match opened.or_else(|e| open_own(looked.as_fd(), access, e)) {
            Err(e) if e.errno() == libc::EAGAIN => return Err(busy(holder(stat.st_dev, stat.st_ino))),
            file => file?,
        };
        drop(looked); // before Linux 5.3 it prevents a lease
        if is_ordinary(file.as_fd(), Known::default(), settings)? {
            drop(Owned::take(file.as_fd(), settings, false).map_err(|e| name_owner(e, file.as_fd(), settings))?);
            openers::refuse(file.as_fd(), Who::Anybody)?;
            return Ok(Self { file, stat, atomic: None });
        }
        let owned = Owned::take(file.as_fd(), settings, true).map_err(|e| name_owner(e, file.as_fd(), settings))?;
        openers::refuse(file.as_fd(), Who::Anybody)?;
        let examined = examine(file.as_fd(), owned.lock(), settings, true, FoundFile::default())?;
        if examined.journal.as_ref().is_some_and(|(journal, _)| lock::is_in_session(journal)) {
            return Err(in_session());
        }
        Ok(Self { file, stat, atomic: Some((owned, examined)) })
    }

    /// Replaces it by `new`, and removes its journal. Returns the path of a journal that could not be read.
    fn end(self, new: Unfinished, path: &Path, settings: &Settings) -> Result<Option<PathBuf>> {
        let file = self.file.as_fd();
        let (owned, examined) = match self.atomic {
            Some((owned, examined)) => (owned, Some(examined)),
            None => (own_ordinary(file, settings).map_err(named(path))?, None),
        };
        replace(new, file, path, Who::Anybody).map_err(named(path))?;
        let unread = end_journal(file, owned, examined, settings).map_err(|e| {
            e.context(format_args!("{}: restored, but the journal of the old file is still there", path.display()))
        })?;
        refuse_late(file, Who::Anybody, "restored").map_err(named(path))?;
        Ok(unread)
    }
}

/// After the copy, which may have taken long.
fn own_ordinary(file: BorrowedFd<'_>, settings: &Settings) -> Result<Owned> {
    let owned = Owned::take_if_possible(file, settings).map_err(|e| name_owner(e, file, settings))?;
    if !is_ordinary(file, Known::default(), settings)? {
        return Err(Error::with(libc::EBUSY, "a process has used it as an atomic file meanwhile; nothing was done"));
    }
    Ok(owned)
}

/// Names the owner in the error of a caller that could not get the owner lock.
fn name_owner(error: Error, file: BorrowedFd<'_>, settings: &Settings) -> Error {
    if error.errno() != libc::EBUSY {
        return error;
    }
    match owner(file, settings).and_then(Owner::pid_here) {
        Some(process) => busy(Some(process)),
        None => Error::with(libc::EBUSY, format!("{error}; stop that first")),
    }
}

/// The old file is gone: removes its journal. If it has another name, perhaps in another folder, where its journal would
/// not be found, it is recovered. Returns the path of a journal that could not be read.
fn end_journal(
    file: BorrowedFd<'_>,
    owned: Owned,
    examined: Option<Examined>,
    settings: &Settings,
) -> Result<Option<PathBuf>> {
    let Some(examined) = examined else { return Ok(None) };
    let has_a_name = fstat(file)?.st_nlink > 0;
    let is_kept = owned.lock().is_some_and(OwnerLock::may_keep);
    // What is to be kept takes a session, and a conflict a decision.
    let stays = has_a_name && (is_kept || matches!(examined.verdict, Verdict::Conflict(_)));
    if examined.journal.is_none() || stays {
        return Ok(None);
    }
    let on_conflict = if has_a_name { Use::Refuse } else { Use::Dropped };
    let options = Options { on_conflict, ..Options::default() };
    recover(file, &examined, owned.lock(), settings, options, &Silent)?;
    owned.end();
    let is_unread = examined.header.is_none() && matches!(examined.verdict, Verdict::Conflict(_));
    Ok(is_unread.then_some(examined.journal_path))
}
