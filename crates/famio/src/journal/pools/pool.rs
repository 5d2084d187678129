//! A pool: the folder that holds journals, and the conditions under which a journal's file is trusted (SECURITY.md,
//! "Journals, marks and pools").

pub use super::beside::is_beside_name;
use super::beside::{name_to_make, names_to_find, note_in_making};
use super::kept::{find_made, note_made, open_folder_at};
use super::place::{folder_of, open_folder};
use super::reach::{look, open_looked_at, reach};
use super::{access, trust};
use crate::error::{Error, Result};
use crate::journal::bytes::hex;
use crate::journal::identity::Identity;
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::sys::{InternalFd, high_duplicate, open_again};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The suffix of a journal's name.
pub const SUFFIX: &str = ".journal";

/// An open pool. Holds descriptors, so it must be short-lived.
pub struct Pool {
    folder: InternalFd,
    path: PathBuf,
    /// The folder of the file, if the pool is a `.famio/`.
    parent: Option<InternalFd>,
    /// Nobody but root and this user can put anything into it. Unset: not looked yet.
    is_own: OnceLock<bool>,
}

impl Pool {
    /// The pool of a file: `setting`, or `.famio/` beside it. `None` if there is no `.famio/`; a pool that `setting`
    /// names must exist.
    pub fn find(file: BorrowedFd<'_>, setting: Option<&Path>) -> Result<Option<Pool>> {
        match setting {
            Some(path) => Self::at(path, Some(file)).map(Some),
            None => {
                let (parent, path) = folder_of(file)?;
                Self::beside_if_any(parent, &path, file)
            }
        }
    }

    /// As [`beside`](Self::beside), without one that another user has left empty who may not replace the file now: it
    /// would be in everybody's way.
    fn beside_if_any(parent: InternalFd, path: &Path, file: BorrowedFd<'_>) -> Result<Option<Pool>> {
        let usual = name_to_make(&parent, file);
        let is_removed = || usual.is_ok_and(|name| rustix::fs::rmdir(path.with_file_name(&*name)).is_ok());
        match Self::beside(parent, path, file) {
            Err(e) if e.errno() == libc::EACCES && is_removed() => Ok(None),
            found => found,
        }
    }

    /// As [`find`](Self::find), but creates a `.famio/` that does not exist. Durable after [`sync`](Self::sync).
    pub fn make(file: BorrowedFd<'_>, setting: Option<&Path>) -> Result<Pool> {
        if let Some(path) = setting {
            return Self::at(path, Some(file));
        }
        if let Some((folder, path, parent)) = find_made(file) {
            return Ok(Pool::of_folder(folder, path, Some(parent)));
        }
        // Another process's clean close may remove the folder at the same time.
        for _ in 0..100 {
            let (parent, path) = folder_of(file)?;
            let name = name_to_make(&parent, file)?;
            access::make_folder(parent.as_fd(), &name, file).map_err(|e| {
                e.context(format_args!("cannot make {} for a journal", path.with_file_name(&*name).display()))
            })?;
            if let Some(pool) = Self::beside_if_any(parent, &path, file)? {
                note_in_making(pool.folder.as_fd());
                if let Some(parent) = &pool.parent {
                    note_made(file, (&pool.folder, &pool.path, parent));
                }
                return Ok(pool);
            }
        }
        Err(Error::new(libc::EAGAIN))
    }

    /// A pool by its path; for `file`, if given. The last component of the path must not be a symbolic link.
    pub fn at(path: &Path, file: Option<BorrowedFd<'_>>) -> Result<Pool> {
        let named = |e: Error| e.context(format_args!("pool {}", path.display()));
        let bare = |e: Error| match e.errno() {
            libc::ENOENT => Error::with(libc::ENOENT, "no such file; make the folder first, or name another pool"),
            errno => Error::new(errno),
        };
        let folder = open_folder(path).map_err(bare).map_err(named)?;
        Self::open_at(folder, file).map_err(named)
    }

    fn open_at(folder: InternalFd, file: Option<BorrowedFd<'_>>) -> Result<Pool> {
        let path = super::place::path_of(folder.as_fd())?;
        let above = || crate::sys::openat(&folder, c"..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let parent = path.file_name().is_some_and(is_beside_name).then(above).transpose()?;
        let is_own = trust::check_folder(folder.as_fd(), parent.as_ref().map(AsFd::as_fd), file)?;
        Ok(Pool { folder, path, parent, is_own: is_own.into() })
    }

    /// The pool named in a mark, which any user who may write the file may have written.
    pub(crate) fn of_mark(path: &Path, file: BorrowedFd<'_>) -> Result<Pool> {
        let named = |e: Error| e.context(format_args!("pool {}", path.display()));
        let looked = reach(path).map_err(named)?;
        let folder = match open_again(looked.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::ACCESS) => looked, // cannot be listed, but used
            folder => folder.map_err(|e| named(e.into()))?,
        };
        Self::open_at(folder, Some(file)).map_err(named)
    }

