//! `famio status`: which journals exist, and their state.

use super::find::Place;
use super::leases;
use super::paths::kind_of;
use super::seen::Seen;
use super::walk::{Visitor, walk};
use crate::error::{Error, Result};
use crate::index::Control;
use crate::journal::header::{Kind, first_bytes, is_blank};
use crate::journal::inplace::{Image, Key};
use crate::journal::pools::reach::{is_regular, look, look_at};
use crate::journal::records::scan;
use crate::journal::tiered::{self, last_epoch};
use crate::journal::{
    GrowingMark, Header, Identity, Marked, Pool, State, beside_path, control, journal_name, lock, mark, path_of,
};
use crate::pmem::medium;
use crate::recovery::found_file::FoundFile;
use crate::recovery::{Growing, Owner};
use crate::settings::Settings;
use crate::sys::{InternalFd, identity};
use rustix::fs::{FileType, fstat};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A journal that was found, or is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The journal; empty for what could not be examined. If [`MISSING`](Self::MISSING), where it was looked for.
    pub journal: PathBuf,
    /// Its file; if that does not exist, where it was last seen.
    pub file: PathBuf,
    /// `in place`, `records`, `tiered`, or [`GROWING`](Self::GROWING); `None`: unknown, or there is no journal.
    pub kind: Option<&'static str>,
    /// Why the header cannot be read, the file cannot be examined, or the journal is missing.
    pub why: Option<String>,
    /// What is known of a file that grows without a journal.
    pub growing: Option<Growing>,
    /// `creating`, `active`, `clean`, `suspect`, [`ORPHANED`](Self::ORPHANED), [`UNREADABLE`](Self::UNREADABLE),
    /// [`MISSING`](Self::MISSING), or [`UNEXAMINED`](Self::UNEXAMINED).
    pub state: &'static str,
    /// The last commit, or 0 if none can be read.
    pub epoch: u64,
    /// Bytes of the journal's file.
    pub size: u64,
    /// Of a tiered journal: committed bytes that wait for the file. `None`: not known, for example since the journal
    /// is being written.
    pub waiting: Option<u64>,
    /// The process that owns the file, if that can be told.
    pub owner: Option<Owner>,
    /// Some process has the file open as an atomic file.
    pub in_use: bool,
}

impl Found {
    /// The journal's header can't be read.
    pub const UNREADABLE: &str = "unreadable";
    /// The journal's file does not exist, and the journal has bytes that the file may lack.
    pub const ORPHANED: &str = "orphaned";
    /// The file has a mark, but its journal does not exist.
    pub const MISSING: &str = "missing";
    /// The file or folder could not be examined: it may have one or more journals.
    pub const UNEXAMINED: &str = "unexamined";
    /// The kind of a growing file, which has no journal.
    pub const GROWING: &str = "growing";

    fn of_file(file: &Path, journal: PathBuf, state: &'static str, why: Option<String>) -> Self {
        Self {
            journal,
            file: file.to_path_buf(),
            kind: None,
            why,
            growing: None,
            state,
            epoch: 0,
            size: 0,
            waiting: None,
            owner: None,
            in_use: false,
        }
    }

    /// A file that grows without a journal, and has only a mark. Its process has the write lease on it.
    fn of_growing(file: BorrowedFd<'_>, path: &Path, mark: &GrowingMark) -> Self {
        let stat = fstat(file).ok();
        let holder = stat.and_then(|stat| leases::holder(stat.st_dev, stat.st_ino));
        Self {
            kind: Some(Self::GROWING),
            growing: stat.map(|stat| Growing { committed: mark.new, size: stat.st_size as u64 }),
            in_use: holder.is_some(),
            // 0: a process in another PID namespace.
            owner: holder.filter(|&pid| pid > 0).map(|pid| Owner { pid, is_contained: false }),
            ..Self::of_file(path, PathBuf::new(), State::Active.name(), None)
        }
    }

    /// No process has the file open, and the journal was not closed clean: the next open, or `famio recover`, brings
    /// the file to its last SYNC.
    pub fn needs_recovery(&self) -> bool {
        !self.in_use && [State::Creating, State::Active, State::Suspect].iter().any(|state| state.name() == self.state)
    }
}

