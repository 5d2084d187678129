//! What a file system knows of a file besides its bytes: the mark on it, the journal under its name, and the records
//! of joint commits under theirs. Each is durable as of the last `fsync` of what contains it: the file, the pool, the
//! folder that contains the pool, the folder of the records.

use super::object::ObjectId;
use crate::sys::{list, openat};
use rustix::fs::{CWD, Mode, OFlags, Stat};
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
    /// The folder of the records in it.
    pub records: PathBuf,
}

/// Mark, journal and records, as they are, or as a crash left them.
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
    /// The inode of the folder of records in the pool.
    pub folder: Option<u64>,
    /// The records in it.
    pub records: BTreeMap<String, ObjectId>,
}

/// What an `fsync` makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The file itself: its mark.
    File,
    /// A pool, by its inode: the journal in it, and the folder of records.
    Pool(u64),
    /// The folder that the file is in, and a pool beside it: the names of both.
    Folder,
    /// A folder of records, by its inode: their names.
    Records(u64),
}

/// What has versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Mark,
    Pool,
    /// Of the journal in this pool.
    Journal(u64),
    /// Of the folder of records in this pool.
    Folder(u64),
    /// Of a record in this folder.
    Record(u64, String),
}

/// What a name leads to.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Target {
    Bytes(Vec<u8>),
    Inode(u64),
    Object(ObjectId),
}

/// The versions of each name that a crash may leave: from the last durable one to the newest.
#[derive(Clone, Default)]
pub(super) struct Versions {
    pub nameless: bool,
    pub all: BTreeMap<Name, Vec<Version>>,
}

/// What a name led to from a moment on.
#[derive(Clone)]
pub(super) struct Version {
    /// The number of the operation; 0: from the beginning.
    since: usize,
    target: Option<Target>,
}

impl Name {
    fn is_in(&self, holder: Holder) -> bool {
        match self {
            Name::Mark => holder == Holder::File,
            Name::Pool => holder == Holder::Folder,
            Name::Journal(pool) | Name::Folder(pool) => holder == Holder::Pool(*pool),
            Name::Record(folder, _) => holder == Holder::Records(*folder),
        }
    }
}

impl Target {
    fn inode(&self) -> Option<u64> {
        if let Target::Inode(inode) = self { Some(*inode) } else { None }
    }

    fn object(&self) -> Option<ObjectId> {
        if let Target::Object(object) = self { Some(*object) } else { None }
    }
}

impl Names {
    /// All names that can have a target now, with it.
    fn all(&self) -> BTreeMap<Name, Option<Target>> {
        let mut all = BTreeMap::new();
        all.insert(Name::Mark, self.mark.clone().map(Target::Bytes));
        all.insert(Name::Pool, self.pool.map(Target::Inode));
        if let Some(pool) = self.pool {
            all.insert(Name::Journal(pool), self.journal.map(Target::Object));
            // Most histories have no such folder.
            all.extend(self.folder.map(|folder| (Name::Folder(pool), Some(Target::Inode(folder)))));
        }
        if let Some(folder) = self.folder {
            let record = |(name, object): (&String, &ObjectId)| {
                (Name::Record(folder, name.clone()), Some(Target::Object(*object)))
            };
            all.extend(self.records.iter().map(record));
        }
        all
    }
}

impl Versions {
    /// These names, durable.
    pub fn certain(names: &Names) -> Self {
        let all = names.all().into_iter().map(|(name, target)| (name, vec![Version { since: 0, target }])).collect();
        Self { nameless: names.nameless, all }
    }

    pub fn change(&mut self, since: usize, now: &Names) {
        let mut now_all = now.all();
        // A record may be removed alone; what is not seen of other names is in a folder that is gone with them.
        for name in self.all.keys() {
            let is_gone = match name {
                Name::Record(..) => true,
                Name::Folder(pool) => now.pool == Some(*pool),
                _ => false,
            };
            if is_gone {
                now_all.entry(name.clone()).or_insert(None);
            }
        }
        for (name, target) in now_all {
            // A new folder is empty until something is put into it.
            let is_in_new = !matches!(name, Name::Mark | Name::Pool);
            let nothing = || Version { since: 0, target: None };
            let versions = self.all.entry(name).or_insert_with(|| if is_in_new { vec![nothing()] } else { Vec::new() });
            if versions.last().is_none_or(|last| last.target != target) {
                versions.push(Version { since, target });
            }
        }
    }

    /// What the holder contains becomes durable; if `ordered`, so does what was changed before. Returns the number of the
    /// last operation that is durable.
    pub fn sync(&mut self, holder: Holder, ordered: bool) -> usize {
        self.nameless &= holder != Holder::Folder;
        let of_holder = self.all.iter_mut().filter(|(name, _)| name.is_in(holder));
        let last = of_holder.filter_map(|(_, versions)| {
            keep_last(versions);
            versions.last().map(|version| version.since)
        });
        let last = last.max().unwrap_or(0);
        if ordered {
            self.nameless &= last == 0;
            for versions in self.all.values_mut() {
                let past = at(versions, last);
                versions.drain(..past);
            }
        }
        last
    }

