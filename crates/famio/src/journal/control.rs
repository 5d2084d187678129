//! Where a file's control file lies, and who may open it: beside the file's journal, for the users who may write the
//! file. So the information that processes exchange through it (`index::control`) comes only from users who could
//! also change the file's bytes, and only they can lock it.

use super::identity::Identity;
use super::mark::{self, Mark, Marked};
use crate::error::{Error, Result};
use crate::index::{CONTROL_SIZE, Control};
use crate::journal::pools::access::give_to_writers_of;
use crate::journal::pools::beside::{Beside, look_beside, may_be_beside, remove_left_empty};
use crate::journal::pools::pool::{Pool, journal_name};
use crate::journal::pools::reach::{look, open_looked_at};
use crate::journal::pools::trust::check_shared;
use crate::sys::{self, InternalFd, internal, write_at};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// How a control file's name ends.
pub const SUFFIX: &str = ".control";

/// Attempts to open or create it: another process may be creating or removing it, or its folder.
const TRIES: u32 = 100;

/// The pool in which the processes of the file meet: the pool of the file's mark, if it has one, otherwise `setting`.
/// Also returns whether it has one.
fn pool_by_mark(file: BorrowedFd<'_>, setting: Option<&Path>) -> (Option<PathBuf>, bool) {
    match mark_of(file) {
        Ok(Some(mark)) => (mark.pool, true),
        _ => (setting.map(Path::to_path_buf), false),
    }
}

fn pool_of(file: BorrowedFd<'_>, setting: Option<&Path>) -> Option<PathBuf> {
    pool_by_mark(file, setting).0
}

/// Also works on an `O_PATH` descriptor.
fn mark_of(file: BorrowedFd<'_>) -> Result<Option<Mark>> {
    match mark::get(file) {
        Err(e) if e.errno() == libc::EBADF => Ok(mark::of_looked_at(file)?.and_then(Marked::journal)),
        mark => mark,
    }
}

/// Best effort: without it, the next search takes longer.
fn note(file: BorrowedFd<'_>, setting: Option<&Path>, control: &InternalFd, path: PathBuf) {
    let _ = super::known_control::note(file, setting, control, path);
}

fn name_of(file: BorrowedFd<'_>) -> Result<String> {
    Ok(Identity::of_fd(file)?.stem() + SUFFIX)
}

/// Opens, for reading, the journal beside a control file that has this inode number, which its owner's arena names.
/// `None`: another file is there, or none, perhaps since the folder has another name now.
pub(crate) fn journal_beside(control: &Control, inode: u64) -> Option<InternalFd> {
    let mut path = super::path_of(control.as_fd()).ok()?.into_os_string().into_vec();
    path.truncate(path.len().checked_sub(SUFFIX.len()).filter(|&end| path[end..] == *SUFFIX.as_bytes())?);
    path.extend_from_slice(crate::journal::pools::pool::SUFFIX.as_bytes());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = sys::openat(CWD, path, flags, Mode::empty()).ok()?;
    (found.identity() == (control.identity().0, inode)).then_some(found)
}

/// The name of the control file beside a journal.
pub(crate) fn name_beside(journal: &str) -> String {
    journal.strip_suffix(crate::journal::pools::pool::SUFFIX).unwrap_or(journal).to_owned() + SUFFIX
}

/// Whether the file certainly has no control file, mark or journal. `path`: the kernel's path of the file, if known.
/// Opens nothing of the file's, so it takes a few system calls, where [`find`] takes dozens. As that does, it removes a
/// pool that was left empty.
pub(crate) fn is_unused(file: BorrowedFd<'_>, setting: Option<&Path>, path: Option<&Path>) -> bool {
    if setting.is_some() || !matches!(mark::get_any(file), Ok(None)) {
        return false;
    }
    match look_beside(file, path, &[SUFFIX, crate::journal::pools::pool::SUFFIX]) {
        Ok(Beside::NoPool) => true,
        Ok(Beside::NothingIn(pool)) => {
            remove_left_empty(&pool);
            true
        }
        Ok(Beside::MayBe) | Err(_) => false,
    }
}

