//! The pool beside a file, for settings that name no pool: `.famio/`. In a folder with the sticky bit, such as
//! `/tmp`, where users may not remove each other's files, the files of each owner have their own: `.famio-UID/`.

pub use crate::beside::{BESIDE, is_beside_name};
use crate::error::{Error, Result};
use crate::journal::identity::Identity;
use crate::journal::pools::without_pool;
use crate::sys::{InternalFd, effective_user, owner_and_mode, owner_and_mode_of_folder};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat, StatFs};
use rustix::fs::{flock, fstat, fstatfs, lstat, stat, statfs};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;

pub(in crate::journal) fn is_sticky(folder: &Stat) -> bool {
    folder.st_mode & STICKY != 0
}

/// Its name for files of `owner` in `folder`.
fn name_in(folder: &Stat, owner: impl FnOnce() -> u32) -> Cow<'static, str> {
    if is_sticky(folder) { Cow::Owned(format!("{BESIDE}-{}", owner())) } else { Cow::Borrowed(BESIDE) }
}

/// Its path for the file at this path, for messages and hints; it need not exist.
pub(crate) fn beside_path(file: &Path) -> PathBuf {
    let folder = file.parent().and_then(|folder| stat(folder).ok());
    let owner = || lstat(file).map_or(0, |file| file.st_uid);
    file.with_file_name(&*folder.map_or(Cow::Borrowed(BESIDE), |folder| name_in(&folder, owner)))
}

/// The name of the pool for `file` in `parent`, its folder. In a folder with the sticky bit, only the file's owner or
/// root can create the pool, since other users' would not be trusted.
pub(crate) fn name_to_make(parent: &InternalFd, file: BorrowedFd<'_>) -> Result<Cow<'static, str>> {
    let (folder, owner) = (owner_and_mode_of_folder(parent.as_fd())?, owner_and_mode(file)?.st_uid);
    if is_sticky(&folder) && ![0, owner].contains(&effective_user()) {
        let what = "its folder has the sticky bit, and only the file's owner can begin; choose a pool of your own";
        return Err(Error::with(libc::EACCES, what));
    }
    Ok(name_in(&folder, || owner))
}

/// The names under which it may be found, since the folder's mode may have changed.
pub(in crate::journal) fn names_to_find(parent: &InternalFd, file: BorrowedFd<'_>) -> Result<[Cow<'static, str>; 2]> {
    let (folder, owner) = (owner_and_mode_of_folder(parent.as_fd())?, owner_and_mode(file)?.st_uid);
    let (plain, own) = (Cow::Borrowed(BESIDE), Cow::Owned(format!("{BESIDE}-{owner}")));
    Ok(if is_sticky(&folder) { [own, plain] } else { [plain, own] })
}

/// Whether there certainly is no pool for files of `owner` beside the file at this path. Two system calls, and no
/// descriptor.
pub(crate) fn is_not_beside(file: &Path, owner: u32) -> bool {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    stat(folder).is_ok_and(|found| says_no_pool(&found, || statfs(folder)))
        || is_missing(file, BESIDE) && is_missing(file, &format!("{BESIDE}-{owner}"))
}

/// Whether this folder certainly has no pool, as most folders without folders in them. Two system calls.
pub(crate) fn has_no_pool(folder: BorrowedFd<'_>) -> bool {
    fstat(folder).is_ok_and(|found| says_no_pool(&found, || fstatfs(folder)))
}

/// As [`has_no_pool`], by what is known of the folder or by its links, where each folder in it has one to it. A name that
/// is looked for in vain takes the kernel three times as long (tmpfs).
fn says_no_pool(folder: &Stat, file_system: impl FnOnce() -> rustix::io::Result<StatFs>) -> bool {
    /// The magic numbers of tmpfs, ext4 and XFS.
    const COUNT: [u32; 3] = [0x0102_1994, 0xef53, 0x5846_5342];
    without_pool::is_known(folder)
        || folder.st_nlink == 2 && file_system().is_ok_and(|system| COUNT.contains(&(system.f_type as u32)))
}

/// Whether nothing of this name is in the folder of `file`.
fn is_missing(file: &Path, name: &str) -> bool {
    matches!(lstat(file.with_file_name(name)), Err(Errno::NOENT))
}

/// Whether there may be a pool beside a file. Takes a few system calls, where a search for its contents takes many.
/// `path`: the kernel's path of the file, if known.
pub(crate) fn may_be_beside(file: BorrowedFd<'_>, path: Option<&Path>) -> Result<bool> {
    let path = real_path(file, path)?;
    let folder = folder_above(&path);
    if has_no_pool_in(&path, folder.as_ref()) {
        return Ok(false);
    }
    Ok(!is_missing(&path, BESIDE) || folder.is_some_and(|folder| may_be_own(&path, &folder, file)))
}

/// For so many seconds after a change, an empty `.famio/` may be one whose maker is about to put something into it.
const IN_MAKING: i64 = 1;

/// The caller is about to put something into this `.famio/`: until the descriptor and its duplicates are closed,
/// [`remove_left_empty`] leaves it alone. Best effort: without this, it is made again, and again.
pub(in crate::journal) fn note_in_making(pool: BorrowedFd<'_>) {
    let _ = flock(pool, FlockOperation::NonBlockingLockShared);
}

/// Removes a `.famio/` that was left empty: by another user, who may not remove it, or by a killed process. But whoever
/// looks at files again and again must not take it away from its maker each time. Best effort.
pub(crate) fn remove_left_empty(pool: &Path) {
    let Ok(found) = lstat(pool) else { return };
    let is_old = clock_gettime(ClockId::Realtime).tv_sec - found.st_mtime > IN_MAKING;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || crate::sys::openat(CWD, pool, flags, Mode::empty()).ok();
    let is_nobodys = |folder: &InternalFd| flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok();
    // The descriptor stays until the folder is gone.
    let nobodys = if is_old { None } else { open().filter(is_nobodys) };
    if is_old || nobodys.is_some() {
        let _ = rustix::fs::rmdir(pool);
    }
}

/// What is beside a file, as far as names tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    NoPool,
    /// A pool with this path, which has nothing of the file.
    NothingIn(PathBuf),
    /// A pool to look into.
    MayBe,
}