    /// The numbers of the operations that have changed them.
    pub fn times(&mut self) -> impl Iterator<Item = &mut usize> {
        self.all.values_mut().flatten().map(|version| &mut version.since)
    }

    /// When what is not durable was changed, in order.
    pub fn pending(&self) -> Vec<usize> {
        let mut times: Vec<usize> =
            self.all.values().flat_map(|versions| versions.iter().skip(1).map(|version| version.since)).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    /// The newest version of each name.
    pub fn newest(&self) -> Names {
        self.pick(|name| self.all.get(name).map_or(0, |versions| versions.len() - 1))
    }

    /// The same, after pool, journal and records were restored with other inodes.
    pub fn moved(&self, now: &Names) -> Self {
        let newest = self.newest();
        let pairs = [newest.pool.zip(now.pool), newest.folder.zip(now.folder)];
        let new = |inode: u64| pairs.iter().flatten().find(|(old, _)| *old == inode).map_or(inode, |(_, new)| *new);
        let of_name = |name: &Name| match name {
            Name::Mark | Name::Pool => name.clone(),
            Name::Journal(pool) => Name::Journal(new(*pool)),
            Name::Folder(pool) => Name::Folder(new(*pool)),
            Name::Record(folder, record) => Name::Record(new(*folder), record.clone()),
        };
        let of_target = |target: &Option<Target>| match target {
            Some(Target::Inode(inode)) => Some(Target::Inode(new(*inode))),
            other => other.clone(),
        };
        let moved = |version: &Version| Version { since: version.since, target: of_target(&version.target) };
        let all = self.all.iter().map(|(name, versions)| (of_name(name), versions.iter().map(moved).collect()));
        Self { nameless: self.nameless, all: all.collect() }
    }

    /// Everything becomes durable at once.
    pub fn sync_all(&mut self) {
        self.nameless = false;
        self.all.values_mut().for_each(keep_last);
    }

    /// The names for the chosen versions.
    pub fn pick(&self, chosen: impl Fn(&Name) -> usize) -> Names {
        let target = |name: &Name| self.all.get(name)?.get(chosen(name))?.target.clone();
        let mark = match target(&Name::Mark) {
            Some(Target::Bytes(mark)) => Some(mark),
            _ => None,
        };
        let pool = target(&Name::Pool).and_then(|pool| pool.inode());
        let journal = pool.and_then(|pool| target(&Name::Journal(pool))?.object());
        let folder = pool.and_then(|pool| target(&Name::Folder(pool))?.inode());
        let record = |name: &Name| match name {
            Name::Record(of, record) if Some(*of) == folder => Some((record.clone(), target(name)?.object()?)),
            _ => None,
        };
        let records = self.all.keys().filter_map(record).collect();
        Names { nameless: self.nameless, mark, pool, journal, folder, records }
    }
}

/// Which version was there after the operation of this number.
pub(super) fn at(versions: &[Version], number: usize) -> usize {
    versions.iter().rposition(|version| version.since <= number).unwrap_or(0)
}

fn keep_last<T>(versions: &mut Vec<T>) {
    versions.drain(..versions.len().saturating_sub(1));
}

fn stat(path: &Path) -> Option<Stat> {
    rustix::fs::lstat(path).ok()
}

impl Place {
    /// The names now. `object`: tells which object the file at a path is, if there is one.
    pub(super) fn look(&self, mut object: impl FnMut(&Path) -> Option<ObjectId>) -> Names {
        let mut bytes = [0; 2048];
        let mark = rustix::fs::fgetxattr(&self.file, self.attribute, &mut bytes).ok().map(|n| bytes[..n].to_vec());
        let pool = stat(&self.pool).map(|stat| stat.st_ino);
        let journal = pool.and_then(|_| object(&self.journal));
        let folder = pool.and_then(|_| stat(&self.records)).map(|stat| stat.st_ino);
        let records = folder.map(|_| self.names_of_records()).into_iter().flatten();
        let records = records.filter_map(|name| Some((name.clone(), object(&self.records.join(name))?))).collect();
        Names { nameless: false, mark, pool, journal, folder, records }
    }

    fn names_of_records(&self) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat(CWD, &self.records, flags, Mode::empty()) else { return Vec::new() };
        let Ok(entries) = list(&folder) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| name.ends_with(".joint")).collect()
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
        } else if Some(key) == of_path(Some(&self.records)) {
            Some(Holder::Records(key.1))
        } else {
            None
        }
    }
}
