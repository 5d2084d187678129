//! `famio check`: everything that a journal says about itself and its file, read and compared; nothing is changed.
//!
//! Recovery stops at the first thing that is wrong; this goes on, and is stricter where recovery can do without.

mod in_place;
mod records;

use super::examine::{Examined, examine};
use super::open::claim;
use super::paths::{file_of, header_of, journals_below, kind_of, open_file, owner, pool_setting};
use crate::error::{Error, Result};
use crate::index::Claim;
use crate::journal::header::{Found, Kind};
use crate::journal::{Header, State, Verdict};
use crate::settings::Settings;
use core::fmt;
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Something that is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where in the journal, in bytes; `None`: not at one place, or not in the journal.
    pub at: Option<u64>,
    /// What, in a sentence.
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

/// What a check found.
#[derive(Debug)]
pub enum Condition {
    /// Neither a journal nor a mark: an ordinary file.
    Ordinary,
    /// The journal is sound; recovery brings the file to this epoch, and no journal is left.
    Sound {
        /// The last commit; 0 where none is pending: a leftover of a creation or of a clean close.
        epoch: u64,
    },
    /// Something is wrong; recovery stops at some of it.
    Damaged,
    /// Another process has the file open as an atomic file: its journal changes while it is read.
    InUse(Option<u32>),
    /// It could not be read.
    Failed(Error),
}

/// A journal that was checked.
#[derive(Debug)]
pub struct Checked {
    /// Where the journal is, or should be.
    pub journal: PathBuf,
    /// Its file, where that was found.
    pub file: Option<PathBuf>,
    /// How it is.
    pub condition: Condition,
    /// Everything that is wrong; only [`Condition::Damaged`] has any.
    pub problems: Vec<Problem>,
    /// What is worth to know, and no damage.
    pub remarks: Vec<String>,
}

/// Checks the journal of a file, those of a pool, or all below a folder. The error is for a path that is not there.
pub fn check(path: &Path, settings: &Settings) -> Result<Vec<Checked>> {
    if kind_of(path)? == FileType::Directory {
        return Ok(journals_below(path)?.iter().map(|(pool, name)| one_journal(pool, name, settings)).collect());
    }
    let mut checked = Checked::new(PathBuf::new(), Some(path.to_path_buf()));
    if let Err(e) = open_file(path, OFlags::RDONLY).and_then(|file| with_file(file.as_fd(), settings, &mut checked)) {
        checked.condition = Condition::Failed(e);
    }
    Ok(vec![checked])
}

/// Checks the structure of a journal that is active or suspect, against its file where that is there. Both may be open for
/// reading only; nobody else writes to them. Gives the last commit (0: none) and what is wrong.
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
    }
}

impl Checked {
    fn new(journal: PathBuf, file: Option<PathBuf>) -> Self {
        Self { journal, file, condition: Condition::Ordinary, problems: Vec::new(), remarks: Vec::new() }
    }

    fn conclude(&mut self, epoch: u64) {
        self.condition = if self.problems.is_empty() { Condition::Sound { epoch } } else { Condition::Damaged };
    }
}

fn with_file(file: BorrowedFd<'_>, settings: &Settings, checked: &mut Checked) -> Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::with(libc::EINVAL, "not a regular file, nor a folder"));
    }
    let claim = match claim(file, settings, false, false) {
        Err(e) if e.errno() == libc::EBUSY => {
            checked.condition = Condition::InUse(owner(file, settings));
            return Ok(());
        }
        // Who may only read the file looks as it is.
        Err(e) if e.errno() == libc::EACCES => None,
        claim => claim?,
    };
    let done = examine(file, claim.as_ref(), settings, false).and_then(|examined| weigh(file, &examined, checked));
    claim.into_iter().for_each(Claim::leave);
    done
}

/// What mark and header say of each other, then the rest of the journal.
fn weigh(file: BorrowedFd<'_>, examined: &Examined, checked: &mut Checked) -> Result<()> {
    checked.journal.clone_from(&examined.journal_path);
    if let Verdict::Conflict(text) = &examined.verdict {
        checked.problems.push(Problem::general(text));
    }
    let Some((journal, _)) = &examined.journal else {
        if examined.verdict != Verdict::Nothing {
            checked.conclude(0);
        }
        return Ok(());
    };
    let Some(header) = &examined.header else {
        checked.remarks.push("its creation was cut short: recovery removes it".into());
        checked.conclude(0);
        return Ok(());
    };
    if Header::load(journal.as_fd()).is_ok_and(|(_, found)| found == Found::OneCopy) {
        checked.remarks.push("one of the two copies of its header is damaged or older: a crash can leave that".into());
    }
    if !matches!(header.state, State::Active | State::Suspect) {
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

fn one_journal(pool: &Path, name: &str, settings: &Settings) -> Checked {
    let mut checked = Checked::new(pool.join(name), None);
    let done = match file_of(pool, name, OFlags::RDONLY) {
        Ok((path, file)) => {
            checked.file = Some(path);
            let settings = Settings { pool: pool_setting(pool), ..settings.clone() };
            with_file(file.as_fd(), &settings, &mut checked)
        }
        Err(e) => without_file(pool, name, &e, &mut checked),
    };
    if let Err(e) = done {
        checked.condition = Condition::Failed(e);
    }
    checked.journal = pool.join(name);
    checked
}

/// A journal whose header can't be read, or whose file is not there.
fn without_file(pool: &Path, name: &str, why: &Error, checked: &mut Checked) -> Result<()> {
    checked.problems.push(Problem::general(why));
    if let Ok((header, journal)) = header_of(pool, name)
        && matches!(header.state, State::Active | State::Suspect)
    {
        checked.problems.extend(structure(journal.as_fd(), None, &header)?.1);
    }
    checked.conclude(0);
    Ok(())
}
