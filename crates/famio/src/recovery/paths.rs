//! `famio recover PATH`: a file, a pool, or a folder with everything below it.

use super::examine::examine;
use super::open::{claim, is_ordinary, recover};
use super::{Options, Outcome, Progress, Report};
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::header::first_bytes;
use crate::journal::pool::{is_beside_name, is_journal_name};
use crate::journal::{Header, Identity, Pool, control, journal_name};
use crate::settings::Settings;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Recovers a file, the files of a pool (a folder with journals in it), or those of every `.famio/` below a folder. One
/// report a journal; a file that needs nothing gives one report that says so. The error is for a path that is not there.
pub fn recover_path(
    path: &Path,
    settings: &Settings,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    match kind_of(path)? {
        FileType::Directory => {
            for (pool, name) in journals_below(path)? {
                reports.push(one_journal(&pool, &name, settings, *options, progress));
            }
        }
        _ => reports.push(one_file(path, settings, *options, progress)),
    }
    if !options.dry_run {
        crate::index::sweep();
    }
    Ok(reports)
}

pub(super) fn kind_of(path: &Path) -> Result<FileType> {
    let stat = rustix::fs::stat(path).map_err(|e| Error::from(e).context(path.display()))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Every journal in `folder` if it is a pool, and in every `.famio/` below it: (pool, name), in order.
pub(super) fn journals_below(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(CWD, &folder, flags, Mode::empty()) {
            Ok(fd) => fd,
            // One that may not be read, or was removed meanwhile, keeps nobody from the others.
            Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => continue,
            Err(e) => return Err(Error::from(e).context(folder.display())),
        };
        for entry in Dir::new(fd)? {
            let Ok(entry) = entry else { break };
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            let name = OsStr::from_bytes(bytes);
            match entry.file_type() {
                FileType::Directory => folders.push(folder.join(name)),
                _ if name.to_str().is_some_and(is_journal_name) => {
                    found.push((folder.clone(), name.to_string_lossy().into_owned()));
                }
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn open_file(path: &Path, access: OFlags) -> Result<OwnedFd> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::from(e).context(path.display()))
}

fn one_file(path: &Path, settings: &Settings, options: Options, progress: &dyn Progress) -> Report {
    let mut report = Report {
        journal: PathBuf::new(),
        file: Some(path.to_path_buf()),
        outcome: Outcome::NothingToDo,
        epoch: 0,
        bytes: 0,
    };
    if let Err(e) =
        open_file(path, OFlags::RDWR).and_then(|file| with_file(&file, settings, options, progress, &mut report))
    {
        report.outcome = Outcome::Failed(e);
    }
    report
}

fn with_file(
    file: &OwnedFd,
    settings: &Settings,
    options: Options,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::with(libc::EINVAL, "not a regular file, nor a folder"));
    }
    let may_be_left = !is_ordinary(file.as_fd(), settings)?;
    let claim = match claim(file.as_fd(), settings, true, may_be_left && !options.dry_run) {
        Err(e) if e.errno() == libc::EBUSY => {
            report.outcome = Outcome::InUse(owner(file.as_fd(), settings));
            return Ok(());
        }
        claim => claim?,
    };
    let done = examine(file.as_fd(), claim.as_ref(), settings, !options.dry_run).and_then(|examined| {
        report.journal.clone_from(&examined.journal_path);
        recover(file.as_fd(), &examined, claim.as_ref(), settings, options, progress)
    });
    if let Some(claim) = claim {
        let control = claim.control().clone();
        match &done {
            // A dry run and a conflict leave the arena as it is: it knows when the last writer left.
            _ if options.dry_run => claim.leave(),
            Ok((Outcome::Conflict(_), ..)) | Err(_) => claim.leave(),
            Ok(_) => claim.release(),
        }
        if !options.dry_run {
            control.remove_if_unused();
        }
    }
    let (outcome, epoch, bytes) = done?;
    (report.outcome, report.epoch, report.bytes) = (outcome, epoch, bytes);
    Ok(())
}

/// The process that has the file claimed, where that can be told.
pub(super) fn owner(file: BorrowedFd<'_>, settings: &Settings) -> Option<u32> {
    Control::new(control::find(file, settings.pool.as_deref()).ok()??).owner()
}

fn one_journal(pool: &Path, name: &str, settings: &Settings, options: Options, progress: &dyn Progress) -> Report {
    let journal = pool.join(name);
    let mut report = Report { journal: journal.clone(), file: None, outcome: Outcome::NothingToDo, epoch: 0, bytes: 0 };
    let found = file_of(pool, name, OFlags::RDWR).and_then(|(path, file)| {
        report.file = Some(path);
        let settings = Settings { pool: pool_setting(pool), ..settings.clone() };
        with_file(&file, &settings, options, progress, &mut report)
    });
    if let Err(e) = found {
        report.outcome = Outcome::Failed(e.context(format_args!("journal {}", journal.display())));
    }
    report.journal = journal;
    report
}

/// The setting that leads to a pool: none for a `.famio/`.
pub(super) fn pool_setting(pool: &Path) -> Option<PathBuf> {
    let beside = pool.file_name().is_some_and(is_beside_name);
    (!beside).then(|| pool.to_path_buf())
}

/// A journal's header, read only.
pub(super) fn header_of(pool: &Path, name: &str) -> Result<(Header, OwnedFd)> {
    let fd = Pool::at(pool, None)?.open_read_only(name, None)?.ok_or(Error::new(libc::ENOENT))?;
    let (bytes, length) = first_bytes(fd.as_fd())?;
    Ok((Header::read(&bytes[..length])?.0, fd))
}

/// The file that a journal names: by its path's hint, if the file there has the journal's identity; else, for a `.famio/`,
/// by a look at the files beside it. A journal without a header, whose creation was cut short, has its name of its file.
pub(super) fn file_of(pool: &Path, name: &str, access: OFlags) -> Result<(PathBuf, OwnedFd)> {
    let header = header_of(pool, name).map(|(header, _)| header);
    let fits = |path: &Path| {
        let file = open_file(path, access).ok()?;
        let identity = Identity::of_fd(file.as_fd()).ok()?;
        let same = header.as_ref().map_or_else(|_| journal_name(&identity) == name, |known| known.identity == identity);
        same.then_some((path.to_path_buf(), file))
    };
    if let Ok(header) = &header
        && let Some(found) = fits(&header.path_hint)
    {
        return Ok(found);
    }
    if pool_setting(pool).is_none()
        && let Some(folder) = pool.parent()
    {
        for entry in Dir::new(rustix::fs::openat(CWD, folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)? {
            let entry = entry?;
            let path = folder.join(OsStr::from_bytes(entry.file_name().to_bytes()));
            if entry.file_type() == FileType::RegularFile
                && let Some(found) = fits(&path)
            {
                return Ok(found);
            }
        }
    }
    let header = header?;
    let hint = header.path_hint.display();
    let what = format!("its file, last seen as {hint}, is not there: bring it back, or recover it by its own path");
    Err(Error::with(libc::ENOENT, what))
}
