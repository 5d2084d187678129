//! Records lie in a folder of the pool, so that a recovery finds them without reading all journals.

use crate::error::{Error, Result};
use crate::journal::bytes::hex;
use crate::journal::pools::beside::is_sticky;
use crate::journal::pools::reach::{look, open_looked_at};
use crate::journal::pools::{access, trust};
use crate::journal::{JournalId, Pool, lock, sync_dir};
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::sys::InternalFd;
use rustix::fs::{AtFlags, Mode, OFlags, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const SUFFIX: &str = ".joint";

const FOLDER: &str = "joint";

/// A folder of records. Holds descriptors, so it must be short-lived.
pub(crate) struct Folder<'a> {
    pool: &'a Pool,
    folder: InternalFd,
    name: String,
}

/// The name of the folder: one for all files of the pool, or, in a pool with the sticky bit, where users may not
/// remove each other's files, one for each owner.
fn name_for(pool: &Pool, file: BorrowedFd<'_>) -> Result<String> {
    let sticky = is_sticky(&fstat(pool.folder())?);
    Ok(if sticky { format!("{FOLDER}-{}", fstat(file)?.st_uid) } else { FOLDER.into() })
}

/// The records that may have a part of `file`. `None`: the pool has no such folder, or one that cannot be trusted.
pub(crate) fn find<'a>(pool: &'a Pool, file: BorrowedFd<'_>) -> Result<Option<Folder<'a>>> {
    let name = name_for(pool, file)?;
    match open(pool, &name) {
        Ok(folder) => {
            let folder = Folder { pool, folder, name };
            Ok(folder.check(file).is_ok().then_some(folder))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        Err(e) => Err(Error::from(e).context(format_args!("{}", pool.path_of(&name).display()))),
    }
}

/// Whether a folder in a pool has the name of a folder of records.
pub(crate) fn may_have_records(name: &[u8]) -> bool {
    let rest = name.strip_prefix(FOLDER.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'-' && rest[1..].iter().all(u8::is_ascii_digit))
}

/// The folders of all owners in a pool.
pub(crate) fn find_all(pool: &Pool) -> Result<Vec<Folder<'_>>> {
    let mut all = Vec::new();
    for entry in crate::sys::list(pool.folder())? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && may_have_records(name.as_bytes())
            && let Ok(folder) = open(pool, name)
        {
            all.push(Folder { pool, folder, name: name.to_owned() });
        }
    }
    Ok(all)
}

fn open(pool: &Pool, name: &str) -> rustix::io::Result<InternalFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    crate::sys::openat(pool.folder(), name, flags, Mode::empty())
}

impl<'a> Folder<'a> {
    /// Creates the folder if it does not exist. Durable after [`sync`](Self::sync).
    pub fn make(pool: &'a Pool, file: BorrowedFd<'_>) -> Result<Self> {
        let name = name_for(pool, file)?;
        let failed = |e: Error| e.context(format_args!("{}", pool.path_of(&name).display()));
        access::make_folder(pool.folder(), &name, file).map_err(failed)?;
        let folder = open(pool, &name).map_err(|e| failed(e.into()))?;
        let made = Self { pool, folder, name };
        made.check(file).map_err(|e| e.context(format_args!("{}", pool.path_of(&made.name).display())))?;
        Ok(made)
    }

    /// Whether records of that file may lie in it; as for journals in a pool.
    fn check(&self, file: BorrowedFd<'_>) -> Result<()> {
        trust::check_folder(self.folder.as_fd(), Some(self.pool.folder()), Some(file)).map(drop)
    }

    /// Reopens the folder by the name that [`name`](Self::name) returned.
    pub fn again(pool: &'a Pool, name: String) -> Result<Self> {
        Ok(Self { pool, folder: open(pool, &name)?, name })
    }

