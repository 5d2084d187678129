//! The folder in which processes share memory: `/dev/shm`, or the setting `shm`. There is one per process: processes
//! that share a file find its shared memory under the same names there.

use super::FileSystem;
use crate::error::{Error, Result};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat, accessat, stat, statfs};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// The default.
pub const DEFAULT: &str = "/dev/shm";
const TMPFS: u32 = 0x0102_1994;
const STICKY: u32 = 0o1000;
const BY_OTHERS: u32 = 0o022;

/// The setting; null: it was not set. Never freed.
static CHOSEN: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());
/// This process has files in the folder, or has looked for some.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether a file lies on tmpfs.
pub fn is_in_memory(file: impl AsFd) -> bool {
    FileSystem::of(file.as_fd()).is_ok_and(|found| found.magic == TMPFS)
}

/// The folder.
pub fn folder() -> &'static str {
    chosen().map_or(DEFAULT, String::as_str)
}

fn chosen() -> Option<&'static String> {
    // SAFETY: null, or a box that was leaked.
    unsafe { CHOSEN.load(Ordering::Acquire).as_ref() }
}

/// Applies the setting to this process. `None`: no change.
///
/// # Errors
/// `EINVAL`: it is not an absolute path in UTF-8, or this process uses another folder already.
pub fn choose(setting: Option<&Path>) -> Result<()> {
    let Some(path) = setting else { return Ok(()) };
    let text = text_of(path)?;
    let is_chosen = || chosen().is_some_and(|chosen| chosen == text);
    if is_chosen() {
        return Ok(());
    }
    let used = || {
        let what = format!("this process shares memory in {} already; there is one folder for a process", folder());
        wrong(path, libc::EINVAL, &what)
    };
    if IS_USED.load(Ordering::Acquire) && text != folder() {
        return Err(used());
    }
    let new = Box::into_raw(Box::new(text.to_owned()));
    let put = CHOSEN.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    if put.is_err() {
        // SAFETY: made just now, and not published.
        drop(unsafe { Box::from_raw(new) });
        return if is_chosen() { Ok(()) } else { Err(used()) };
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<&str> {
    let text = path.to_str().filter(|_| path.is_absolute());
    text.ok_or_else(|| wrong(path, libc::EINVAL, "it takes an absolute path in UTF-8"))
}

/// Device and inode of the folder, which this process is about to use; zeros if there is none.
///
/// # Errors
/// Those of [`check`], if it was set.
pub(crate) fn begin_use() -> Result<(u64, u64)> {
    IS_USED.store(true, Ordering::Release);
    match chosen() {
        Some(path) => check(Path::new(path)),
        None => Ok(identity()),
    }
}

/// Device and inode of the folder; zeros if there is none.
pub(crate) fn identity() -> (u64, u64) {
    stat(folder()).map_or((0, 0), |stat| (stat.st_dev, stat.st_ino))
}

/// Whether the folder cannot be reached, for example after a `chroot`.
pub(crate) fn is_gone() -> bool {
    rustix::fs::lstat(folder()).is_err()
}

/// Checks that the setting names a folder on tmpfs.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `EINVAL`, or `EACCES` if this process may not look; with a text that names the setting and a
/// remedy.
pub fn check_kind(path: &Path) -> Result<()> {
    look(path).map(drop)
}

fn look(path: &Path) -> Result<Stat> {
    text_of(path)?;
    let found = stat(path).map_err(|e| match e {
        Errno::NOENT => wrong(path, libc::ENOENT, "there is no such folder; it has to be made first, on tmpfs"),
        e => wrong(path, e.raw_os_error(), &Error::from(e).to_string()),
    })?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(wrong(path, libc::ENOTDIR, "it is not a folder"));
    }
    // Only the low half: some architectures sign-extend `f_type`.
    if statfs(path)?.f_type as u32 != TMPFS {
        let what = "it is not on tmpfs; name a folder in /dev/shm, or mount a tmpfs there";
        return Err(wrong(path, libc::EINVAL, what));
    }
    Ok(found)
}

/// Checks that this process can share memory in the folder: it is on tmpfs, owned by root or this user, other users
/// cannot remove or replace files in it, and this process may make files. Returns its device and inode.
///
/// # Errors
/// As [`check_kind`]. `EACCES`: its owner or mode does not allow it.
pub fn check(path: &Path) -> Result<(u64, u64)> {
    let found = look(path)?;
    let denied = |what: &str| Err(wrong(path, libc::EACCES, what));
    let me = rustix::process::geteuid().as_raw();
    if ![0, me].contains(&found.st_uid) {
        return denied(&format!("it belongs to user {}, not to root or user {me}; chown it", found.st_uid));
    }
    if found.st_mode & BY_OTHERS != 0 && found.st_mode & STICKY == 0 {
        return denied("other users may remove and replace what lies in it; chmod +t, or go-w");
    }
    // Any other error is one of the query: some containers do not let the call through.
    let access = accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    if matches!(access, Err(Errno::ACCESS | Errno::ROFS)) {
        return denied(&format!("user {me} may not make files in it; chmod 1777 lets every user"));
    }
    Ok((found.st_dev, found.st_ino))
}

fn wrong(path: &Path, errno: i32, what: &str) -> Error {
    Error::with(errno, format!("the setting shm (FAMIO_SHM), {}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    struct Place(std::path::PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        let path = format!("/dev/shm/famio-shm-{name}-{}", std::process::id());
        std::fs::create_dir(&path).unwrap();
        Place(path.into())
    }

    fn refused(path: &Path, errno: i32, word: &str) {
        let error = check(path).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("FAMIO_SHM") && text.contains(path.to_str().unwrap()), "{text}");
    }

    #[test]
    fn a_folder_has_to_be_on_tmpfs_and_nobody_elses_to_change() {
        let place = place("check");
        let mode = |mode| std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(mode)).unwrap();
        for good in [0o700, 0o755, 0o1777] {
            mode(good);
            assert_eq!(check(&place.0).unwrap().0, std::os::unix::fs::MetadataExt::dev(&place.0.metadata().unwrap()));
        }
        for bad in [0o777, 0o775] {
            mode(bad);
            refused(&place.0, libc::EACCES, "chmod +t");
        }
        refused(&place.0.join("none"), libc::ENOENT, "made first");
        std::fs::write(place.0.join("file"), "").unwrap();
        refused(&place.0.join("file"), libc::ENOTDIR, "not a folder");
        refused(Path::new("/proc"), libc::EINVAL, "not on tmpfs");
        if rustix::process::geteuid().is_root() {
            mode(0o1777);
            chown(&place.0, Some(1234), None).unwrap();
            refused(&place.0, libc::EACCES, "user 1234");
        }
    }

    #[test]
    fn only_an_absolute_path_is_taken() {
        assert_eq!(choose(Some(Path::new("shm"))).unwrap_err().errno(), libc::EINVAL);
        choose(None).unwrap();
        assert_eq!(folder(), DEFAULT);
    }
}
