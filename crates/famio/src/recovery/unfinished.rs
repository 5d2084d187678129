//! A copy that gets its name when it is complete. If the file system supports that, it has no name before
//! (`O_TMPFILE`), and nothing of it is left if the process is killed. Otherwise it has a hidden name and a lock: the
//! next copy to the same name removes it if its process has died.

use crate::error::{Error, Result};
use crate::journal::pools::reach::{is_regular, look, open_looked_at};
use crate::sys::{InternalFd, identity, openat};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const SUFFIX: &[u8] = b".famio-backup";
/// Hidden names whose file another process removed at once, after which this gives up.
const TRIES: u32 = 100;
const FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);
const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// See the module.
pub(super) struct Unfinished {
    pub file: InternalFd,
    folder: InternalFd,
    /// Its hidden name, until it is complete.
    hidden: Option<OsString>,
}

impl Unfinished {
    /// A new file for the path `to`.
    pub fn beside(to: &Path) -> Result<Self> {
        let name = to.file_name().ok_or(Error::with(libc::EINVAL, "not the name of a file"))?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, folder, flags, Mode::empty());
        let folder = opened.map_err(|e| match Error::from(e) {
            e if e.errno() == libc::ENOENT => Error::with(libc::ENOENT, "its folder is not there"),
            e => e,
        })?;
        remove_leftovers(&folder, name);
        match openat(&folder, c".", FLAGS | OFlags::TMPFILE, OWNER_ONLY) {
            Ok(file) => {
                // For when it gets its name. Without locks, no process removes leftovers either.
                let _ = flock(&file, FlockOperation::LockExclusive);
                Ok(Self { file, folder, hidden: None })
            }
            Err(_) => Self::hidden_in(folder, name),
        }
    }

    fn hidden_in(folder: InternalFd, name: &OsStr) -> Result<Self> {
        for _ in 0..TRIES {
            let hidden = hidden_name(name)?;
            let flags = FLAGS | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let file = openat(&folder, &*hidden, flags, OWNER_ONLY)?;
            // Without locks, no process removes leftovers either. Another process may have locked the file first, to
            // remove it.
            let _ = flock(&file, FlockOperation::LockExclusive);
            if fstat(&file)?.st_nlink > 0 {
                return Ok(Self { file, folder, hidden: Some(hidden) });
            }
        }
        Err(Error::new(libc::EAGAIN))
    }

    /// Gives it the name `to`, which no file has, durably.
    pub fn publish(mut self, to: &Path) -> Result<()> {
        let name = to.file_name().ok_or(Error::new(libc::EINVAL))?;
        match &self.hidden {
            None => {
                self.link_to(name)?;
                rustix::fs::fsync(&self.file)?;
            }
            Some(hidden) => {
                rustix::fs::renameat_with(&self.folder, &**hidden, &self.folder, name, RenameFlags::NOREPLACE)?;
                self.hidden = None;
            }
        }
        Ok(rustix::fs::fsync(&self.folder)?)
    }

    /// Before it replaces the file of that name: gives it a hidden name, durably.
    pub fn hide(&mut self, to: &Path) -> Result<()> {
        if self.hidden.is_none() {
            let hidden = hidden_name(to.file_name().ok_or(Error::new(libc::EINVAL))?)?;
            self.link_to(&hidden)?;
            self.hidden = Some(hidden);
            // This time with its name: it was durable without one.
            rustix::fs::fsync(&self.file)?;
        }
        Ok(())
    }

    /// After [`hide`](Self::hide): replaces `old`, which has the name `to`. Opens neither. Durable after
    /// [`sync_folder`](Self::sync_folder).
    ///
    /// # Errors
    /// `EBUSY`: another file has the name by now.
    pub fn replace(&mut self, old: BorrowedFd<'_>, to: &Path) -> Result<()> {
        let name = to.file_name().ok_or(Error::new(libc::EINVAL))?;
        let Some(hidden) = &self.hidden else { return Err(Error::new(libc::EINVAL)) };
        let now = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (now.st_dev, now.st_ino) != identity(old)? {
            return Err(Error::with(libc::EBUSY, "another file has got its name meanwhile, and is not replaced"));
        }
        rustix::fs::renameat_with(&self.folder, &**hidden, &self.folder, name, RenameFlags::empty())?;
        self.hidden = None;
        Ok(())
    }

    /// Makes a new name durable.
    pub fn sync_folder(&self) -> Result<()> {
        Ok(rustix::fs::fsync(&self.folder)?)
    }

    fn link_to(&self, name: &OsStr) -> rustix::io::Result<()> {
        let link = format!("/proc/thread-self/fd/{}", self.file.as_fd().as_raw_fd());
        rustix::fs::linkat(CWD, &*link, &self.folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = rustix::fs::unlinkat(&self.folder, &**hidden, AtFlags::empty());
        }
    }
}

