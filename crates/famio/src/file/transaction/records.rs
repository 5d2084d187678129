//! The records that this process writes: a file for each joint commit that is under way, used again by the next one, and removed when the
//! process has no file of the pool open any more that took part in one.

use crate::error::{Error, Result};
use crate::journal::joint::Folder;
use crate::journal::live::Live;
use crate::journal::{JournalId, Pool};
use crate::pmem::{Domain, Medium, medium};
use crate::settings::Durability;
use crate::sys::InternalFd;
use crate::thread::Mutex;
use rustix::fs::fstat;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Which files have the same records: those in one pool that the same users may read and write. Others could read in a record what they
/// may not read in the file, or write what they may not write there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    pool: (u64, u64),
    users: Users,
    durability: Durability,
}

/// Owner, group, and what other users than the owner may do.
type Users = (u32, u32, u32);

fn users_of(file: BorrowedFd<'_>) -> Result<Users> {
    let stat = fstat(file)?;
    Ok((stat.st_uid, stat.st_gid, stat.st_mode & 0o066))
}

/// The records of one key.
pub(in crate::file) struct Records {
    key: Key,
    process: u32,
    pool: PathBuf,
    /// The folder's name in the pool.
    folder: String,
    /// Not in use now.
    free: Mutex<Vec<Place>>,
}

/// One record's file.
struct Place {
    file: InternalFd,
    name: String,
}

static ALL: Mutex<Vec<Weak<Records>>> = Mutex::new(Vec::new());

/// What a file knows of them: its records, as long as it has that journal.
#[derive(Default)]
pub(in crate::file) struct Joint(Mutex<Option<(JournalId, Arc<Records>)>>);

impl Joint {
    /// The records for a file with that journal.
    pub fn records(&self, file: BorrowedFd<'_>, journal: &Live) -> Result<Arc<Records>> {
        let mut here = self.0.lock();
        if let Some((id, records)) = &*here
            && *id == journal.id()
            && records.key.users == users_of(file)?
        {
            return Ok(records.clone());
        }
        let found = Records::of(file, journal)?;
        *here = Some((journal.id(), found.clone()));
        Ok(found)
    }

    /// The program has closed the file.
    pub fn leave(&self) {
        let records = self.0.lock().take();
        drop(records);
    }
}

/// Why a record could not be written.
pub(super) struct Failed {
    pub error: Error,
    /// Whether a crash may find it all the same.
    pub is_undecided: bool,
}

/// A record that was written, and is durable. Its file is not used again, nor removed, unless it [is done](Self::is_done).
pub(super) struct Written {
    records: Arc<Records>,
    place: Place,
}

impl Written {
    /// All files have committed their parts.
    pub fn is_done(self) {
        self.records.free.lock().push(self.place);
    }
}

fn as_written(durability: Durability) -> &'static dyn Medium {
    medium(if durability == Durability::Power { Domain::PageCache } else { Domain::Process }, false)
}

impl Records {
    fn of(file: BorrowedFd<'_>, journal: &Live) -> Result<Arc<Self>> {
        let pool = journal.find_pool(file)?;
        let of_pool = fstat(pool.folder())?;
        let (users, durability) = (users_of(file)?, journal.durability());
        let key = Key { pool: (of_pool.st_dev, of_pool.st_ino), users, durability };
        let mut all = ALL.lock();
        all.retain(|records| records.strong_count() > 0);
        let process = std::process::id();
        let found =
            all.iter().filter_map(Weak::upgrade).find(|records| records.key == key && records.process == process);
        if let Some(found) = found {
            return Ok(found);
        }
        let folder = Folder::make(&pool, file)?;
        let (pool_path, name) = (pool.path().to_path_buf(), folder.name().to_owned());
        let made = Arc::new(Self { key, process, pool: pool_path, folder: name, free: Mutex::default() });
        made.free.lock().push(made.create(&folder, file)?);
        all.push(Arc::downgrade(&made));
        Ok(made)
    }

    /// A record's file that others find after a crash.
    fn create(&self, folder: &Folder<'_>, file: BorrowedFd<'_>) -> Result<Place> {
        let (record, name) = folder.create(file)?;
        let medium = as_written(self.key.durability);
        if self.key.durability == Durability::Power {
            medium.fsync(record.as_fd())?;
        }
        folder.sync(self.key.durability, medium)?;
        Ok(Place { file: record, name })
    }

    /// A record's file that nobody uses, and that has its name still.
    fn take(&self) -> Result<Place> {
        let mut like = None;
        while let Some(place) = self.free.lock().pop() {
            if place.file.run(|file| Ok(fstat(file)?.st_nlink > 0))? {
                return Ok(place);
            }
            like = Some(place);
        }
        let pool = Pool::at(&self.pool, None)?;
        let folder = Folder::again(&pool, self.folder.clone())?;
        let name = like.ok_or(Error::new(libc::EAGAIN))?;
        name.file.run(|file| self.create(&folder, file.as_fd()))
    }

    /// Writes a record, durably.
    pub(super) fn write(self: &Arc<Self>, bytes: &[u8]) -> core::result::Result<Written, Failed> {
        let before = |error| Failed { error, is_undecided: false };
        let place = self.take().map_err(before)?;
        let medium = as_written(self.key.durability);
        place.file.run(|file| medium.pwritev(file.as_fd(), &[bytes], 0)).map_err(before)?;
        if self.key.durability == Durability::Power {
            let flushed = place.file.run(|file| medium.fdatasync(file.as_fd()));
            flushed.map_err(|error| Failed { error, is_undecided: true })?;
        }
        Ok(Written { records: self.clone(), place })
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // a forked child
        }
        let Ok(pool) = Pool::at(&self.pool, None) else { return };
        if let Ok(folder) = Folder::again(&pool, self.folder.clone()) {
            self.free.lock().iter().for_each(|place| folder.remove(&place.name));
            folder.remove_if_empty();
        }
    }
}
