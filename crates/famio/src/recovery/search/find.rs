//! Finds the file of a journal that a walk has found.

use crate::error::{Error, Result};
use crate::journal::control;
use crate::journal::header::first_bytes;
use crate::journal::pools::pool::{SUFFIX, is_beside_name, is_journal_name};
use crate::journal::pools::reach::{is_regular, look, reach};
use crate::journal::{Header, Identity, Pool, State, path_of};
use crate::sys::{InternalFd, openat};
use core::cell::{Cell, OnceCell};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A pool, and the files beside it.
pub(in crate::recovery) struct Place {
    pub pool: Pool,
    /// The regular files beside a `.famio/`, by the hash of their identities; built once for all journals.
    beside: OnceCell<HashMap<u128, CString>>,
    looked: Cell<usize>,
}

/// A journal's file, so far as an `O_PATH` descriptor.
pub(in crate::recovery) struct Located {
    pub path: PathBuf,
    pub file: InternalFd,
    /// Whether it lies beside the pool, which is a `.famio/`.
    pub is_beside: bool,
}

impl Place {
    pub fn new(pool: Pool) -> Self {
        Self { pool, beside: OnceCell::new(), looked: Cell::new(0) }
    }

    /// The journal at a path, with the pool in which it lies.
    pub fn of_journal(path: &Path) -> Option<(Self, &str)> {
        let name = path.file_name()?.to_str().filter(|name| is_journal_name(name))?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let open =
            |at: BorrowedFd<'_>, name: &Path| openat(at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let folder = open(CWD, above).ok()?;
        let path = path_of(folder.as_fd()).ok()?;
        let is_beside = path.file_name().is_some_and(is_beside_name);
        let parent = if is_beside { Some(open(folder.as_fd(), Path::new("..")).ok()?) } else { None };
        let place = Self::new(Pool::of_folder(folder, path, parent));
        // Elsewhere, a user may have given such a name to another file.
        (is_beside || place.header(name).is_ok()).then_some((place, name))
    }

    /// How many files were asked for their identity.
    #[cfg(test)]
    pub fn looked(&self) -> usize {
        self.looked.get()
    }

    /// Opens a journal for reading, and reads its header.
    pub fn header(&self, name: &str) -> Result<(Header, InternalFd)> {
        self.pool.check(None)?;
        let fd = self.pool.open_read_only(name, None)?.ok_or(Error::new(libc::ENOENT))?;
        let (bytes, length) = first_bytes(fd.as_fd())?;
        Ok((Header::read(&bytes[..length])?.0, fd))
    }

    /// The file that a journal names: the file at the recorded path, if it has the recorded identity; otherwise, for
    /// a `.famio/`, a file beside it that has. A journal without a header (its creation was cut short) names its file
    /// only by its own name.
    pub fn file_of(&self, name: &str) -> Result<Located> {
        let header = self.header(name).map(|(header, _)| header);
        if let Ok(header) = &header
            && let Some(found) = self.by_hint(header)
        {
            return Ok(found);
        }
        let hash = match &header {
            Ok(header) => Some(header.identity.hash128()),
            Err(_) => hash_in(name),
        };
        if let (Some(hash), Some(folder)) = (hash, self.pool.parent())
            && let Some(name) = self.beside(folder)?.get(&hash)
            && let Ok(file) = look(folder, &**name)
            && Identity::of_fd(file.as_fd())?.hash128() == hash
        {
            let path = self.pool.path().with_file_name(OsStr::from_bytes(name.to_bytes()));
            return Ok(Located { path, file, is_beside: true });
        }
        let header = header?;
        let hint = header.path_hint.display();
        let what = format!(
            "its file, last seen as {hint}, is not there: bring it back, or recover it by its own path; if it is gone for good, famio forget drops the journal"
        );
        Err(Error::with(libc::ENOENT, what))
    }

    /// Whether a journal is clean and its file has been deleted: the process that closed it had no right to remove
    /// it.
    pub fn is_forgotten(&self, name: &str) -> bool {
        let Ok((header, journal)) = self.header(name) else { return false };
        header.state == State::Clean && self.pool.is_beside() && header.identity.is_gone(journal.as_fd())
    }

    /// Whether a journal has been removed since the walk found it.
    pub fn is_removed(&self, name: &str) -> bool {
        matches!(look(self.pool.folder(), name), Err(Errno::NOENT))
    }

    /// Removes such a journal with its control file.
    pub fn forget(&self, name: &str) -> Result<()> {
        self.pool.remove(name)?;
        self.pool.remove(&control::name_beside(name))?;
        self.pool.remove_if_empty();
        Ok(())
    }

    fn by_hint(&self, header: &Header) -> Option<Located> {
        let path: &Path = &header.path_hint;
        let file = reach(path).ok()?;
        let stat = fstat(&file).ok().filter(is_regular)?;
        // Checked first: a file in /proc or /sys holds no user's data.
        if !crate::pmem::is_known(file.as_fd()) || Identity::of_fd(file.as_fd()).ok()? != header.identity {
            return None;
        }
        let is_beside = match (self.pool.parent(), path.file_name()) {
            (Some(folder), Some(name)) => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino)),
            _ => false,
        };
        // If journal and file were on one file system, and now are on two, one of these is a copy of the other.
        let is_apart = fstat(self.pool.folder()).is_ok_and(|pool| pool.st_dev != stat.st_dev)
            && Identity::of_fd(self.pool.folder()).is_ok_and(|pool| pool.is_on_one_file_system(&header.identity));
        if is_apart {
            return None;
        }
        Some(Located { path: path.to_path_buf(), file, is_beside })
    }

    fn beside(&self, folder: BorrowedFd<'_>) -> Result<&HashMap<u128, CString>> {
        if let Some(known) = self.beside.get() {
            return Ok(known);
        }
        let mut files = HashMap::new();
        for entry in crate::sys::list(folder)? {
            let entry = entry?;
            if !matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown) {
                continue;
            }
            let Ok(file) = look(folder, entry.file_name()) else { continue };
            if !fstat(&file).is_ok_and(|stat| is_regular(&stat)) {
                continue;
            }
            self.looked.set(self.looked.get() + 1);
            if let Ok(identity) = Identity::of_fd(file.as_fd()) {
                files.insert(identity.hash128(), entry.file_name().to_owned());
            }
        }
        Ok(self.beside.get_or_init(|| files))
    }
}

/// The hash in a journal's name.
fn hash_in(name: &str) -> Option<u128> {
    let stem = name.strip_suffix(SUFFIX).filter(|_| is_journal_name(name))?;
    u128::from_str_radix(stem, 16).ok()
}