/// Lists the journal of a file, or of all files below a folder or in a pool, the files whose mark names a journal
/// that does not exist, and everything that could not be examined. Only reads; the state of a journal in use may be
/// outdated when it is shown.
///
/// # Errors
/// `EINVAL`: neither a regular file nor a folder. `ENOENT`, and others of the kernel, for `path` itself.
pub fn survey(path: &Path, settings: &Settings) -> Result<Vec<Found>> {
    let mut all = All { settings, found: Vec::new(), seen: Seen::default() };
    if kind_of(path)? == FileType::Directory {
        walk(path, &mut all)?;
        all.drop_blank_journals_of_marked_files();
    } else {
        let file = look_at(path)?;
        if !is_regular(&fstat(&file)?) {
            return Err(Error::with(libc::EINVAL, "not a regular file, nor a folder"));
        }
        let found = of_file(file.as_fd(), path, FoundFile::default(), settings);
        all.found.extend(found.map_err(|e| e.context(path.display()))?);
    }
    Ok(all.found)
}

struct All<'a> {
    settings: &'a Settings,
    found: Vec<Found>,
    seen: Seen,
}

impl All<'_> {
    /// A journal without a header does not lead to its file; the file leads to it.
    fn drop_blank_journals_of_marked_files(&mut self) {
        let unreadable = |found: &&Found| found.state == Found::UNREADABLE && !found.file.as_os_str().is_empty();
        let known: Vec<PathBuf> = self.found.iter().filter(unreadable).map(|found| found.journal.clone()).collect();
        self.found.retain(|found| found.state != State::Creating.name() || !known.contains(&found.journal));
    }
}

impl Visitor for All<'_> {
    fn journal(&mut self, place: &Place, name: &str) {
        let journal = place.pool.path_of(name);
        let located = place.file_of(name).ok();
        let key = located.as_ref().and_then(|located| identity(located.file.as_fd()).ok());
        if let Some(key) = key {
            if self.seen.journal(key, &journal) {
                return;
            }
            self.seen.add(key, &journal);
        }
        let used = located.as_ref().and_then(|located| control_in(&place.pool, located.file.as_fd()));
        let has_mark = |file: BorrowedFd<'_>| !matches!(mark::of_looked_at(file), Ok(None));
        let is_marked = located.as_ref().is_some_and(|located| has_mark(located.file.as_fd()));
        self.found.push(look_into(place, name, located.map(|located| located.path), used.as_ref(), is_marked));
    }

    fn marked(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &Path) {
        let given = FoundFile { path: Some(path), folder: Some(folder), pool: None };
        let file = match look(folder, name).map_err(Error::from).and_then(|file| Ok((identity(file.as_fd())?, file))) {
            Ok((key, _)) if self.seen.file(key) => return,
            Ok((key, file)) => of_file(file.as_fd(), path, given, self.settings).map(|found| (key, found)),
            Err(e) => Err(e),
        };
        match file {
            Ok((key, found)) => {
                found.iter().for_each(|found| self.seen.add(key, &found.journal));
                self.found.extend(found);
            }
            Err(e) => self.unexamined(path, e),
        }
    }

    fn unexamined(&mut self, path: &Path, why: Error) {
        self.found.push(Found::of_file(path, PathBuf::new(), Found::UNEXAMINED, Some(why.to_string())));
    }
}

/// The journal of a file that is known by an `O_PATH` descriptor.
fn of_file(file: BorrowedFd<'_>, path: &Path, given: FoundFile<'_>, settings: &Settings) -> Result<Option<Found>> {
    let (mark, is_damaged) = match mark::of_looked_at(file) {
        Err(e) if e.errno() == libc::EIO => (None, true),
        Ok(Some(Marked::Growing(mark))) => return Ok(Some(Found::of_growing(file, path, &mark))),
        mark => (mark?.and_then(Marked::journal), false),
    };
    let file_path = given.path.map_or_else(|| path_of(file), |path| Ok(path.to_path_buf()))?;
    let name = journal_name(&Identity::of_fd(file)?);
    let pool = match given.pool(file, &file_path, mark.as_ref(), settings) {
        Err(e) if mark.is_some() && e.errno() == libc::ENOENT => None,
        pool => pool?,
    };
    let there = |pool: &Pool| Ok::<_, Error>(pool.open_read_only(&name, Some(file))?.is_some());
    if let Some(pool) = pool.as_ref()
        && there(pool)?
    {
        let place = Place::new(pool.reopen(file)?);
        let is_marked = mark.is_some() || is_damaged;
        return Ok(Some(look_into(
            &place,
            &name,
            Some(path.to_path_buf()),
            control_in(pool, file).as_ref(),
            is_marked,
        )));
    }
    if mark.is_none() && !is_damaged {
        return Ok(None);
    }
    let beside = || beside_path(&file_path);
    let pool = mark.and_then(|mark| mark.pool).unwrap_or_else(beside);
    let what = "the file is marked as having a journal, which is not there".into();
    Ok(Some(Found::of_file(path, pool.join(&name), Found::MISSING, Some(what))))
}

