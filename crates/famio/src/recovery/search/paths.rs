//! `famio recover PATH`: a file, a pool, or everything below a folder.

use super::find::{Located, Place};
use super::seen::Seen;
use super::seen::open_unless_held;
pub(in crate::recovery) use super::seen::owner;
use super::walk::{Visitor, walk};
use crate::error::{Error, Result};
use crate::index::{Control, OwnerLock};
use crate::journal::pools::access::as_owner;
use crate::journal::pools::reach::{is_regular, look, look_at, open_looked_at};
use crate::journal::{Verdict, control, lock, mark};
use crate::recovery::examine::{Examined, examine};
use crate::recovery::formats::joint;
use crate::recovery::found_file::FoundFile;
use crate::recovery::open::{Known, can_be_replayed, in_session, is_ordinary, recover};
use crate::recovery::owning::owner_lock_given;
use crate::recovery::{Options, Outcome, Progress, Report, Use};
use crate::settings::Settings;
use crate::sys::{InternalFd, identity, open_again};
use rustix::fs::{FileType, OFlags, fstat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens a file as its next user would, and commits the kept writes of a killed process. Returns whether there were
/// any.
pub(in crate::recovery) type Commit = dyn Fn(BorrowedFd<'_>, &CStr, &Settings) -> Result<bool>;

/// See [`recover_path`](crate::file::recover_path). `commit`: makes what a killed process left durable.
pub(crate) fn recover_path(
    path: &Path,
    settings: &Settings,
    options: &Options,
    progress: &dyn Progress,
    commit: &Commit,
) -> Result<Vec<Report>> {
    crate::sys::shm::choose(settings.shm.as_deref())?;
    let mut all = All { settings, options: *options, progress, commit, reports: Vec::new(), seen: Seen::default() };
    match (kind_of(path)?, Place::of_journal(path)) {
        (FileType::Directory, _) => walk(path, &mut all)?,
        (_, Some((place, name))) => all.journal(&place, name),
        _ => {
            let mut report = report(PathBuf::new(), Some(path.to_path_buf()));
            all.conclude(&mut report, |all, report| {
                let file = look_at(path)?;
                all.one(file.as_fd(), FoundFile::default(), settings, report)
            });
            all.reports.push(report);
        }
    }
    if !options.dry_run {
        crate::index::sweep();
    }
    Ok(all.reports)
}

pub(in crate::recovery) fn kind_of(path: &Path) -> Result<FileType> {
    let stat = rustix::fs::stat(path).map_err(|e| Error::from(e).context(path.display()))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// How often the processes that have the file open have handed it over. `None`: it has no control file, so no process
/// has it open. The count begins with the control file, and wraps around.
///
/// # Errors
/// The file, or its control file, cannot be opened.
pub fn hand_overs(path: &Path, settings: &Settings) -> Result<Option<u32>> {
    let file = look_at(path)?;
    let found = control::find(file.as_fd(), settings.pool.as_deref())?;
    Ok(found.map(|found| Control::new(found).hand_overs()))
}

/// The setting that leads to a pool: none for a `.famio/`.
pub(in crate::recovery) fn pool_setting(place: &Place) -> Option<PathBuf> {
    (!place.pool.is_beside()).then(|| place.pool.path().to_path_buf())
}

/// What is known of a file that was found by its journal.
pub(in crate::recovery) fn given<'a>(place: &'a Place, found: &'a Located) -> FoundFile<'a> {
    FoundFile {
        path: Some(&found.path),
        folder: place.pool.parent().filter(|_| found.is_beside),
        pool: Some(&place.pool).filter(|pool| !pool.is_beside()),
    }
}

/// Opens, as the file's owner, a file whose mode denies its owner the access (0444). `error`: of the plain open.
pub(in crate::recovery) fn open_own(looked: BorrowedFd<'_>, access: OFlags, error: Error) -> Result<InternalFd> {
    if error.errno() != libc::EACCES {
        return Err(error);
    }
    let Ok(readable) = open_looked_at(looked, OFlags::RDONLY) else { return Err(error) };
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY;
    as_owner(readable.as_fd(), || open_again(readable.as_fd(), flags)).map_err(|_| error)
}

/// Whether a file without a journal, according to its mark, could not trust this journal. It may be the file's own,
/// from before its owner or mode changed.
fn is_untrusted(place: &Place, name: &str, file: BorrowedFd<'_>) -> bool {
    matches!(mark::of_looked_at(file), Ok(None)) && place.pool.open_read_only(name, Some(file)).is_err()
}

fn report(journal: PathBuf, file: Option<PathBuf>) -> Report {
    Report { journal, file, outcome: Outcome::NothingToDo, epoch: 0, bytes: 0, cut: None }
}

struct All<'a> {
    settings: &'a Settings,
    options: Options,
    progress: &'a dyn Progress,
    commit: &'a Commit,
    reports: Vec<Report>,
    seen: Seen,
}

impl Visitor for All<'_> {
    fn journal(&mut self, place: &Place, name: &str) {
        self.found(place, name, true);
    }

    fn leftover(&mut self, place: &Place, name: &str) {
        self.found(place, name, false);
    }

    /// Left by processes that were killed before they had a journal, or after it was removed.
    fn controls(&mut self, place: &Place, names: &[CString]) {
        if self.options.dry_run {
            return;
        }
        let folder = place.pool.folder();
        for name in names {
            let looked =
                look(folder, name.to_bytes()).ok().filter(|looked| fstat(looked).is_ok_and(|stat| is_regular(&stat)));
            let opened = looked.and_then(|looked| open_looked_at(looked.as_fd(), OFlags::RDWR).ok());
            if let Some(opened) = opened {
                Control::new(opened).remove_unused_from(folder, name);
            }
        }
        joint::remove_all_old(&place.pool);
        place.pool.remove_if_empty();
    }

    fn marked(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &Path) {
        let mut report = report(PathBuf::new(), Some(path.to_path_buf()));
        let mut is_seen = false;
        self.conclude(&mut report, |all, report| {
            let file = look(folder, name)?;
            let key = identity(file.as_fd())?;
            is_seen = all.seen.file(key);
            if is_seen {
                return Ok(());
            }
            let given = FoundFile { path: Some(path), folder: Some(folder), pool: None };
            let done = all.one(file.as_fd(), given, all.settings, report);
            all.seen.add(key, &report.journal);
            done
        });
        if !is_seen {
            self.reports.push(report);
        }
    }

    fn unexamined(&mut self, path: &Path, why: Error) {
        let mut report = report(PathBuf::new(), Some(path.to_path_buf()));
        report.outcome = Outcome::Unexamined(why);
        self.reports.push(report);
    }
}

impl All<'_> {
    /// A journal, or else what was left of a file that has none.
    fn found(&mut self, place: &Place, name: &str, is_journal: bool) {
        let journal = place.pool.path_of(name);
        let mut report = report(journal.clone(), None);
        let found = place.file_of(name).and_then(|found| Ok((identity(found.file.as_fd())?, found)));
        match found {
            Ok((key, _)) if self.seen.journal(key, &journal) => return,
            Ok((key, found)) => {
                self.seen.add(key, &journal);
                report.file = Some(found.path.clone());
                if is_untrusted(place, name, found.file.as_fd()) {
                    report.journal = journal;
                    return self.reports.push(report);
                }
                let settings = Settings { pool: pool_setting(place), ..self.settings.clone() };
                self.conclude(&mut report, |all, report| {
                    let done = all.one(found.file.as_fd(), given(place, &found), &settings, report);
                    done.map_err(|e| e.context(format_args!("journal {}", journal.display())))
                });
            }
            Err(_) if place.is_forgotten(name) => self.conclude(&mut report, |all, report| {
                report.outcome = Outcome::Clean;
                if all.options.dry_run { Ok(()) } else { place.forget(name) }
            }),
            // Meanwhile another process has recovered the file.
            Err(_) if is_journal && place.is_removed(name) => return,
            Err(e) => report.outcome = Outcome::Failed(e.context(format_args!("journal {}", journal.display()))),
        }
        report.journal = journal;
        self.reports.push(report);
    }

    fn conclude(&mut self, report: &mut Report, act: impl FnOnce(&mut Self, &mut Report) -> Result<()>) {
        if let Err(e) = act(self, report) {
            report.outcome = Outcome::Failed(e);
        }
    }

    /// Recovers one file, known by an `O_PATH` descriptor; if another process is recovering it, after that.
    fn one(
        &self,
        looked: BorrowedFd<'_>,
        given: FoundFile<'_>,
        settings: &Settings,
        report: &mut Report,
    ) -> Result<()> {
        let journal = report.journal.clone();
        loop {
            report.journal.clone_from(&journal);
            self.try_one(looked, given, settings, report)?;
            if !matches!(report.outcome, Outcome::InUse(_)) || !self.seen.awaits_recovery(looked, settings) {
                return Ok(());
            }
        }
    }

    fn try_one(
        &self,
        looked: BorrowedFd<'_>,
        given: FoundFile<'_>,
        settings: &Settings,
        report: &mut Report,
    ) -> Result<()> {
        let options = self.options;
        let stat = fstat(looked)?;
        if !is_regular(&stat) {
            return Err(Error::with(libc::EINVAL, "not a regular file, nor a folder"));
        }
        let access = if options.dry_run { OFlags::RDONLY } else { OFlags::RDWR };
        let open = || open_looked_at(looked, access).or_else(|e| open_own(looked, access, e));
        let Some(file) = open_unless_held(looked, settings, &self.seen, open)? else {
            report.outcome = Outcome::InUse(owner(looked, settings));
            return Ok(());
        };
        let file = file.as_fd();
        // A file found by a walk has a mark or a journal.
        let may_be_left = given.path.is_some() || !is_ordinary(file, Known::default(), settings)?;
        let owner_lock = match owner_lock_given(file, given, settings, true, may_be_left && !options.dry_run) {
            Err(e) if e.errno() == libc::EBUSY => {
                report.outcome = Outcome::InUse(owner(file, settings));
                return Ok(());
            }
            owner_lock => owner_lock?,
        };
        let is_kept = owner_lock.as_ref().is_some_and(OwnerLock::may_keep);
        let examined = examine(file, owner_lock.as_ref(), settings, !options.dry_run, given);
        let has_no_conflict = |examined: &&Examined| match options.on_conflict {
            Use::Dropped => false,
            _ if matches!(examined.verdict, Verdict::Conflict(_)) => false,
            Use::File => can_be_replayed(file, examined, owner_lock.as_ref(), options, self.progress),
            _ => true,
        };
        if is_kept
            && let Some(examined) = examined.as_ref().ok().filter(has_no_conflict)
            && let Some(owner_lock) = owner_lock
        {
            let control = owner_lock.control().clone();
            let _recovering = control.recovering();
            owner_lock.leave();
            report.journal.clone_from(&examined.journal_path);
            return self.keep(file, &examined.file_path, settings, report);
        }
        let mut grew = false;
        let done = examined.and_then(|examined| {
            grew = examined.growing.is_some();
            if !grew || examined.journal.is_some() {
                report.journal.clone_from(&examined.journal_path);
            }
            if examined.journal.as_ref().is_some_and(|(journal, _)| lock::is_in_session(journal)) {
                return Err(in_session());
            }
            recover(file, &examined, owner_lock.as_ref(), settings, options, self.progress)
        });
        if let Some(owner_lock) = owner_lock {
            let control = owner_lock.control().clone();
            if is_kept && !options.dry_run && matches!(done, Ok((Outcome::Discarded | Outcome::Recovered, ..))) {
                control.drop_epoch(); // the user has decided
            }
            match &done {
                // A dry run and a conflict leave the arena as it is: it knows when the last writer left.
                _ if options.dry_run => owner_lock.leave(),
                Ok((Outcome::Conflict(_), ..)) | Err(_) => owner_lock.leave(),
                Ok(_) => owner_lock.release(),
            }
            if !options.dry_run {
                control.remove_if_unused();
            }
        }
        (report.outcome, report.epoch, report.bytes) = done?;
        if grew && matches!(report.outcome, Outcome::Clean | Outcome::Recovered | Outcome::Discarded) {
            report.cut = Some(core::mem::take(&mut report.bytes));
        }
        Ok(())
    }

    /// Commits what a killed last writer left, if that is to be kept.
    fn keep(&self, file: BorrowedFd<'_>, path: &Path, settings: &Settings, report: &mut Report) -> Result<()> {
        report.outcome = Outcome::Kept;
        if self.options.dry_run {
            return Ok(());
        }
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::new(libc::EINVAL))?;
        match (self.commit)(file, &name, settings) {
            Ok(true) => {}
            Ok(false) => report.outcome = Outcome::Recovered, // it could not be kept, which was reported
            Err(e) if e.errno() == libc::EBUSY => report.outcome = Outcome::InUse(owner(file, settings)),
            Err(e) => return Err(e),
        }
        Ok(())
    }
}
