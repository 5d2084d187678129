//! The folder of a file, found from its descriptor alone.

use super::kept::open_folder_at;
use crate::error::{Error, Result};
use crate::sys::{InternalFd, owner_and_mode};
use rustix::fs::{AtFlags, CWD, OFlags};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel's path of an open file now. A file that was deleted, or that this process cannot reach by a path, has
/// none.
pub fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf> {
    crate::sys::path_of(file)
}

/// Looks for the folder of a file that another process renames again and again.
const LOOKS: u32 = 32;

/// The folder of an open file, and the file's path. The name in that folder does lead to this file.
pub fn folder_of(file: BorrowedFd<'_>) -> Result<(InternalFd, PathBuf)> {
    let mut path = path_of(file)?;
    for _ in 0..LOOKS {
        match folder_at(file, path.clone()) {
            // Another process may have renamed it since its path was asked for, or may have renamed it to and fro.
            Err(e) if e.is_nameless() && !is_deleted(file, &path) => path = crate::sys::path_now(file)?,
            found => return found,
        }
    }
    folder_at(file, path)
}

/// Whether a file is deleted, or the name that was this path.
fn is_deleted(file: BorrowedFd<'_>, path: &Path) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
        || (says_deleted(path) && crate::sys::path_now(file).is_ok_and(|now| now == path))
}

/// Whether the kernel's path of a file ends as that of a name that was removed. A file may also be called so.
fn says_deleted(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b" (deleted)")
}

fn folder_at(file: BorrowedFd<'_>, path: PathBuf) -> Result<(InternalFd, PathBuf)> {
    let stat = owner_and_mode(file)?;
    if stat.st_nlink == 0 {
        return Err(Error::nameless(format!("{}: a deleted file has no folder for a journal", path.display())));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::with(libc::EINVAL, format!("{}: not a file in a folder", path.display())));
    };
    let fd = open_folder(folder)?;
    // The kernel appends " (deleted)" to a name that was removed, and the path may lead to another file by now.
    match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) => Ok((fd, path)),
        _ => Err(Error::nameless(format!("{}: the file is no longer there under this name", path.display()))),
    }
}

/// Whether the name by which an open file was opened is gone. The file may have others: the kernel does not tell.
pub fn has_lost_its_name(file: BorrowedFd<'_>) -> bool {
    crate::sys::path_now(file).is_ok_and(|path| says_deleted(&path)) && folder_of(file).is_err_and(|e| e.is_nameless())
}

/// Opens a folder, to work in it. A folder without read permission can be used, but not synced.
pub(in crate::journal) fn open_folder(path: &Path) -> Result<InternalFd> {
    match open_folder_at(CWD, path, OFlags::RDONLY) {
        Err(rustix::io::Errno::ACCESS) => open_folder_at(CWD, path, OFlags::PATH),
        other => other,
    }
    .map_err(|e| Error::from(e).context(format_args!("folder {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    #[test]
    fn follows_the_file_not_the_name() {
        let dir = Scratch::new();
        let file = File::create(dir.path("a")).unwrap();
        assert_eq!(folder_of(file.as_fd()).unwrap().1, dir.path("a"));
        fs::create_dir(dir.path("sub")).unwrap();
        fs::rename(dir.path("a"), dir.path("sub/b")).unwrap();
        assert_eq!(folder_of(file.as_fd()).unwrap().1, dir.path("sub/b"));
        fs::remove_file(dir.path("sub/b")).unwrap();
        let error = folder_of(file.as_fd()).unwrap_err();
        assert!(error.to_string().contains("deleted"), "{error}");
    }

    #[test]
    fn a_deleted_name_is_not_taken_for_another_file() {
        let dir = Scratch::new();
        let file = File::create(dir.path("a")).unwrap();
        fs::hard_link(dir.path("a"), dir.path("other")).unwrap();
        fs::remove_file(dir.path("a")).unwrap();
        File::create(dir.path("a (deleted)")).unwrap();
        assert_eq!(folder_of(file.as_fd()).unwrap_err().errno(), libc::ESTALE);
        assert!(has_lost_its_name(file.as_fd()));
        assert!(!has_lost_its_name(File::open(dir.path("a (deleted)")).unwrap().as_fd()));
    }

    #[test]
    fn what_has_no_path_has_no_folder() {
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(folder_of(end.as_fd()).is_err());
    }
}