/// Looks beside a file for a pool, and in it for Famio's files for this very file, whose names end so. Opens nothing.
pub(crate) fn look_beside(file: BorrowedFd<'_>, path: Option<&Path>, suffixes: &[&str]) -> Result<Beside> {
    let path = real_path(file, path)?;
    let folder = folder_above(&path);
    if folder.as_ref().is_some_and(without_pool::is_known) {
        return Ok(Beside::NoPool);
    }
    // With the sticky bit each owner has a pool.
    let settled = folder.as_ref().filter(|folder| !is_sticky(folder) && without_pool::is_settled(folder));
    if has_no_pool_in(&path, folder.as_ref()) {
        // Its links were counted before it was found to be settled.
        if let Some(folder) = settled
            && has_no_pool_in(&path, folder_above(&path).as_ref())
        {
            without_pool::note(folder);
        }
        return Ok(Beside::NoPool);
    }
    let pool = path.with_file_name(BESIDE);
    let is_folder = match lstat(&pool) {
        Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::Directory,
        Err(Errno::NOENT) => {
            let is_own = folder.as_ref().is_some_and(|folder| may_be_own(&path, folder, file));
            settled.into_iter().for_each(without_pool::note);
            return Ok(if is_own { Beside::MayBe } else { Beside::NoPool });
        }
        Err(_) => false,
    };
    // With the sticky bit there are several; what is no folder, the usual search refuses.
    if !is_folder || folder.is_none_or(|folder| is_sticky(&folder)) {
        return Ok(Beside::MayBe);
    }
    let stem = Identity::of_fd(file)?.stem();
    let is_missing = |suffix: &&str| matches!(lstat(pool.join(stem.clone() + suffix)), Err(Errno::NOENT));
    Ok(if suffixes.iter().all(is_missing) { Beside::NothingIn(pool) } else { Beside::MayBe })
}

fn real_path<'a>(file: BorrowedFd<'_>, known: Option<&'a Path>) -> Result<Cow<'a, Path>> {
    known.map_or_else(|| crate::journal::path_of(file).map(Cow::Owned), |path| Ok(Cow::Borrowed(path)))
}

fn has_no_pool_in(file: &Path, folder: Option<&Stat>) -> bool {
    file.parent().zip(folder).is_some_and(|(path, folder)| says_no_pool(folder, || statfs(path)))
}

fn folder_above(file: &Path) -> Option<Stat> {
    stat(file.parent()?).ok()
}

