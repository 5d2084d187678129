//! Whether a journal still has its name, and how it gets one again.

use super::Live;
use super::end::remove_if;
use crate::error::{Error, Result};
use crate::journal::lock;
use crate::journal::pools::beside::beside_path;
use crate::journal::pools::pool::Pool;
use crate::pmem::is_in_memory;
use crate::settings::Durability;
use crate::sys::namespaces::root_folder;
use crate::sys::{read_at, write_at};
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How often a journal is made again whose folder is removed meanwhile.
const MAKES: u32 = 16;

impl Live {
    /// Whether a recovery would find the journal by its name. If that cannot be checked (after a `chroot`, or without
    /// the rights), whether it has any name. `thorough`: also checks whether the file was moved away from it. `file`
    /// returns the file's path now, `names` the number of its names. Both may take locks under which other threads
    /// end the session, so no lock is held here while they are called.
    pub fn is_named(
        &self,
        thorough: bool,
        file: impl FnOnce() -> Option<PathBuf>,
        names: impl FnOnce() -> u64,
    ) -> bool {
        let own = self.file.identity();
        let leads_here = |path: &Path| {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            // Does not ask for times: see `sys::identity`.
            rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::INO)
                .map(|stat| (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino) == own)
        };
        let place = self.place();
        let is_there = leads_here(&place) == Ok(true);
        if is_there && (self.pool.is_some() || !thorough) {
            return true;
        }
        let Some(file) = file() else { return is_there || self.has_a_name() };
        let pool = self.pool.clone().unwrap_or_else(|| beside_path(&file));
        let path = pool.join(&self.name);
        if is_there && path == place {
            return true;
        }
        let names = names();
        if names == 0 {
            return true; // without the file, there is nothing to find
        }
        if root_folder() != self.root {
            return is_there || self.has_a_name();
        }
        // Of several names, it is unknown which one counts.
        if is_there && (names > 1 || file.as_os_str().as_bytes().ends_with(b" (deleted)")) {
            return true;
        }
        match leads_here(&path) {
            Ok(true) => {
                let _ = self.file.set_name(path.as_os_str().as_bytes(), false);
                *self.place.lock() = path;
                true
            }
            Ok(false) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => false,
            Err(_) => self.has_a_name(),
        }
    }

    fn has_a_name(&self) -> bool {
        self.file.get().is_ok_and(|journal| rustix::fs::fstat(journal).is_ok_and(|stat| stat.st_nlink > 0))
    }

    /// Puts a copy of the journal into the pool under its name, and uses it.
    fn copy_to(&self, pool: &Pool, file: BorrowedFd<'_>) -> Result<()> {
        let unfinished = format!("{}.new", self.name);
        let made = pool.remove(&unfinished).and_then(|()| {
            let new = pool.create(file, &unfinished)?;
            lock::begin(&new);
            self.file.run(|old| copy(old, &new))?;
            if self.durability == Durability::Power {
                self.medium.fsync(new.as_fd())?;
            }
            pool.rename(&unfinished, &self.name)?;
            pool.sync(self.durability, self.medium)?;
            self.file.replace(new.as_fd())
        });
        if made.is_err() {
            let _ = pool.remove(&unfinished); // the error that is reported is the one before
        }
        made
    }

    /// Whether a copy in `pool`, which may be another folder than at first, survives as much as the journal does.
    fn check_survives_there(&self, pool: &Pool) -> Result<()> {
        let is_here_in_memory = self.file.run(|journal| Ok(is_in_memory(journal.as_fd())))?;
        if self.durability == Durability::Power && is_in_memory(pool.folder()) && !is_here_in_memory {
            let what = format!("{} lies in memory now, and would not survive a power loss", pool.path().display());
            return Err(Error::with(libc::EIO, what));
        }
        Ok(())
    }

    /// The journal has lost its name: puts a complete and durable copy of it under that name, and uses it from now
    /// on. No thread writes to the journal meanwhile. `EIO`: there is no place for it, or another file is there.
    pub fn make_anew(&self, file: BorrowedFd<'_>) -> Result<()> {
        let failed = |e: Error| {
            Error::with(
                libc::EIO,
                format!("journal {} was removed, moved or replaced, and can't be made anew ({e})", self.path.display()),
            )
        };
        let own = self.file.identity();
        let mut tries = 0;
        let pool = loop {
            let pool = Pool::make(file, self.pool.as_deref()).map_err(failed)?;
            self.check_survives_there(&pool).map_err(failed)?;
            match self.copy_to(&pool, file) {
                Ok(()) => break pool,
                // The folder was removed once more.
                Err(e) if e.errno() == libc::ENOENT && tries < MAKES => tries += 1,
                Err(e) => return Err(failed(e)),
            }
        };
        self.keeps_order.store(false, Ordering::Relaxed); // it may be on another file system now
        let path = pool.path_of(&self.name);
        self.file.set_name(path.as_os_str().as_bytes(), false)?;
        let before = core::mem::replace(&mut *self.place.lock(), path);
        // The file was moved away from this journal. An error does not matter: no file finds the leftover.
        let _ = remove_if(&before, own);
        Ok(())
    }
}

/// Copies a file to an empty one, with room for all of it.
fn copy(from: impl AsFd, to: impl AsFd) -> Result<()> {
    let size = rustix::fs::fstat(&from)?.st_size as u64;
    loop {
        match rustix::fs::fallocate(&to, rustix::fs::FallocateFlags::empty(), 0, size) {
            Err(Errno::INTR) => {}
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => break, // all of it is written
            Err(e) => return Err(e.into()),
        }
    }
    let (mut piece, mut at) = (vec![0; 1 << 20], 0);
    while at < size {
        let got = read_at(&from, at, &mut piece)?;
        if got == 0 {
            return Err(Error::new(libc::EIO)); // cut meanwhile
        }
        write_at(&to, at, &piece[..got])?;
        at += got as u64;
    }
    Ok(())
}