/// Opens the control file, if there is one.
///
/// # Errors
/// `EACCES`: this process may not write the file, or the control file may come from a user who may not.
pub(crate) fn find(file: BorrowedFd<'_>, setting: Option<&Path>) -> Result<Option<InternalFd>> {
    let (pool, is_marked) = pool_by_mark(file, setting);
    if setting.is_none() && !is_marked && !may_be_beside(file, None)? {
        return Ok(None);
    }
    match Pool::find(file, pool.as_deref()) {
        Ok(Some(pool)) => {
            let name = name_of(file)?;
            let found = open_in(&pool, file, &name)?;
            match &found {
                Some(found) => note(file, setting, found, pool.path_of(&name)),
                None if pool.is_beside() => remove_left_empty(pool.path()),
                None => {}
            }
            Ok(found)
        }
        Ok(None) => Ok(None),
        Err(e) if e.errno() == libc::ENOENT => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens the control file, or creates it.
///
/// # Errors
/// `EACCES`: as [`find`]; or this process may write the file but not the folder of its pool. `ENOSPC`.
pub(crate) fn find_or_make(file: BorrowedFd<'_>, setting: Option<&Path>) -> Result<InternalFd> {
    let (pool, is_marked) = pool_by_mark(file, setting);
    let name = name_of(file)?;
    // While there is a session, there is a pool, too, and most likely a control file.
    if is_marked
        && let Ok(Some(pool)) = Pool::find(file, pool.as_deref())
        && let Ok(Some(control)) = open_in(&pool, file, &name)
    {
        note(file, setting, &control, pool.path_of(&name));
        return Ok(control);
    }
    for _ in 0..TRIES {
        let pool = Pool::make(file, pool.as_deref())?;
        if let Some(control) = open_or_make(&pool, file, &name)? {
            return Ok(control);
        }
    }
    Err(Error::new(libc::EAGAIN))
}

/// Opens, for reading, the journal beside the control file. `None`: there is none.
///
/// # Errors
/// `EACCES`: this process may not read it, or it may come from a user who may not write the file.
pub(crate) fn find_journal(file: BorrowedFd<'_>, setting: Option<&Path>) -> Result<Option<InternalFd>> {
    let Some(pool) = Pool::find(file, pool_of(file, setting).as_deref())? else { return Ok(None) };
    pool.open_read_only(&journal_name(&Identity::of_fd(file)?), Some(file))
}

/// As [`find`], in the pool of its journal.
pub(crate) fn find_in(pool: &Pool, file: BorrowedFd<'_>) -> Result<Option<InternalFd>> {
    open_in(pool, file, &name_of(file)?)
}

/// As [`find_in`], for a read-only file system: nothing can be stored in it.
pub(crate) fn find_to_read_in(pool: &Pool, file: BorrowedFd<'_>) -> Result<Option<InternalFd>> {
    open_in_with(pool, file, &name_of(file)?, OFlags::RDONLY)
}

/// As [`find_or_make`], in the pool of its journal. `None`: another process has removed that pool.
pub(crate) fn find_or_make_in(pool: &Pool, file: BorrowedFd<'_>) -> Result<Option<InternalFd>> {
    let name = name_of(file)?;
    for _ in 0..TRIES {
        if let Some(found) = open_or_make(pool, file, &name)? {
            return Ok(Some(found));
        }
        if pool.is_removed() {
            return Ok(None);
        }
    }
    Err(Error::new(libc::EAGAIN))
}

/// `None`: another process created or removed it, or its folder, at that very moment.
fn open_or_make(pool: &Pool, file: BorrowedFd<'_>, name: &str) -> Result<Option<InternalFd>> {
    if let Some(found) = open_in(pool, file, name)? {
        return Ok(Some(found));
    }
    match make_in(pool, file, name) {
        Err(e) if [libc::EEXIST, libc::ENOENT].contains(&e.errno()) => Ok(None),
        made => made.map(Some).map_err(|e| {
            pool.remove_if_empty(); // on a full disk, there may have been room for the folder only
            failed(pool, name, e)
        }),
    }
}

/// Whether `here` is the control file that other processes of the file find.
pub(crate) fn is_found(file: BorrowedFd<'_>, setting: Option<&Path>, here: &Control) -> Result<bool> {
    let same = |found: InternalFd| sys::identity(found.as_fd()).ok() == sys::identity(here.as_fd()).ok();
    Ok(find(file, setting)?.is_some_and(same))
}

/// Moves `here`, which has a name elsewhere, to where other processes look for it.
///
/// # Errors
/// `EEXIST`: there already is one. `ENOENT`: `here` has no name any more.
pub(crate) fn move_to(file: BorrowedFd<'_>, setting: Option<&Path>, here: &Control) -> Result<()> {
    let (pool, old) = (Pool::make(file, pool_of(file, setting).as_deref())?, super::path_of(here.as_fd())?);
    let flags = RenameFlags::NOREPLACE;
    let moved = rustix::fs::renameat_with(CWD, &old, pool.folder(), name_of(file)?, flags).map_err(Error::from);
    if moved.is_ok() && is_found(file, setting, here)? {
        here.remove_folder_at(&old);
        return Ok(());
    }
    pool.remove_if_empty();
    moved.and(Err(Error::new(libc::ENOENT)))
}

fn failed(pool: &Pool, name: &str, error: Error) -> Error {
    let error = error.context(format_args!("control file {}", pool.path_of(name).display()));
    match error.errno() {
        libc::EACCES => {
            let what = format!("{error}; run the program as a user who may write the file and that folder");
            Error::with(libc::EACCES, what)
        }
        _ => error,
    }
}

fn open_in(pool: &Pool, file: BorrowedFd<'_>, name: &str) -> Result<Option<InternalFd>> {
    open_in_with(pool, file, name, OFlags::RDWR)
}

fn open_in_with(pool: &Pool, file: BorrowedFd<'_>, name: &str, access: OFlags) -> Result<Option<InternalFd>> {
    match pool.open_in_own(name, access) {
        Err(Errno::NOENT) => return Ok(None),
        Ok(Some(found)) if is_whole(&found) && check_shared(found.as_fd(), file, Some(pool.folder())).is_ok() => {
            return Ok(Some(found));
        }
        _ => {}
    }
    // Examined before it is opened: another user may have put anything there.
    let looked = match look(pool.folder(), name) {
        Ok(looked) => looked,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(failed(pool, name, e.into())),
    };
    match check_shared(looked.as_fd(), file, Some(pool.folder())) {
        Ok(()) if is_whole(&looked) => {
            let _standard = internal::occupy_standard();
            let found = open_looked_at(looked.as_fd(), access);
            found.map(Some).map_err(|e| failed(pool, name, e))
        }
        checked => {
            // The file has got another mode or owner since.
            if let Some(followed) = follow(looked.as_fd(), file) {
                return Ok(Some(followed));
            }
            // Its creation was cut short, or a less trusted user has put it there. Removed if this process may.
            if !is_in_use(looked.as_fd(), file) && rustix::fs::unlinkat(pool.folder(), name, AtFlags::empty()).is_ok() {
                return Ok(None);
            }
            Err(failed(pool, name, checked.err().unwrap_or(Error::with(libc::EACCES, "was cut short"))))
        }
    }
}

fn is_whole(control: &InternalFd) -> bool {
    rustix::fs::fstat(control).is_ok_and(|stat| stat.st_size >= CONTROL_SIZE as i64)
}

/// Gives a control file that belongs to the file's owner, root or this user to those who may write the file now, if
/// this process may.
fn follow(looked: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Option<InternalFd> {
    let (here, like) = (rustix::fs::fstat(looked).ok()?, rustix::fs::fstat(file).ok()?);
    let by_owner = [0, like.st_uid, rustix::process::geteuid().as_raw()].contains(&here.st_uid);
    if !by_owner || here.st_nlink != 1 || here.st_size < CONTROL_SIZE as i64 {
        return None;
    }
    let _standard = internal::occupy_standard();
    let found = open_looked_at(looked, OFlags::RDWR).ok()?;
    give_to_writers_of(file, found.as_fd()).and_then(|()| check_shared(found.as_fd(), file, None)).ok()?;
    Some(found)
}

/// Whether a process may have a session through this control file: only if the file has a mark, since only users who
/// may write the file can set one.
fn is_in_use(looked: BorrowedFd<'_>, file: BorrowedFd<'_>) -> bool {
    let is_owned = |there: InternalFd| Control::new(there).is_owned();
    !matches!(mark_of(file), Ok(None)) && open_looked_at(looked, OFlags::RDONLY).map_or(true, is_owned)
}

/// Opens the file just made by its name, which the kernel then reports. Only for folders in which no other user can
/// replace it.
fn open_made(pool: &Pool, name: &str, made: &InternalFd) -> Option<InternalFd> {
    let folder = rustix::fs::fstat(pool.folder()).ok()?;
    if folder.st_mode & 0o022 != 0 || ![0, sys::effective_user()].contains(&folder.st_uid) {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let named = sys::openat(pool.folder(), name, flags, Mode::empty()).ok()?;
    (named.identity() == made.identity()).then_some(named)
}

/// Completes it before it gets its name, so that other processes never find it incomplete. `EEXIST`: another process
/// was first.
fn make_in(pool: &Pool, file: BorrowedFd<'_>, name: &str) -> Result<InternalFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let owner_only = Mode::RUSR | Mode::WUSR;
    let nameless = crate::sys::openat(pool.folder(), ".", flags | OFlags::TMPFILE, owner_only);
    let is_nameless = nameless.is_ok();
    let made = match nameless {
        Ok(nameless) => nameless,
        Err(_) => crate::sys::openat(pool.folder(), name, flags | OFlags::CREATE | OFlags::EXCL, owner_only)?,
    };
    let complete = || {
        give_to_writers_of(file, made.as_fd())?;
        // With blocks allocated, so that stores in its page need no space later.
        write_at(&made, 0, &Control::first_page()?[..])
    };
    if let Err(e) = complete() {
        if !is_nameless {
            let _ = rustix::fs::unlinkat(pool.folder(), name, AtFlags::empty());
        }
        return Err(e);
    }
    if is_nameless {
        let link = format!("/proc/thread-self/fd/{}", made.as_raw_fd());
        rustix::fs::linkat(CWD, &*link, pool.folder(), name, AtFlags::SYMLINK_FOLLOW)?;
        if let Some(named) = open_made(pool, name, &made) {
            return Ok(named);
        }
    }
    match open_in(pool, file, name) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Error::new(libc::ENOENT)),
        // No descriptor is left to examine it with; keeping this one, it is at least removed when the file is closed.
        Err(e) if [libc::EMFILE, libc::ENFILE].contains(&e.errno()) => Ok(made),
        Err(e) => Err(e),
    }
}
