//! Where records lie: in a folder of the pool that is the files' owner's, so that a recovery finds them without a look at all journals.

use crate::error::{Error, Result};
use crate::journal::bytes::hex;
use crate::journal::reach::{look, open_looked_at};
use crate::journal::{JournalId, Pool, access, lock, sync_dir};
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::sys::InternalFd;
use rustix::fs::{AtFlags, Mode, OFlags, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const SUFFIX: &str = ".joint";

const FOLDER: &str = "joint-";

/// The folder of one owner's records. Holds descriptors: not to be kept.
pub(crate) struct Folder<'a> {
    pool: &'a Pool,
    folder: InternalFd,
    name: String,
}

fn name_for(file: BorrowedFd<'_>) -> Result<String> {
    Ok(format!("{FOLDER}{}", fstat(file)?.st_uid))
}

/// The records that may have a part of `file`. `None`: there is no folder, nor was there any in this pool for long.
pub(crate) fn find<'a>(pool: &'a Pool, file: BorrowedFd<'_>) -> Result<Option<Folder<'a>>> {
    let name = name_for(file)?;
    match open(pool, &name) {
        Ok(folder) => Ok(Some(Folder { pool, folder, name })),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(Error::from(e).context(format_args!("{}", pool.path_of(&name).display()))),
    }
}

/// Whether a folder in a pool has the name of one.
pub(crate) fn may_have_records(name: &[u8]) -> bool {
    name.starts_with(FOLDER.as_bytes())
}

/// Those of all owners in a pool.
pub(crate) fn find_all(pool: &Pool) -> Result<Vec<Folder<'_>>> {
    let mut all = Vec::new();
    for entry in crate::sys::list(pool.folder())? {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str().ok().filter(|name| name.starts_with(FOLDER))
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
    /// Makes it, if it is not there. Durable after [`sync`](Self::sync).
    pub fn make(pool: &'a Pool, file: BorrowedFd<'_>) -> Result<Self> {
        let name = name_for(file)?;
        let failed = |e: Error| e.context(format_args!("{}", pool.path_of(&name).display()));
        access::make_folder(pool.folder(), &name, file).map_err(failed)?;
        let folder = open(pool, &name).map_err(|e| failed(e.into()))?;
        Ok(Self { pool, folder, name })
    }

    /// The one of that name, which [`name`](Self::name) gave.
    pub fn again(pool: &'a Pool, name: String) -> Result<Self> {
        Ok(Self { pool, folder: open(pool, &name)?, name })
    }

    /// Its name in the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new record, empty, and its name: as a journal of `file` would be.
    pub fn create(&self, file: BorrowedFd<'_>) -> Result<(InternalFd, String)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = hex(&JournalId::random()?.0) + SUFFIX;
        let record = crate::sys::openat(&self.folder, &*name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.named(&name, e.into()))?;
        let given = access::give_to_owner_of(file, record.as_fd());
        if given.is_err() {
            self.remove(&name); // nobody has seen it
        }
        given.map_err(|e| self.named(&name, e))?;
        lock::begin(&record);
        record.set_name(self.pool.path_of(&self.name).join(&name).into_os_string().into_encoded_bytes(), false)?;
        Ok((record, name))
    }

    /// Makes durable what was created here, and that the folder is there.
    pub fn sync(&self, durability: Durability, medium: &dyn Medium) -> Result<()> {
        sync_dir(self.folder.as_fd(), durability, medium)?;
        sync_dir(self.pool.folder(), durability, medium)
    }

    /// Calls `visit` with each record's file, and its name; for a `file`, with those that may be used for it.
    pub fn each(
        &self,
        file: Option<BorrowedFd<'_>>,
        mut visit: impl FnMut(&str, BorrowedFd<'_>) -> Result<()>,
    ) -> Result<()> {
        let failed = |e: Errno| Error::from(e).context(format_args!("{}", self.pool.path_of(&self.name).display()));
        for entry in crate::sys::list(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(name) = entry.file_name().to_str().ok().filter(|name| name.ends_with(SUFFIX)) else { continue };
            if let Some(record) = self.open_record(name, file)? {
                visit(name, record.as_fd()).map_err(|e| self.named(name, e))?;
            }
        }
        Ok(())
    }

    fn open_record(&self, name: &str, file: Option<BorrowedFd<'_>>) -> Result<Option<InternalFd>> {
        let looked = match look(self.folder.as_fd(), name) {
            Ok(looked) => looked,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(self.named(name, e.into())),
        };
        // One that others could have written does not count.
        if access::check_journal(looked.as_fd(), file).is_err() {
            return Ok(None);
        }
        open_looked_at(looked.as_fd(), OFlags::RDWR).map(Some).map_err(|e| self.named(name, e))
    }

    /// Removes a record. Best effort: one that stays does no harm.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Removes the folder, if it is empty, and the pool, if that is a `.famio/` and empty then.
    pub fn remove_if_empty(&self) {
        if rustix::fs::unlinkat(self.pool.folder(), &*self.name, AtFlags::REMOVEDIR).is_ok() {
            self.pool.remove_if_empty();
        }
    }

    fn named(&self, name: &str, error: Error) -> Error {
        error.context(format_args!("record {}", self.pool.path_of(&self.name).join(name).display()))
    }
}
