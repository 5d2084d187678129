//! What a file system knows of a file besides its bytes: the mark on it, and the journal under its name. Each is
//! durable as of the last `fsync` of what contains it: the file, the pool, or the folder that contains the pool.

use super::ObjectId;
use crate::error::Result;
use rustix::fs::{CWD, Stat};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where a file, its pool and its journal are. The recorder looks at them before every system call.
pub struct Place {
    /// The file, open.
    pub file: OwnedFd,
    /// The folder that the file is in.
    pub folder: PathBuf,
    /// The name of the attribute that marks it.
    pub attribute: &'static std::ffi::CStr,
    /// The pool.
    pub pool: PathBuf,
    /// The journal's path in it.
    pub journal: PathBuf,
}

/// Mark and journal, as they are, or as a crash left them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Names {
    /// Nothing has made the file's own name durable yet.
    pub nameless: bool,
    /// The mark's bytes.
    pub mark: Option<Vec<u8>>,
    /// The pool's inode.
    pub pool: Option<u64>,
    /// The journal in the pool.
    pub journal: Option<ObjectId>,
}

/// What an `fsync` makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The file itself: its mark.
    File,
    /// A pool, by its inode: the journal in it.
    Pool(u64),
    /// The folder that the file is in, and a pool beside it: the names of both.
    Folder,
}

/// The versions of each name that a crash may leave: from the last durable one to the newest.
#[derive(Clone, Default)]
pub(super) struct Versions {
    pub nameless: bool,
    pub mark: Vec<Option<Vec<u8>>>,
    pub pool: Vec<Option<u64>>,
    pub entries: BTreeMap<u64, Vec<Option<ObjectId>>>,
}

impl Versions {
    /// These names, durable.
    pub fn certain(names: &Names) -> Self {
        let entries = names.pool.map(|pool| (pool, vec![names.journal])).into_iter().collect();
        Self { nameless: names.nameless, mark: vec![names.mark.clone()], pool: vec![names.pool], entries }
    }

    pub fn change(&mut self, now: &Names) {
        push(&mut self.mark, &now.mark);
        push(&mut self.pool, &now.pool);
        if let Some(pool) = now.pool {
            // A new folder is empty until something is put into it.
            push(self.entries.entry(pool).or_insert_with(|| vec![None]), &now.journal);
        }
    }

    pub fn sync(&mut self, holder: Holder) {
        match holder {
            Holder::File => keep_last(&mut self.mark),
            Holder::Folder => {
                self.nameless = false;
                keep_last(&mut self.pool);
            }
            Holder::Pool(pool) => self.entries.get_mut(&pool).map_or((), keep_last),
        }
    }

    /// The same, after pool and journal were restored with other inodes.
    pub fn moved(&self, now: &Names) -> Self {
        let Some((old, pool)) = self.pool.last().copied().flatten().zip(now.pool) else { return self.clone() };
        let mut moved = self.clone();
        moved.pool.iter_mut().filter(|version| **version == Some(old)).for_each(|version| *version = Some(pool));
        if let Some(versions) = moved.entries.remove(&old) {
            moved.entries.insert(pool, versions);
        }
        moved
    }

    /// Everything becomes durable at once.
    pub fn sync_all(&mut self) {
        self.nameless = false;
        keep_last(&mut self.mark);
        keep_last(&mut self.pool);
        self.entries.values_mut().for_each(keep_last);
    }

    /// The names for the chosen versions; the newest version where none was chosen.
    pub fn pick(&self, mark: usize, pool: usize, entry: impl Fn(u64) -> usize) -> Names {
        let pool = self.pool.get(pool).copied().flatten();
        let journal = pool.and_then(|pool| self.entries.get(&pool)?.get(entry(pool)).copied().flatten());
        Names { nameless: self.nameless, mark: self.mark.get(mark).cloned().flatten(), pool, journal }
    }
}

fn push<T: PartialEq + Clone>(versions: &mut Vec<T>, now: &T) {
    if versions.last() != Some(now) {
        versions.push(now.clone());
    }
}

fn keep_last<T>(versions: &mut Vec<T>) {
    versions.drain(..versions.len().saturating_sub(1));
}

fn stat(path: &Path) -> Option<Stat> {
    rustix::fs::lstat(path).ok()
}

impl Place {
    /// The names now, with the journal's device and inode.
    pub(super) fn look(&self) -> (Names, Option<(u64, u64)>) {
        let mut bytes = [0; 2048];
        let mark = rustix::fs::fgetxattr(&self.file, self.attribute, &mut bytes).ok().map(|n| bytes[..n].to_vec());
        let pool = stat(&self.pool).map(|stat| stat.st_ino);
        let journal = pool.and_then(|_| stat(&self.journal)).map(|stat| (stat.st_dev, stat.st_ino));
        (Names { nameless: false, mark, pool, journal: None }, journal)
    }

    /// The journal, open for reading.
    pub(super) fn open_journal(&self) -> Result<OwnedFd> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, &self.journal, flags, rustix::fs::Mode::empty())?)
    }

    /// Which part of this place `fd` contains.
    pub(super) fn holder(&self, fd: BorrowedFd<'_>) -> Option<Holder> {
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
        let key = inode(fd)?;
        let of_path = |path: Option<&Path>| path.and_then(stat).map(|stat| (stat.st_dev, stat.st_ino));
        if Some(key) == inode(self.file.as_fd()) {
            Some(Holder::File)
        } else if Some(key) == of_path(Some(&self.pool)) {
            Some(Holder::Pool(key.1))
        } else if Some(key) == of_path(Some(&self.folder)) {
            Some(Holder::Folder)
        } else {
            None
        }
    }
}
