//! `famio restore`: replaces a file, and everything that a crash has left of it, by a copy.
//!
//! The copy is complete and durable before anything is changed. Then it is renamed, and only then the old file's
//! journal is removed: after a crash in between, there is a journal of a file that no longer exists. In the other
//! order, the old file would exist without a journal that it needs.

use super::backup::{Backup, copy, give, named, source};
use super::destination;
use super::kept::Kept;
use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::pools::reach::open_looked_at;
use crate::journal::{Verdict, lock};
use crate::recovery::examine::{Examined, examine};
use crate::recovery::found_file::FoundFile;
use crate::recovery::open::{Known, in_session, is_ordinary, recover};
use crate::recovery::owning::owner_lock_given;
use crate::recovery::search::leases::holder;
use crate::recovery::search::openers;
use crate::recovery::search::openers::{Who, busy};
use crate::recovery::search::paths::{open_own, owner};
use crate::recovery::{Options, Owner, Silent, Use};
use crate::settings::Settings;
use crate::sys::InternalFd;
use rustix::fs::{OFlags, Stat, fstat};
use std::os::fd::AsFd;
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
    let like = old.as_ref().map_or(stat, |old| old.stat);
    give(&new, (like.st_uid, like.st_gid, like.st_mode)).map_err(named(path))?;
    if let Some(old) = &old {
        // The copy may have taken long.
        openers::refuse(old.file.as_fd(), Who::Anybody).map_err(named(path))?;
    }
    new.publish(path, old.is_some()).map_err(named(path))?;
    let unread_journal = match old {
        Some(old) => old.end(settings).map_err(|e| {
            e.context(format_args!("{}: restored, but the journal of the old file is still there", path.display()))
        })?,
        None => None,
    };
    crate::index::sweep();
    Ok(Restored { file: to, backup, unread_journal })
}

/// The file to replace: no other process has it open, and none can start to use it as an atomic file.
struct Old {
    file: InternalFd,
    stat: Stat,
    owner_lock: Option<OwnerLock>,
    /// `None` for an ordinary file.
    examined: Option<Examined>,
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
        let is_ordinary = is_ordinary(file.as_fd(), Known::default(), settings)?;
        let owner_lock = match owner_lock_given(file.as_fd(), FoundFile::default(), settings, true, !is_ordinary) {
            Err(e) if e.errno() == libc::EBUSY => {
                return Err(match owner(file.as_fd(), settings).and_then(Owner::pid_here) {
                    Some(process) => busy(Some(process)),
                    None => Error::with(libc::EBUSY, format!("{e}; stop that first")),
                });
            }
            owner_lock => owner_lock?,
        };
        let mut old = Self { file, stat, owner_lock, examined: None };
        openers::refuse(old.file.as_fd(), Who::Anybody)?;
        if !is_ordinary {
            let examined = examine(old.file.as_fd(), old.owner_lock.as_ref(), settings, true, FoundFile::default())?;
            if examined.journal.as_ref().is_some_and(|(journal, _)| lock::is_in_session(journal)) {
                return Err(in_session());
            }
            old.examined = Some(examined);
        }
        Ok(old)
    }

    /// The old file is gone: removes its journal. Returns the path of a journal that could not be read. If the file has
    /// another name, perhaps in another folder, where its journal would not be found, it is recovered.
    fn end(mut self, settings: &Settings) -> Result<Option<PathBuf>> {
        let Some(examined) = self.examined.take() else { return Ok(None) };
        let has_a_name = fstat(&self.file)?.st_nlink > 0;
        let is_kept = self.owner_lock.as_ref().is_some_and(OwnerLock::may_keep);
        // What is to be kept takes a session, and a conflict a decision.
        let stays = has_a_name && (is_kept || matches!(examined.verdict, Verdict::Conflict(_)));
        if examined.journal.is_none() || stays {
            return Ok(None);
        }
        let on_conflict = if has_a_name { Use::Refuse } else { Use::File };
        let options = Options { on_conflict, ..Options::default() };
        recover(self.file.as_fd(), &examined, self.owner_lock.as_ref(), settings, options, &Silent)?;
        if let Some(owner_lock) = self.owner_lock.take() {
            let control = owner_lock.control().clone();
            if owner_lock.may_keep() {
                control.drop_epoch();
            }
            owner_lock.release();
            control.remove_if_unused();
        }
        let is_unread = examined.header.is_none() && matches!(examined.verdict, Verdict::Conflict(_));
        Ok(is_unread.then_some(examined.journal_path))
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        if let Some(owner_lock) = self.owner_lock.take() {
            let control = owner_lock.control().clone();
            owner_lock.leave();
            control.remove_if_unused();
        }
    }
}
