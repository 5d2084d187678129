//! `famio status`: which journals there are, and in what state.

use super::paths::{header_of, journals_below, kind_of, open_file, owner, pool_setting};
use crate::error::{Error, Result};
use crate::journal::header::Kind;
use crate::journal::inplace::{Key, Log};
use crate::journal::{Header, Identity, Pool, journal_name, mark};
use crate::map::Mapping;
use crate::pmem::medium;
use crate::settings::Settings;
use crate::sys::high_duplicate;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A journal that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The journal.
    pub journal: PathBuf,
    /// Its file, as last seen: a hint.
    pub file: PathBuf,
    /// `in place`, `records`, or why the header can't be read.
    pub kind: String,
    /// `creating`, `active`, `clean`, `suspect`, or `unreadable`.
    pub state: &'static str,
    /// The last commit, or 0 where none can be read.
    pub epoch: u64,
    /// Bytes of the journal's file.
    pub size: u64,
    /// The process that has the file open as an atomic file.
    pub owner: Option<u32>,
}

/// Lists the journal of a file, those of a pool, or all below a folder. Reads only; a journal in use may be older by the
/// time it is shown.
pub fn survey(path: &Path, settings: &Settings) -> Result<Vec<Found>> {
    if kind_of(path)? == FileType::Directory {
        return Ok(journals_below(path)?.iter().map(|(pool, name)| look(pool, name)).collect());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file =
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::from(e).context(path.display()))?;
    let marked = mark::get(file.as_fd())?;
    let pool = match &marked {
        Some(mark) => mark.pool.clone(),
        None => settings.pool.clone(),
    };
    let name = journal_name(&Identity::of_fd(file.as_fd())?);
    match Pool::find(file.as_fd(), pool.as_deref())? {
        Some(pool) if pool.open_read_only(&name, Some(file.as_fd()))?.is_some() => Ok(vec![look(pool.path(), &name)]),
        _ => Ok(Vec::new()),
    }
}

fn look(pool: &Path, name: &str) -> Found {
    let journal = pool.join(name);
    match header_of(pool, name) {
        Ok((header, fd)) => {
            let size = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_size as u64);
            let settings = Settings { pool: pool_setting(pool), ..Settings::default() };
            let file = open_file(&header.path_hint, OFlags::RDONLY).ok();
            let owner = file.and_then(|file| owner(file.as_fd(), &settings));
            Found {
                epoch: epoch_of(&header, &fd, size).unwrap_or(header.epoch),
                file: header.path_hint.clone(),
                kind: header.kind.name().into(),
                state: header.state.name(),
                journal,
                size,
                owner,
            }
        }
        Err(e) => Found {
            journal,
            file: PathBuf::new(),
            kind: e.to_string(),
            state: "unreadable",
            epoch: 0,
            size: 0,
            owner: None,
        },
    }
}

/// The last commit, by the slots; a journal of records is not read through for that.
fn epoch_of(header: &Header, fd: &OwnedFd, size: u64) -> Option<u64> {
    if header.kind != Kind::InPlace || size < crate::journal::inplace::SEGMENTS_START {
        return None;
    }
    let map = Mapping::reserve(fd.as_fd(), header.domain, size, false, size as usize).ok()?;
    let medium = medium(header.domain, false);
    let log = Log::new(high_duplicate(fd.as_fd()).ok()?, map, medium, Key::of(header.journal_id), size);
    log.slots().last().map(|commit| commit.epoch)
}