    /// Its name in the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an empty record, with the permissions of a journal of `file`; returns it with its name.
    pub fn create(&self, file: BorrowedFd<'_>) -> Result<(InternalFd, String)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = hex(&JournalId::random()?.0) + SUFFIX;
        let record = crate::sys::openat(&self.folder, &*name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.named(&name, e.into()))?;
        let given = access::give_to_owner_of(file, record.as_fd());
        if given.is_err() {
            self.remove(&name); // no process has seen it
        }
        given.map_err(|e| self.named(&name, e))?;
        // A process that removes old records may have been faster.
        if !lock::take_record(&record).unwrap_or(true) || fstat(&record)?.st_nlink == 0 {
            return Err(Error::new(libc::ENOENT));
        }
        record.set_name(self.pool.path_of(&self.name).join(&name).into_os_string().into_encoded_bytes(), false)?;
        Ok((record, name))
    }

    /// Makes the folder, and what was created in it, durable.
    pub fn sync(&self, durability: Durability, medium: &dyn Medium) -> Result<()> {
        sync_dir(self.folder.as_fd(), durability, medium)?;
        sync_dir(self.pool.folder(), durability, medium)
    }

    /// Calls `visit` with each record's file; and with the reason not to trust it, if users could have written it who
    /// may not write the file.
    pub fn each(
        &self,
        file: BorrowedFd<'_>,
        mut visit: impl FnMut(BorrowedFd<'_>, Option<Error>) -> Result<()>,
    ) -> Result<()> {
        self.each_name(|name| {
            let looked = match look(self.folder.as_fd(), name) {
                Ok(looked) => looked,
                Err(Errno::NOENT) => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            let untrusted = trust::check_journal(looked.as_fd(), Some(file), self.folder.as_fd()).err();
            if untrusted.is_some() && trust::check_journal(looked.as_fd(), None, self.folder.as_fd()).is_err() {
                return Ok(()); // not a file
            }
            // If every user who may write the file cannot open it, it is not the file's.
            match open_looked_at(looked.as_fd(), if untrusted.is_some() { OFlags::RDONLY } else { OFlags::RDWR }) {
                Err(e) if [libc::EACCES, libc::EPERM].contains(&e.errno()) => Ok(()),
                opened => visit(opened?.as_fd(), untrusted),
            }
        })
    }

    fn each_name(&self, mut visit: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let failed = |e: Errno| Error::from(e).context(format_args!("{}", self.pool.path_of(&self.name).display()));
        for entry in crate::sys::list(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(name) = entry.file_name().to_str().ok().filter(|name| name.ends_with(SUFFIX)) {
                visit(name).map_err(|e| self.named(name, e))?;
            }
        }
        Ok(())
    }

    /// Removes the records that no process uses and for which `is_old` is true. Returns how many; of very many, some
    /// may stay.
    pub fn remove_old(&self, mut is_old: impl FnMut(BorrowedFd<'_>) -> Result<bool>) -> Result<usize> {
        const MOST: usize = 1000;
        let mut names = Vec::new();
        self.each_name(|name| {
            if names.len() < MOST {
                names.push(name.to_owned());
            }
            Ok(())
        })?;
        let mut removed = 0;
        let owner = fstat(&self.folder)?.st_uid;
        for name in names {
            let Ok(looked) = look(self.folder.as_fd(), &name) else { continue };
            // Only records of the folder's owner, root and this user are read for this.
            let is_ours = [owner, 0, rustix::process::geteuid().as_raw()].contains(&fstat(&looked)?.st_uid);
            if !is_ours || trust::check_journal(looked.as_fd(), None, self.folder.as_fd()).is_err() {
                continue;
            }
            let Ok(record) = open_looked_at(looked.as_fd(), OFlags::RDWR) else { continue };
            if lock::take_record(&record).unwrap_or(false) && is_old(record.as_fd())? {
                self.remove(&name);
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes a record. Best effort: a leftover does no harm.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Removes the folder if it is empty; then the pool, if it is an empty `.famio/`.
    pub fn remove_if_empty(&self) {
        if rustix::fs::unlinkat(self.pool.folder(), &*self.name, AtFlags::REMOVEDIR).is_ok() {
            self.pool.remove_if_empty();
        }
    }

    fn named(&self, name: &str, error: Error) -> Error {
        error.context(format_args!("record {}", self.pool.path_of(&self.name).join(name).display()))
    }
}
