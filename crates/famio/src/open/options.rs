//! How to open an atomic file.

use super::AtomicFile;
use crate::error::{Error, Result};
use crate::file::Access;
use crate::settings::Settings;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How to open an [`AtomicFile`]: for reading and writing, if it exists, unless said otherwise.
///
/// ```no_run
/// # fn main() -> Result<(), famio::Error> {
/// use famio::{AtomicFile, Durability, Settings};
/// let settings = Settings { durability: Durability::Process, ..Settings::default() };
/// let file = AtomicFile::options().create(true).mode(0o600).settings(settings).open("data/app.db")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read_only: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    mode: u32,
    settings: Settings,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let settings = Settings::default();
        Self { read_only: false, create: false, create_new: false, truncate: false, mode: 0o666, settings }
    }
}

impl OpenOptions {
    /// For reading alone.
    pub fn read_only(&mut self, yes: bool) -> &mut Self {
        self.read_only = yes;
        self
    }

    /// Makes the file, if there is none.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Makes the file, which must not be there.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// Empties the file: part of the first epoch, and undone by a crash before its SYNC.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// The permissions of a file that is made, less the process's `umask`; 0666 if not said.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Where its journal is to lie, and what a SYNC must survive. The first who opens a file in a process decides.
    pub fn settings(&mut self, settings: Settings) -> &mut Self {
        self.settings = settings;
        self
    }

    /// Opens the file. A journal that a crash left is recovered first.
    ///
    /// # Errors
    /// `EINVAL`: not a regular file; to empty or to make a file that is opened for reading alone. `EBUSY`: it is to be emptied, and
    /// another process has it, and keeps it; or the program runs under `famio run`, whose own library has the files. `EIO`: its
    /// journal can't be used; the message names both files. Others are `open(2)`'s: `ENOENT`, `EEXIST`, `EACCES`, … What the file
    /// system or the settings do not allow shows at the first write.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<AtomicFile> {
        let path = path.as_ref();
        let named = |e: Error| if e.detail().is_some() { e } else { e.context(path.display()) };
        self.open_named(path).map_err(named)
    }

    fn open_named(&self, path: &Path) -> Result<AtomicFile> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::new(libc::EINVAL))?;
        if self.read_only && (self.create || self.create_new || self.truncate) {
            return Err(Error::with(
                libc::EINVAL,
                format!("{}: opened for reading alone, it is not changed", path.display()),
            ));
        }
        if crate::posix::is_interposed_elsewhere() {
            let what = "under `famio run` files are its library's: name this one to it, and open it as any file";
            return Err(Error::with(libc::EBUSY, format!("{}: {what}", path.display())));
        }
        // Looked at first: to open a pipe would wait for its other end.
        if let Ok(stat) = rustix::fs::stat(&name) {
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Error::with(libc::EINVAL, format!("{}: not a regular file", path.display())));
            }
            if let Some(file) = crate::file::AtomicFile::find(stat.st_dev, stat.st_ino) {
                // Its lease would keep this open waiting.
                let _ = file.give_up_lease();
            }
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if self.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags.set(OFlags::CREATE, self.create || self.create_new);
        flags.set(OFlags::EXCL, self.create_new);
        let fd = rustix::fs::openat(CWD, &name, flags, Mode::from_raw_mode(self.mode))?;
        let access = if self.read_only { Access::Read } else { Access::Write };
        let file = AtomicFile::new(fd, access, &name, &self.settings)?;
        if self.truncate && !file.is_empty() {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
