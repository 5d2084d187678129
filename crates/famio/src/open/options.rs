//! Options for opening an atomic file.

use super::AtomicFile;
use crate::error::{Error, Result};
use crate::file::{Access, open_latest};
use crate::settings::Settings;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options for opening an [`AtomicFile`]; by default an existing file, for reading and writing.
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
    /// Opens for reading only.
    pub fn read_only(&mut self, yes: bool) -> &mut Self {
        self.read_only = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Creates the file, which must not exist.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// Empties the file; part of the first epoch, so undone by a crash before its SYNC.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// The permissions of a new file, less the process's `umask`; 0666 by default.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// The settings: where the journal lies, what a SYNC must survive, and so on. The first open of a file in a
    /// process decides; later ones only check [`shm`](Settings::shm) and [`group`](Settings::group).
    pub fn settings(&mut self, settings: Settings) -> &mut Self {
        self.settings = settings;
        self
    }

    /// Opens the file. A journal that a crash left is recovered first.
    ///
    /// # Errors
    /// `EINVAL`: not a regular file; or the file is to be emptied or created, but opened for reading only; or
    /// [`shm`](Settings::shm) or [`group`](Settings::group) is not possible. `EBUSY`: the file is to be emptied, and
    /// another process owns it and does not hand it over; or this process has it open without that group; or the
    /// program runs under `famio run`, whose own library has the files. `EIO`: its journal cannot be used; the message
    /// names both files. With [`truncate`](Self::truncate), those of a [write](AtomicFile::write_at). Others are those
    /// of `open(2)`: `ENOENT`, `EEXIST`, `EACCES`, … If the file system or the settings do not allow atomic files, the
    /// first write says so.
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
        // Checked first: opening a pipe would wait for its other end.
        if let Ok(stat) = rustix::fs::stat(&name) {
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Error::with(libc::EINVAL, format!("{}: not a regular file", path.display())));
            }
            if let Some(file) = crate::file::AtomicFile::find(stat.st_dev, stat.st_ino) {
                // Its lease would make this open wait.
                let _ = file.give_up_lease();
            }
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if self.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags.set(OFlags::CREATE, self.create || self.create_new);
        flags.set(OFlags::EXCL, self.create_new);
        let mode = Mode::from_raw_mode(self.mode);
        let fd = open_latest(&name, || rustix::fs::openat(CWD, &name, flags, mode))?;
        let access = if self.read_only { Access::Read } else { Access::Write };
        let file = AtomicFile::new(fd, access, &name, &self.settings)?;
        if self.truncate && !file.is_empty() {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
