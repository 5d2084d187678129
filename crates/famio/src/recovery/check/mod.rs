//! `famio check`: reads and compares everything that a journal says about itself and its file; changes nothing.
//!
//! Recovery stops at the first problem; this goes on, and also checks what recovery does not need.
// Cycle: in_place, mod, records: a check of each kind of journal reports problems of one type

mod in_place;
mod records;

use super::Owner;
use super::examine::{Examined, examine};
use super::found_file::FoundFile;
use super::owning::owner_lock_given;
use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::header::{Found, Kind};
use crate::journal::pools::reach::{is_regular, look, look_at, open_looked_at};
use crate::journal::tiered::check as check_tiered;
use crate::journal::{Header, State, Verdict};
use crate::pmem::medium;
use crate::recovery::formats::growing;
use crate::recovery::search::find::Place;
use crate::recovery::search::paths::{given, kind_of, pool_setting};
use crate::recovery::search::seen::{Seen, open_unless_held, owner};
use crate::recovery::search::walk::{Visitor, walk};
use crate::settings::Settings;
use crate::sys::identity;
use core::fmt;
use rustix::fs::{FileType, OFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Something that is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its position in the journal, in bytes; `None`: at no single place, or not in the journal.
    pub at: Option<u64>,
    /// A sentence that describes it.
    pub what: String,
}

impl Problem {
    fn at(at: u64, what: impl Into<String>) -> Self {
        Self { at: Some(at), what: what.into() }
    }

    fn general(what: impl fmt::Display) -> Self {
        Self { at: None, what: what.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "at byte {at}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// The result of a check.
#[derive(Debug)]
pub enum Condition {
    /// Neither a journal nor a mark: an ordinary file.
    Ordinary,
    /// The journal is sound; recovery brings the file to this epoch and removes the journal.
    Sound {
        /// The last commit; 0 if none is pending: a leftover of a creation or a clean close.
        epoch: u64,
    },
    /// An error at which recovery may stop.
    Damaged,
    /// Another process has the file open as an atomic file, so its journal changes while it is read.
    InUse(Option<Owner>),
    /// It could not be read.
    Failed(Error),
}

/// A journal that was checked.
#[derive(Debug)]
pub struct Checked {
    /// Where the journal is, or should be; empty if there is none to look for, because the file grew without a
    /// journal.
    pub journal: PathBuf,
    /// Its file, if found.
    pub file: Option<PathBuf>,
    /// Its condition.
    pub condition: Condition,
    /// All problems; only [`Condition::Damaged`] has any.
    pub problems: Vec<Problem>,
    /// Information that is no damage.
    pub remarks: Vec<String>,
}

/// Checks the journal of a file, or everything below a folder: its journals, whether in a pool or in a `.famio/`, and
/// the files with a mark. Changes nothing. What cannot be examined is [`Failed`](Condition::Failed).
///
/// # Errors
/// For a path that does not exist. `EINVAL`: [`Settings::shm`] is not possible.
pub fn check(path: &Path, settings: &Settings) -> Result<Vec<Checked>> {
    crate::sys::shm::choose(settings.shm.as_deref())?;
    let mut all = All { settings, checked: Vec::new(), seen: Seen::default() };
    if kind_of(path)? == FileType::Directory {
        walk(path, &mut all)?;
        return Ok(all.checked);
    }
    let mut checked = Checked::new(PathBuf::new(), Some(path.to_path_buf()));
    let done =
        look_at(path).and_then(|file| with_file(file.as_fd(), FoundFile::default(), settings, &all.seen, &mut checked));
    checked.failed(done);
    Ok(vec![checked])
}

struct All<'a> {
    settings: &'a Settings,
    checked: Vec<Checked>,
    seen: Seen,
}

impl Visitor for All<'_> {
    fn journal(&mut self, place: &Place, name: &str) {
        let journal = place.pool.path_of(name);
        let mut checked = Checked::new(journal.clone(), None);
        let found = place.file_of(name).and_then(|found| Ok((identity(found.file.as_fd())?, found)));
        let done = match found {
            Ok((key, _)) if self.seen.journal(key, &journal) => return,
            Ok((key, found)) => {
                self.seen.add(key, &journal);
                checked.file = Some(found.path.clone());
                let settings = Settings { pool: pool_setting(place), ..self.settings.clone() };
                with_file(found.file.as_fd(), given(place, &found), &settings, &self.seen, &mut checked)
            }
            Err(e) => without_file(place, name, &e, &mut checked),
        };
        checked.failed(done);
        checked.journal = journal;
        self.checked.push(checked);
    }

    fn marked(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &Path) {
        let mut checked = Checked::new(PathBuf::new(), Some(path.to_path_buf()));
        let done = look(folder, name).map_err(Error::from).and_then(|file| {
            let key = identity(file.as_fd())?;
            if self.seen.file(key) {
                return Ok(false);
            }
            let given = FoundFile { path: Some(path), folder: Some(folder), pool: None };
            let done = with_file(file.as_fd(), given, self.settings, &self.seen, &mut checked);
            self.seen.add(key, &checked.journal);
            done.map(|()| true)
        });
        if !matches!(done, Ok(false)) {
            checked.failed(done.map(drop));
            self.checked.push(checked);
        }
    }

    fn unexamined(&mut self, path: &Path, why: Error) {
        let mut checked = Checked::new(PathBuf::new(), Some(path.to_path_buf()));
        checked.failed(Err(why));
        self.checked.push(checked);
    }
}

/// Checks the structure of an active or suspect journal, and compares it with its file if that is given. Both may be
/// open for reading only; no process may write to them meanwhile. Returns the last commit (0: none) and what is
/// wrong.
///
/// # Errors
/// The kernel's: one of the two cannot be read. A header that is damaged is a problem, not an error.
pub fn check_journal(journal: BorrowedFd<'_>, file: Option<BorrowedFd<'_>>) -> Result<(u64, Vec<Problem>)> {
    let (header, _) = match Header::load(journal) {
        Err(e) if e.errno() == libc::EIO => return Ok((0, vec![Problem::at(0, e.to_string())])),
        loaded => loaded?,
    };
    structure(journal, file, &header)
}

fn structure(journal: BorrowedFd<'_>, file: Option<BorrowedFd<'_>>, header: &Header) -> Result<(u64, Vec<Problem>)> {
    match header.kind {
        Kind::InPlace => in_place::check(journal, file, header),
        Kind::Records => records::check(journal, header),
        Kind::Tiered => {
            let (epoch, problems) = check_tiered(journal, header, medium(header.domain, false))?;
            Ok((epoch, problems.into_iter().map(|(at, what)| Problem { at, what }).collect()))
        }
    }
}

impl Checked {
    fn new(journal: PathBuf, file: Option<PathBuf>) -> Self {
        Self { journal, file, condition: Condition::Ordinary, problems: Vec::new(), remarks: Vec::new() }
    }