    /// This folder as a pool; `parent` is given if it is a `.famio/`. Not [checked](Self::check) yet.
    pub(crate) fn of_folder(folder: InternalFd, path: PathBuf, parent: Option<InternalFd>) -> Pool {
        Pool { folder, path, parent, is_own: OnceLock::new() }
    }

    /// The same pool, for `file`.
    pub(crate) fn reopen(&self, file: BorrowedFd<'_>) -> Result<Pool> {
        let (folder, parent) = (high_duplicate(self.folder.as_fd())?, self.parent().map(high_duplicate).transpose()?);
        let pool = Pool::of_folder(folder, self.path.clone(), parent);
        pool.check(Some(file)).map(|()| pool)
    }

    /// Whether journals of `file` may lie in it; without a file, checks what can be checked.
    pub(crate) fn check(&self, file: Option<BorrowedFd<'_>>) -> Result<()> {
        let is_own = trust::check_folder(self.folder.as_fd(), self.parent(), file)
            .map_err(|e| e.context(format_args!("pool {}", self.path.display())))?;
        let _ = self.is_own.set(is_own);
        Ok(())
    }

    /// Opens something in it without examining it first, where nobody else can have put it (`reach::open_in_own`).
    pub(in crate::journal) fn open_in_own(&self, name: &str, access: OFlags) -> rustix::io::Result<Option<InternalFd>> {
        let is_own = *self.is_own.get_or_init(|| trust::is_own(self.folder()));
        super::reach::open_in_own(self.folder(), is_own, name, access)
    }

