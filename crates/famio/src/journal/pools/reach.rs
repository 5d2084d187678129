//! Paths written by other users: the hint in a journal, the pool in a mark. They are followed step by step, and their
//! target is examined before it is opened.

use crate::error::{Error, Result};
use crate::sys::{InternalFd, open_again, openat};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most symbolic links on one path: the kernel's limit.
const LINKS_MAX: u32 = 40;

/// Flags to examine something without opening it: touches no device, waits for no FIFO, breaks no lease.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `name` in a folder with `O_PATH`, without following a symbolic link.
pub(crate) fn look(folder: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<InternalFd> {
    openat(folder, name, LOOK, Mode::empty())
}

/// Opens a path that the user named with `O_PATH`, following symbolic links.
pub(crate) fn look_at(path: &Path) -> Result<InternalFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| Error::from(e).context(path.display()))
}

/// Opens, with `O_PATH`, an absolute path that another user may have written. A symbolic link on it is followed only
/// if it belongs to root or this user: another user's could lead anywhere.
pub(crate) fn reach(path: &Path) -> Result<InternalFd> {
    let root = || openat(CWD, c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let failed = |e: Errno| Error::from(e).context(path.display());
    if !path.is_absolute() {
        return Err(Error::new(libc::ENOENT));
    }
    let mut here = root().map_err(failed)?;
    let mut rest: Vec<Vec<u8>> = Vec::new();
    push_parts(&mut rest, path.as_os_str().as_bytes());
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let next = openat(&here, &*name, LOOK, Mode::empty()).map_err(failed)?;
        let stat = fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            here = next;
            continue;
        }
        links += 1;
        if ![0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) || links > LINKS_MAX {
            let what = format!("{}: leads through a symbolic link of user {}", path.display(), stat.st_uid);
            return Err(Error::with(libc::ELOOP, what));
        }
        let target = readlinkat(&next, c"", Vec::new()).map_err(failed)?;
        if target.to_bytes().starts_with(b"/") {
            here = root().map_err(failed)?;
        }
        push_parts(&mut rest, target.to_bytes());
    }
    Ok(here)
}

/// The components of a path, the first one last.
fn push_parts(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    rest.extend(parts.rev().map(<[u8]>::to_vec));
}

/// Whether it is a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens the file of an `O_PATH` descriptor, which must be a regular file; by its inode, so that it is the very same
/// file. Does not wait: `EAGAIN` if a process holds a lease on it.
pub(crate) fn open_looked_at(looked: BorrowedFd<'_>, access: OFlags) -> Result<InternalFd> {
    if !is_regular(&fstat(looked)?) {
        return Err(Error::with(libc::EINVAL, "not a regular file"));
    }
    open_again(looked, access | OFlags::NONBLOCK | OFlags::NOCTTY).map_err(|e| match e {
        Errno::WOULDBLOCK => Error::with(libc::EAGAIN, "another process holds a lease on it; not waited for"),
        // Not even root can open an immutable file for writing.
        Errno::PERM if access.contains(OFlags::RDWR) => {
            Error::with(libc::EPERM, "it may not be written (is it immutable? chattr -i), and is left as it is")
        }
        e => e.into(),
    })
}

/// As [`look`] and [`open_looked_at`] in one step, in a folder of root's or this user's into which nobody else can put
/// anything (`is_own`). `None`: it is not such a folder, or the two steps are needed to say what is wrong.
pub(super) fn open_in_own(
    folder: BorrowedFd<'_>,
    is_own: bool,
    name: impl rustix::path::Arg,
    access: OFlags,
) -> rustix::io::Result<Option<InternalFd>> {
    if !is_own {
        return Ok(None);
    }
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => Err(Errno::NOENT),
        opened => Ok(opened.ok().filter(|opened| fstat(opened).is_ok_and(|stat| is_regular(&stat)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    fn inode(fd: &InternalFd) -> u64 {
        fstat(fd).unwrap().st_ino
    }

    #[test]
    fn paths_are_followed_through_trusted_links_only() {
        let dir = Scratch::new();
        let sub = dir.path("sub");
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("file"), b"x").unwrap();
        let wanted = std::fs::metadata(sub.join("file")).unwrap().ino();
        assert_eq!(inode(&reach(&sub.join("file")).unwrap()), wanted);
        symlink("sub", dir.path("relative")).unwrap();
        symlink(&sub, dir.path("absolute")).unwrap();
        for link in ["relative", "absolute"] {
            assert_eq!(inode(&reach(&dir.path(link).join("../sub/file")).unwrap()), wanted, "{link}");
        }
        symlink("loop", dir.path("loop")).unwrap();
        assert_eq!(reach(&dir.path("loop")).unwrap_err().errno(), libc::ELOOP);
        assert_eq!(reach(&dir.path("none")).unwrap_err().errno(), libc::ENOENT);
        assert_eq!(reach(&sub.join("file/x")).unwrap_err().errno(), libc::ENOTDIR);
        assert_eq!(reach(Path::new("sub/file")).unwrap_err().errno(), libc::ENOENT);
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: links of other users, not root");
            return;
        }
        lchown(dir.path("relative"), Some(1234), Some(1234)).unwrap();
        let error = reach(&dir.path("relative/file")).unwrap_err();
        assert!(error.errno() == libc::ELOOP && error.to_string().contains("user 1234"), "{error}");
    }

    #[test]
    fn in_a_folder_of_ones_own_nothing_is_examined_first() {
        let dir = Scratch::new();
        std::fs::write(dir.path("file"), b"x").unwrap();
        rustix::fs::mkfifoat(CWD, dir.path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("file", dir.path("link")).unwrap();
        let folder = look_at(dir.root()).unwrap();
        let set_mode = |mode| rustix::fs::chmod(dir.root(), Mode::from_raw_mode(mode)).unwrap();
        let is_own = || super::super::trust::is_own(folder.as_fd());
        let open = |name: &str| open_in_own(folder.as_fd(), is_own(), name, OFlags::RDWR);
        set_mode(0o755);
        assert!(open("file").unwrap().is_some());
        assert!(["fifo", "link", "."].iter().all(|name| open(name).unwrap().is_none()));
        assert!(open("none").is_err_and(|e| e == Errno::NOENT));
        for others in [0o775, 0o757, 0o1777] {
            set_mode(others);
            assert!(open("file").unwrap().is_none(), "{others:o}");
        }
        if rustix::process::geteuid().is_root() {
            set_mode(0o755);
            lchown(dir.root(), Some(1234), Some(1234)).unwrap();
            assert!(open("file").unwrap().is_none(), "another user's");
            lchown(dir.root(), Some(0), Some(0)).unwrap();
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = Scratch::new();
        std::fs::write(dir.path("file"), b"x").unwrap();
        rustix::fs::mkfifoat(CWD, dir.path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("file", dir.path("link")).unwrap();
        let folder = look_at(dir.root()).unwrap();
        open_looked_at(look(folder.as_fd(), "file").unwrap().as_fd(), OFlags::RDWR).unwrap();
        for other in ["fifo", "link", "."] {
            let looked = look(folder.as_fd(), other).unwrap();
            assert_eq!(open_looked_at(looked.as_fd(), OFlags::RDONLY).unwrap_err().errno(), libc::EINVAL, "{other}");
        }
    }
}