    fn failed(&mut self, done: Result<()>) {
        if let Err(e) = done {
            self.condition = Condition::Failed(e);
        }
    }

    fn conclude(&mut self, epoch: u64) {
        self.condition = if self.problems.is_empty() { Condition::Sound { epoch } } else { Condition::Damaged };
    }
}

fn with_file(
    looked: BorrowedFd<'_>,
    given: FoundFile<'_>,
    settings: &Settings,
    seen: &Seen,
    checked: &mut Checked,
) -> Result<()> {
    let stat = rustix::fs::fstat(looked)?;
    if !is_regular(&stat) {
        return Err(Error::with(libc::EINVAL, "not a regular file, nor a folder"));
    }
    let Some(file) = open_unless_held(looked, settings, seen, || open_looked_at(looked, OFlags::RDONLY))? else {
        checked.condition = Condition::InUse(owner(looked, settings));
        return Ok(());
    };
    let file = file.as_fd();
    let owner_lock = match owner_lock_given(file, given, settings, false, false) {
        Err(e) if e.errno() == libc::EBUSY => {
            checked.condition = Condition::InUse(owner(file, settings));
            return Ok(());
        }
        // A process that may only read the file compares it as it is.
        Err(e) if e.errno() == libc::EACCES => None,
        owner_lock => owner_lock?,
    };
    let done = examine(file, owner_lock.as_ref(), settings, false, given)
        .and_then(|examined| check_against_mark(file, &examined, checked));
    owner_lock.into_iter().for_each(OwnerLock::leave);
    done
}

/// Compares mark and header, then checks the rest of the journal.
fn check_against_mark(file: BorrowedFd<'_>, examined: &Examined, checked: &mut Checked) -> Result<()> {
    if examined.growing.is_none() || examined.journal.is_some() {
        checked.journal.clone_from(&examined.journal_path);
    }
    if let Verdict::Conflict(text) = &examined.verdict {
        checked.problems.push(Problem::general(text));
    }
    let Some((journal, _)) = &examined.journal else {
        if let Some(mark) = examined.growing.as_ref().filter(|_| examined.verdict == Verdict::Growing) {
            let size = rustix::fs::fstat(file)?.st_size as u64;
            let cut = size.saturating_sub(growing::committed(file, mark, size)?);
            checked
                .remarks
                .push(format!("it grew without a journal: recovery cuts off {cut} bytes that no SYNC covers"));
            if !mark.overwrites.is_empty() {
                let bytes = mark.overwrites.bytes();
                checked.remarks.push(format!("its mark has {bytes} committed bytes: recovery writes them to the file"));
            }
        }
        if examined.verdict != Verdict::Nothing {
            checked.conclude(0);
        }
        return Ok(());
    };
    let Some(header) = &examined.header else {
        if examined.verdict == Verdict::Leftover {
            checked.remarks.push("its creation was cut short: recovery removes it".into());
        }
        checked.conclude(0);
        return Ok(());
    };
    if Header::load(journal.as_fd()).is_ok_and(|(_, found)| found == Found::OneCopy) {
        checked.remarks.push("one of the two copies of its header is damaged or older: a crash can leave that".into());
    }
    if examined.verdict == Verdict::Leftover || !header.state.is_pending(examined.is_marked) {
        checked.remarks.push(format!("it is {}: nothing in it counts, recovery removes it", header.state.name()));
        checked.conclude(0);
        return Ok(());
    }
    if header.state == State::Suspect {
        checked.remarks.push("it is suspect: a flush of it or of its file failed, and no more was committed".into());
    }
    let (epoch, problems) = structure(journal.as_fd(), Some(file), header)?;
    checked.problems.extend(problems);
    checked.conclude(epoch);
    Ok(())
}

/// A journal whose header cannot be read, or whose file is missing.
fn without_file(place: &Place, name: &str, why: &Error, checked: &mut Checked) -> Result<()> {
    checked.problems.push(Problem::general(why));
    if let Ok((header, journal)) = place.header(name)
        && header.state.is_pending(true)
    {
        checked.problems.extend(structure(journal.as_fd(), None, &header)?.1);
    }
    checked.conclude(0);
    Ok(())
}
