//! The records that this process writes: a file for each joint commit under way, reused by later ones, and removed
//! when the process has no file of the pool open any more that took part in one.

use crate::error::{Error, Result};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::state::per_process::PerProcess;
use crate::journal::joint::Folder;
use crate::journal::live::Live;
use crate::journal::{Pool, lock};
use crate::pmem::{Domain, Medium, medium};
use crate::settings::Durability;
use crate::sys::{InternalFd, file_size_limit};
use crate::thread::Mutex;
use rustix::fs::fstat;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Files with the same key share records: those in one pool that the same users may read and write. Others could read
/// in a record what they may not read in the file, or write what they may not write there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    pool: (u64, u64),
    users: Users,
    durability: Durability,
    process: u32,
}

/// Owner, group, and permissions of group and others.
type Users = (u32, u32, u32);

fn users_of(file: BorrowedFd<'_>) -> Result<Users> {
    let stat = fstat(file)?;
    Ok((stat.st_uid, stat.st_gid, stat.st_mode & 0o066))
}

fn identity_of(pool: &Pool) -> Result<(u64, u64)> {
    let stat = fstat(pool.folder())?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The records of one key.
pub(in crate::file) struct Records {
    key: Key,
    pool: PathBuf,
    /// Not in use now.
    free: Mutex<Vec<Place>>,
}

/// One record's file, and the name of its folder in the pool.
struct Place {
    file: InternalFd,
    folder: String,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.file.run(|file| {
            lock::give_record(file);
            Ok(())
        });
    }
}

static ALL: PerProcess<Vec<Weak<Records>>> = PerProcess::new(Vec::new());

/// In a forked child: the parent's records are not the child's.
pub(in crate::file) fn begin_child() {
    ALL.begin_child();
}

/// Attempts to use folders that other processes remove as empty at that moment.
const TRIES: u32 = 100;

/// A file's records, valid as long as its journal is the same file at the same place: one that was made anew may lie in
/// a new folder of the same name.
#[derive(Default)]
pub(in crate::file) struct Joint(Mutex<Option<Known>>);

/// The records, with the place and the identity of the journal beside which they were found.
type Known = (PathBuf, (u64, u64), Arc<Records>);

impl Joint {
    /// The records for a file with that journal.
    pub fn records(&self, file: BorrowedFd<'_>, journal: &Live) -> Result<Arc<Records>> {
        let (mut here, place, identity) = (self.0.lock(), journal.place(), journal.file().identity());
        if let Some((at, of, records)) = &*here
            && (at, of) == (&place, &identity)
            && records.key.users == users_of(file)?
            && records.key.process == std::process::id()
        {
            return Ok(records.clone());
        }
        let found = Records::of(file, journal)?;
        *here = Some((place, identity, found.clone()));
        Ok(found)
    }

    /// The program has closed the file; or the records are not where its journal is.
    pub fn leave(&self) {
        let records = self.0.lock().take();
        drop(records);
    }
}

/// Why a record could not be written.
pub(in crate::file) struct Failed {
    pub refusal: Refusal,
    /// Whether a crash may leave it nevertheless.
    pub is_undecided: bool,
}

/// A record that is durable. Its file is neither reused nor removed unless it [ends](Self::end).
pub(in crate::file) struct Written {
    records: Arc<Records>,
    place: Place,
}

impl Written {
    /// All files have committed their parts, each as an epoch.
    pub fn end(self) {
        self.records.free.lock().push(self.place);
    }

    /// All have, but for some that was no epoch, since nothing changed: the record would be applied again, so it is
    /// removed.
    pub fn end_for_good(self) {
        self.records.remove(&self.place);
    }
}

fn as_written(durability: Durability) -> &'static dyn Medium {
    medium(if durability == Durability::Power { Domain::PageCache } else { Domain::Process }, false)
}

impl Records {
    fn of(file: BorrowedFd<'_>, journal: &Live) -> Result<Arc<Self>> {
        let pool = journal.find_pool(file)?;
        let (users, durability, process) = (users_of(file)?, journal.durability(), std::process::id());
        let key = Key { pool: identity_of(&pool)?, users, durability, process };
        let mut all = ALL.lock();
        all.retain(|records| records.strong_count() > 0);
        let found = all.iter().filter_map(Weak::upgrade).find(|records| records.key == key);
        Ok(found.unwrap_or_else(|| {
            let made = Arc::new(Self { key, pool: pool.path().to_path_buf(), free: Mutex::default() });
            all.push(Arc::downgrade(&made));
            made
        }))
    }

    /// A record's file that others find after a crash.
    fn create(&self, file: BorrowedFd<'_>, journal: &Live) -> Answer<Place> {
        let pool = journal.find_pool(file)?;
        if identity_of(&pool)? != self.key.pool {
            return Err(Refusal::session_ended()); // it was moved just now: again, from the beginning
        }
        let durability = self.key.durability;
        let medium = as_written(durability);
        for _ in 0..TRIES {
            let made = Folder::make(&pool, file).and_then(|folder| {
                let (record, name) = folder.create(file)?;
                if durability == Durability::Power {
                    medium.fsync(record.as_fd())?;
                }
                folder.sync(durability, medium)?;
                Ok(Place { file: record, folder: folder.name().to_owned(), name })
            });
            match made {
                Err(e) if e.errno() == libc::ENOENT => {}
                made => return Ok(made?),
            }
        }
        Err(Error::with(libc::EIO, "the folder of its records is removed again and again").into())
    }

    /// An unused file for a record that still has its name.
    fn take(&self, file: BorrowedFd<'_>, journal: &Live) -> Answer<Place> {
        loop {
            let place = self.free.lock().pop();
            let Some(place) = place else { return self.create(file, journal) };
            if place.file.run(|file| Ok(fstat(file)?.st_nlink > 0)).unwrap_or(false) {
                return Ok(place);
            }
        }
    }

    /// Writes a record durably. `file`, with its journal, takes part in it.
    pub(in crate::file) fn write(
        self: &Arc<Self>,
        bytes: &[u8],
        file: BorrowedFd<'_>,
        journal: &Live,
    ) -> core::result::Result<Written, Failed> {
        if bytes.len() as u64 > file_size_limit() {
            let what = "the record of the commit: the limit on file sizes (ulimit -f) leaves it no room";
            return Err(Failed { refusal: Error::with(libc::ENOSPC, what).into(), is_undecided: false });
        }
        let place = self.take(file, journal).map_err(|refusal| Failed { refusal, is_undecided: false })?;
        let medium = as_written(self.key.durability);
        if let Err(error) = place.file.run(|file| medium.pwritev(file.as_fd(), &[bytes], 0)) {
            self.free.lock().push(place); // not whole, and its old contents are not needed
            return Err(Failed { refusal: error.into(), is_undecided: false });
        }
        if self.key.durability == Durability::Power
            && let Err(error) = place.file.run(|file| medium.fdatasync(file.as_fd()))
        {
            return Err(Failed { refusal: error.into(), is_undecided: true });
        }
        Ok(Written { records: self.clone(), place })
    }

    fn remove(&self, place: &Place) {
        let Ok(pool) = Pool::at(&self.pool, None) else { return };
        if identity_of(&pool).is_ok_and(|identity| identity == self.key.pool)
            && let Ok(folder) = Folder::again(&pool, place.folder.clone())
        {
            folder.remove(&place.name);
            folder.remove_if_empty();
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // Not in a forked child.
        if self.key.process == std::process::id() {
            self.free.lock().iter().for_each(|place| self.remove(place));
        }
    }
}