/// Whether there may be the pool of the file's owner, in a folder with the sticky bit.
fn may_be_own(path: &Path, folder: &Stat, file: BorrowedFd<'_>) -> bool {
    is_sticky(folder) && !is_missing(path, &name_in(folder, || owner_and_mode(file).map_or(0, |file| file.st_uid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::ffi::OsStr;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names() {
        let dir = Scratch::new();
        let (file, owner) = (dir.path("file"), rustix::process::geteuid().as_raw());
        assert!(is_not_beside(&file, owner));
        for name in [".famio".to_owned(), format!(".famio-{owner}")] {
            std::fs::create_dir(dir.path(&name)).unwrap();
            assert!(!is_not_beside(&file, owner), "{name}");
            std::fs::remove_dir(dir.path(&name)).unwrap();
        }
        for (name, is) in [(".famio", true), (".famio-0", true), (".famio-1000", true), (".famio-", false)] {
            assert_eq!(is_beside_name(OsStr::new(name)), is, "{name}");
        }
        assert!(![".famio-x", ".famio1", "famio", ".famio.toml"].iter().any(|name| is_beside_name(OsStr::new(name))));
    }

    #[test]
    fn a_folder_without_folders_has_none() {
        let dir = Scratch::new();
        let file = dir.path("file");
        std::fs::write(&file, "x").unwrap();
        let says_none = |path: &Path| {
            let folder = std::fs::File::open(path.parent().unwrap()).unwrap();
            let says = has_no_pool(folder.as_fd());
            assert_eq!(has_no_pool_in(path, folder_above(path).as_ref()), says);
            says
        };
        assert!(says_none(&file));
        std::fs::create_dir(dir.path("other")).unwrap();
        assert!(!says_none(&file));
        std::fs::remove_dir(dir.path("other")).unwrap();
        // A link that is no pool's folder: it is found when a pool is to be made.
        std::os::unix::fs::symlink("elsewhere", dir.path(BESIDE)).unwrap();
        assert!(says_none(&file) && is_not_beside(&file, 0));
        assert!(!says_none(Path::new("/proc/self/stat")), "its file system does not count");
    }

    #[test]
    fn an_empty_one_is_not_taken_away_from_its_maker() {
        let dir = Scratch::new();
        let pool = dir.path(BESIDE);
        let make = || {
            std::fs::create_dir(&pool).unwrap();
            std::fs::File::open(&pool).unwrap()
        };
        let maker = make();
        note_in_making(maker.as_fd());
        remove_left_empty(&pool);
        assert!(pool.exists());
        drop(maker);
        remove_left_empty(&pool);
        assert!(!pool.exists());
        make();
        std::fs::write(pool.join("control"), "").unwrap();
        remove_left_empty(&pool);
        assert!(pool.exists(), "not empty");
        std::fs::remove_file(pool.join("control")).unwrap();
        remove_left_empty(&pool);
        assert!(!pool.exists());
        remove_left_empty(&pool);
    }

    #[test]
    fn a_files_own_names_are_looked_for_in_the_pool() {
        let dir = Scratch::new();
        std::fs::write(dir.path("file"), "x").unwrap();
        let file = std::fs::File::open(dir.path("file")).unwrap();
        let look = |suffixes: &[&str]| look_beside(file.as_fd(), None, suffixes).unwrap();
        let own = |suffix: &str| dir.path(BESIDE).join(Identity::of_fd(file.as_fd()).unwrap().stem() + suffix);
        assert_eq!(look(&[".a", ".b"]), Beside::NoPool);
        std::fs::create_dir(dir.path(BESIDE)).unwrap();
        std::fs::write(dir.path(BESIDE).join("another.a"), "").unwrap();
        let nothing = Beside::NothingIn(dir.path(BESIDE));
        assert_eq!(look(&[".a", ".b"]), nothing);
        std::fs::write(own(".b"), "").unwrap();
        assert_eq!((look(&[".a", ".b"]), look(&[".a"])), (Beside::MayBe, nothing));
        // What is not as usual is looked at in the usual way.
        std::fs::set_permissions(dir.root(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(look(&[".a"]), Beside::MayBe);
        std::fs::set_permissions(dir.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(dir.path(BESIDE), dir.path("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path(BESIDE)).unwrap();
        assert_eq!(look(&[".a"]), Beside::MayBe);
    }

    #[test]
    fn a_folder_with_the_sticky_bit_has_one_for_each_owner() {
        let dir = Scratch::new();
        std::fs::write(dir.path("file"), "x").unwrap();
        let file = std::fs::File::open(dir.path("file")).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(beside_path(&dir.path("file")), dir.path(BESIDE));
        assert!(!may_be_beside(file.as_fd(), None).unwrap());
        std::fs::set_permissions(dir.root(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let own = format!("{BESIDE}-{me}");
        assert_eq!(beside_path(&dir.path("file")), dir.path(&own));
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 50 {
            // A folder that has not changed for a while.
            assert_eq!(look_beside(file.as_fd(), None, &[]).unwrap(), Beside::NoPool);
        }
        std::fs::create_dir(dir.path(&own)).unwrap();
        assert!(may_be_beside(file.as_fd(), None).unwrap());
        assert_eq!(look_beside(file.as_fd(), None, &[]).unwrap(), Beside::MayBe);
    }
}