/// The control file of a file whose journal is in this pool, if this process may open it.
fn control_in(pool: &Pool, file: BorrowedFd<'_>) -> Option<Control> {
    Some(Control::new(control::find_in(pool, file).ok()??))
}

/// `is_marked`: the file has a mark, so that the journal was complete once.
fn look_into(place: &Place, name: &str, file: Option<PathBuf>, control: Option<&Control>, is_marked: bool) -> Found {
    let journal = place.pool.path_of(name);
    match place.header(name) {
        Ok((header, fd)) => {
            let size = fstat(&fd).map_or(0, |stat| stat.st_size as u64);
            let owner = control.and_then(Control::owner);
            let is_shared = || control.is_some_and(|control| control.is_owned() || control.has_unowned_session());
            let in_use = owner.is_some() || lock::is_in_session(&fd) || is_shared();
            let is_orphaned = file.is_none() && !in_use && header.state != State::Clean;
            let state = match header.state {
                State::AsMarked if is_marked => State::Active,
                State::AsMarked if in_use => State::Creating,
                State::AsMarked => State::Clean,
                state => state,
            };
            let waiting = waiting_of(place, name, &header);
            Found {
                epoch: epoch_of(place, name, &header, &fd, size),
                file: file.unwrap_or(header.path_hint),
                kind: Some(header.kind.name()),
                why: None,
                growing: None,
                state: if is_orphaned { Found::ORPHANED } else { state.name() },
                journal,
                size,
                waiting,
                owner,
                in_use,
            }
        }
        // Being made, or left by a kill at that moment.
        Err(_) if !is_marked && is_without_header(place, name) => {
            Found::of_file(&file.unwrap_or_default(), journal, State::Creating.name(), None)
        }
        Err(e) => Found::of_file(&file.unwrap_or_default(), journal, Found::UNREADABLE, Some(e.to_string())),
    }
}

fn is_without_header(place: &Place, name: &str) -> bool {
    let journal = place.pool.open_read_only(name, None).ok().flatten();
    journal
        .and_then(|journal| first_bytes(journal.as_fd()).ok())
        .is_some_and(|(bytes, length)| is_blank(&bytes[..length]))
}

/// The committed bytes in a tiered journal that its file may lack. All of the journal is read for that, so only once,
/// even if its owner commits meanwhile and they stay unknown.
fn waiting_of(place: &Place, name: &str, header: &Header) -> Option<u64> {
    if header.kind != Kind::Tiered {
        return None;
    }
    let (header, fd) = place.header(name).ok()?;
    let size = fstat(&fd).ok()?.st_size as u64;
    tiered::scan(fd.as_fd(), size, &header, medium(header.domain, false)).ok().map(|scan| scan.bytes())
}

/// The last commit: from the slots of a journal in place, or from the chain of a journal of records, all of which is
/// read.
pub(in crate::recovery) fn epoch_of(place: &Place, name: &str, header: &Header, fd: &InternalFd, size: u64) -> u64 {
    if header.kind == Kind::InPlace {
        let medium = medium(header.domain, false);
        let image = Image::open(fd.as_fd(), size, Key::of(header.journal_id), medium).ok();
        return image.and_then(|image| image.slots().last().map(|commit| commit.epoch)).unwrap_or(0);
    }
    if header.kind == Kind::Tiered {
        return last_epoch(fd.as_fd(), size, header, medium(header.domain, false)).unwrap_or(0);
    }
    // While the owner commits, the header and the chain may be read in different states.
    const LOOKS: usize = 8;
    let mut last = scan(fd.as_fd(), header).map(|scan| scan.plan().epoch);
    for _ in 1..LOOKS {
        if last.is_ok() {
            break;
        }
        let Ok((header, fd)) = place.header(name) else { break };
        last = scan(fd.as_fd(), &header).map(|scan| scan.plan().epoch);
    }
    last.unwrap_or(0)
}