/// `.NAME.0123456789abcdef.famio-backup`
fn hidden_name(name: &OsStr) -> Result<OsString> {
    let mut hidden = OsString::from(".");
    hidden.push(&*stem(name));
    hidden.push(format!(".{:016x}", crate::index::random()?));
    hidden.push(OsStr::from_bytes(SUFFIX));
    Ok(hidden)
}

/// The name in its hidden name. One for which a file name has no room is cut, and ends with its hash.
fn stem(name: &OsStr) -> Cow<'_, OsStr> {
    const NAME_MAX: usize = 255;
    const ROOM: usize = NAME_MAX - (1 + 1 + 16 + SUFFIX.len());
    let hash = format!("~{:016x}", xxh3_64(name.as_bytes()));
    if name.len() <= ROOM {
        return Cow::Borrowed(name);
    }
    let room = ROOM - hash.len();
    // Some file systems refuse a part of a character.
    let is_whole = |at: &usize| name.to_str().is_none_or(|text| text.is_char_boundary(*at));
    let cut = &name.as_bytes()[..(0..=room).rev().find(is_whole).unwrap_or(room)];
    let mut stem = OsStr::from_bytes(cut).to_owned();
    stem.push(hash);
    Cow::Owned(stem)
}

fn is_hidden_name(hidden: &[u8], name: &OsStr) -> bool {
    let number = hidden.strip_prefix(b".").and_then(|rest| rest.strip_prefix(stem(name).as_bytes()));
    let number = number.and_then(|rest| rest.strip_prefix(b".")).and_then(|rest| rest.strip_suffix(SUFFIX));
    number.is_some_and(|number| number.len() == 16 && number.iter().all(u8::is_ascii_hexdigit))
}

/// Removes what processes left that were killed while they copied to this name.
fn remove_leftovers(folder: &InternalFd, name: &OsStr) {
    let Ok(entries) = crate::sys::list(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_hidden_name(entry.file_name().to_bytes(), name)) {
        let Ok(looked) = look(folder.as_fd(), entry.file_name()) else { continue };
        if !fstat(&looked).is_ok_and(|stat| is_regular(&stat)) {
            continue;
        }
        let Ok(file) = open_looked_at(looked.as_fd(), OFlags::RDONLY) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(folder, entry.file_name(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;

    #[test]
    fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path(name);
        let dead = path(".copy.0123456789abcdef.famio-backup");
        let living = path(".copy.1123456789abcdef.famio-backup");
        let others = path(".copy.x.0123456789abcdef.famio-backup");
        for path in [&dead, &living, &others] {
            std::fs::write(path, "x").unwrap();
        }
        let held = std::fs::File::open(&living).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        drop(Unfinished::beside(&path("copy")).unwrap());
        assert!(!dead.exists() && living.exists() && others.exists());
    }

    /// One of 225 bytes could not be restored.
    #[test]
    fn the_longest_names_are_hidden_and_told_apart() {
        let of = |name: &str| hidden_name(OsStr::new(name)).unwrap();
        for (letter, count) in [("n", 255), ("n", 225), ("n", 224), ("\u{20ac}", 85), ("n", 1)] {
            let name = letter.repeat(count);
            let hidden = of(&name);
            assert!(hidden.len() <= 255 && hidden.to_str().is_some(), "{hidden:?}");
            assert!(is_hidden_name(hidden.as_bytes(), OsStr::new(&name)), "{hidden:?}");
            let other = name[..name.len() - letter.len()].to_owned() + "x";
            assert!(!is_hidden_name(hidden.as_bytes(), OsStr::new(&other)), "{hidden:?}");
        }
    }

    #[test]
    fn a_name_that_is_taken_is_replaced_only_if_that_is_asked_for() {
        let scratch = Scratch::new();
        let to = scratch.path("copy");
        std::fs::write(&to, "old").unwrap();
        let new = || Unfinished::beside(&to).unwrap();
        let hidden = || {
            let folder = openat(CWD, to.parent().unwrap(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
            Unfinished::hidden_in(folder, to.file_name().unwrap()).unwrap()
        };
        let replace = |mut new: Unfinished, old: &std::fs::File| {
            new.hide(&to)?;
            new.replace(old.as_fd(), &to)?;
            new.sync_folder()
        };
        let first = std::fs::File::open(&to).unwrap();
        for new in [&new as &dyn Fn() -> Unfinished, &hidden] {
            assert_eq!(new().publish(&to).unwrap_err().errno(), libc::EEXIST);
            std::fs::write(scratch.path("next"), "old").unwrap();
            std::fs::rename(scratch.path("next"), &to).unwrap();
            assert_eq!(replace(new(), &first).unwrap_err().errno(), libc::EBUSY);
            assert_eq!(std::fs::read(&to).unwrap(), b"old");
            replace(new(), &std::fs::File::open(&to).unwrap()).unwrap();
            assert_eq!(std::fs::read(&to).unwrap(), b"");
            std::fs::remove_file(&to).unwrap();
            new().publish(&to).unwrap();
        }
        assert_eq!(std::fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}