    /// The folder of a `.famio/`, which also holds the pool's files.
    pub(crate) fn parent(&self) -> Option<BorrowedFd<'_>> {
        self.parent.as_ref().map(AsFd::as_fd)
    }

    /// The `.famio/` in `parent`, the folder of `file`; `None` if there is none.
    pub(crate) fn beside(parent: InternalFd, file_path: &Path, file: BorrowedFd<'_>) -> Result<Option<Pool>> {
        let [usual, other] = names_to_find(&parent, file)?;
        let open = |name: &str| open_folder_at(&parent, name, OFlags::RDONLY | OFlags::NOFOLLOW);
        let (name, folder) = match open(&usual) {
            Err(Errno::NOENT) => (&other, open(&other)),
            opened => (&usual, opened),
        };
        let path = file_path.with_file_name(&**name);
        let folder = match folder {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) => {
                return Err(Error::with(e.raw_os_error(), format!("pool {}: not a folder", path.display())));
            }
            Err(e) => return Err(Error::from(e).context(format_args!("pool {}", path.display()))),
        };
        let pool = Pool::of_folder(folder, path, Some(parent));
        pool.check(Some(file)).map(|()| Some(pool))
    }

    /// Its folder.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a `.famio/` rather than a pool that the user named.
    pub fn is_beside(&self) -> bool {
        self.parent.is_some()
    }

    /// The path of a journal in it.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// [`make`](Self::make) and [`create`](Self::create), repeated if another process removes the empty `.famio/` in
    /// between.
    pub fn create_for(file: BorrowedFd<'_>, setting: Option<&Path>, name: &str) -> Result<(Pool, InternalFd)> {
        for _ in 0..100 {
            let pool = Self::make(file, setting)?;
            match pool.create(file, name) {
                Ok(journal) => return Ok((pool, journal)),
                Err(e) if e.errno() == libc::ENOENT && pool.is_beside() => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(libc::EAGAIN))
    }

    /// Creates the journal of a file, empty, for reading and writing: `EEXIST` if there is one. It gets the file's
    /// owner and mode, as far as this process may set them, and is never more open.
    pub fn create(&self, file: BorrowedFd<'_>, name: &str) -> Result<InternalFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let journal = crate::sys::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.named(name, e.into()))?;
        let complete = |journal: InternalFd| {
            if !access::give_to_owner_of(file, journal.as_fd())? {
                trust::check_made(journal.as_fd(), file, self.folder.as_fd())?;
            }
            journal.set_name(self.path.join(name).into_os_string().into_encoded_bytes(), false)?;
            Ok(journal)
        };
        let made = complete(journal);
        if made.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()); // no process has seen it
        }
        made.map_err(|e| self.named(name, e))
    }

    /// Opens a journal for reading and writing; `None` if there is none. If `file` is given,
    /// [`trust::check_journal`] is done here; otherwise it must follow once the file is known.
    pub fn open(&self, name: &str, file: Option<BorrowedFd<'_>>) -> Result<Option<InternalFd>> {
        self.open_with(name, file, OFlags::RDWR)
    }

    /// As [`open`](Self::open), for reading only.
    pub fn open_read_only(&self, name: &str, file: Option<BorrowedFd<'_>>) -> Result<Option<InternalFd>> {
        self.open_with(name, file, OFlags::RDONLY)
    }

    fn open_with(&self, name: &str, file: Option<BorrowedFd<'_>>, access: OFlags) -> Result<Option<InternalFd>> {
        let opened = match self.open_in_own(name, access) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| self.named(name, e.into()))?,
        };
        if let Some(opened) = opened {
            let trusted = trust::check_journal(opened.as_fd(), file, self.folder.as_fd());
            return trusted.map_err(|e| self.named(name, e)).map(|()| Some(opened));
        }
        // Examined before it is opened: another user may have put anything there.
        let looked = match look(self.folder.as_fd(), name) {
            Ok(looked) => looked,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(self.named(name, e.into())),
        };
        trust::check_journal(looked.as_fd(), file, self.folder.as_fd())
            .and_then(|()| open_looked_at(looked.as_fd(), access))
            .map_err(|e| self.named(name, e))
            .map(Some)
    }

    /// Whether nobody can have put a journal in the place of another's.
    pub(crate) fn is_protected(&self) -> bool {
        trust::is_protected(self.folder.as_fd())
    }

    /// Whether a journal, if there is one, passes [`trust::check_journal`].
    pub(crate) fn is_trusted(&self, name: &str, file: BorrowedFd<'_>) -> bool {
        let check = |looked: InternalFd| trust::check_journal(looked.as_fd(), Some(file), self.folder.as_fd());
        look(self.folder.as_fd(), name).is_ok_and(|looked| check(looked).is_ok())
    }

    /// Gives a file created here a journal's name, which no other file may have.
    pub fn rename(&self, from: &str, name: &str) -> Result<()> {
        let (old, new) = (&self.folder, &self.folder);
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let renamed = match rustix::fs::renameat_with(old, from, new, name, flags) {
            // A file system that does not support the flag.
            Err(Errno::INVAL | Errno::NOSYS)
                if rustix::fs::statat(new, name, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|e| e == Errno::NOENT) =>
            {
                rustix::fs::renameat(old, from, new, name)
            }
            renamed => renamed,
        };
        renamed.map_err(|e| self.named(name, e.into()))
    }

    /// Removes a journal; without one, does nothing.
    pub fn remove(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.named(name, e.into())),
        }
    }

    /// Whether it has been removed since it was opened.
    pub(crate) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.folder).is_ok_and(|folder| folder.st_nlink == 0)
    }

    /// Removes an empty `.famio/`. Best effort: a folder in use, a missing one, and a named pool are left as they
    /// are.
    pub fn remove_if_empty(&self) {
        if let (Some(parent), Some(name)) = (&self.parent, self.path.file_name()) {
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }

    /// Makes what was created and removed here durable, including the `.famio/` itself.
    pub fn sync(&self, durability: Durability, medium: &dyn Medium) -> Result<()> {
        let failed = |e: Error| e.context(format_args!("pool {}: cannot be synced", self.path.display()));
        sync_dir(self.folder.as_fd(), durability, medium).map_err(failed)?;
        self.parent.as_ref().map_or(Ok(()), |parent| sync_dir(parent.as_fd(), durability, medium).map_err(failed))
    }

    /// The names of the journals in it, sorted. Other files are left alone.
    pub fn list(&self) -> Result<Vec<String>> {
        let failed = |e: Errno| Error::from(e).context(format_args!("pool {}: cannot be listed", self.path.display()));
        let mut names = Vec::new();
        for entry in crate::sys::list(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown) {
                continue;
            }
            if let Some(name) = entry.file_name().to_str().ok().filter(|name| is_journal_name(name)) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn named(&self, name: &str, error: Error) -> Error {
        error.context(format_args!("journal {}", self.path.join(name).display()))
    }
}

/// The name of a file's journal in any pool.
pub fn journal_name(identity: &Identity) -> String {
    journal_name_of(identity.hash128())
}

/// The same, by the identity's hash.
pub(crate) fn journal_name_of(identity: u128) -> String {
    hex(&identity.to_be_bytes()) + SUFFIX
}

/// Whether a file in a pool has a journal's name.
pub fn is_journal_name(name: &str) -> bool {
    let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    name.strip_suffix(SUFFIX).is_some_and(|stem| stem.len() == 32 && stem.bytes().all(digit))
}

/// Makes a folder's entries durable where power loss matters.
pub fn sync_dir(folder: BorrowedFd<'_>, durability: Durability, medium: &dyn Medium) -> Result<()> {
    match durability {
        Durability::Power => medium.fsync(folder),
        Durability::Process => Ok(()),
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
