//! Ownership and permissions of Famio's own files: only users who may access a file may access Famio's files for it
//! (SECURITY.md).

use super::acl::{self, Permissions, READ_WRITE};
use super::beside::is_sticky;
use super::kept::open_folder_at;
use crate::error::{Error, Result};
use crate::sys::{effective_user, owner_and_mode, owner_and_mode_of_folder};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const SET_GROUP: u32 = 0o2000;

/// Creates a folder for journals. It gets its parent's owner (if this process may set that), group and mode: every
/// user who may write the parent must find what a killed process of another user has left in the folder. In a parent
/// with the sticky bit, it belongs to the file's owner alone. An existing folder is left as it is.
pub(in crate::journal) fn make_folder(parent: BorrowedFd<'_>, name: &str, file: BorrowedFd<'_>) -> Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let folder = match open_folder_at(parent, name, OFlags::RDONLY | OFlags::NOFOLLOW) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()), // removed again; the caller notices
        Err(e) => return Err(not_left(parent, name, e.into())),
    };
    complete_folder(parent, folder.as_fd(), file).map_err(|e| not_left(parent, name, e))
}

/// Removes the new folder after an error: others could not use it.
#[cold]
fn not_left(parent: BorrowedFd<'_>, name: &str, error: Error) -> Error {
    let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    error
}

fn complete_folder(parent: BorrowedFd<'_>, folder: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<()> {
    acl::remove_default(parent, folder)?;
    let (above, here) = (owner_and_mode_of_folder(parent)?, fstat(folder)?);
    if is_sticky(&above) {
        let owner = owner_and_mode(file)?;
        if give_owner(folder, &here, &owner)? == owner.st_uid {
            give_group(folder, &here, &owner);
        }
        return Ok(());
    }
    let (owner, gid) = (give_owner(folder, &here, &above)?, give_group(folder, &here, &above));
    let wanted = Permissions::of(parent, &above)?;
    fchmod(folder, Mode::from_raw_mode(0o700 | wanted.as_mode(gid) | here.st_mode & SET_GROUP))?;
    if wanted.need_list() {
        let _ = wanted.set_list(folder, (owner, gid), 7); // without it, fewer users may do what they may in the parent
    }
    Ok(())
}

/// Gives a journal the owner, group, mode and access control list of its file, as far as this process may. Returns
/// whether it has the file's owner.
pub(crate) fn give_to_owner_of(file: BorrowedFd<'_>, journal: BorrowedFd<'_>) -> Result<bool> {
    give(file, journal, |permissions| permissions)
}

/// The bits for group and others of a copy of `like` that has no access control list and the group `gid`, so that nobody
/// may do more with it. An `O_PATH` descriptor suffices.
pub(crate) fn mode_without_list(like: BorrowedFd<'_>, stat: &Stat, gid: u32) -> Result<u32> {
    Ok(Permissions::of_looked_at(like, stat)?.as_mode(gid))
}

/// Gives one of Famio's files to the users who may write `file`, and to no others: a user who may only read the file
/// must not be able to lock it.
pub(crate) fn give_to_writers_of(file: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> Result<()> {
    give(file, ours, Permissions::of_writers).map(drop)
}

/// `wanted` makes the permissions, beyond the owner's, of those of the file. Returns whether it has the file's owner.
fn give(file: BorrowedFd<'_>, ours: BorrowedFd<'_>, wanted: fn(Permissions) -> Permissions) -> Result<bool> {
    let (like, here) = (fstat(file)?, fstat(ours)?); // as it is now: it may just have been restricted
    let wanted = wanted(Permissions::of(file, &like)?);
    let mut now = here.st_mode & 0o7777;
    let mut set = |to: u32| match core::mem::replace(&mut now, to) == to {
        true => Ok(()),
        false => fchmod(ours, Mode::from_raw_mode(to)),
    };
    let has_list = acl::is_on(ours); // as the default of the folder, or as the file had one
    if has_list || (like.st_uid, like.st_gid) != (here.st_uid, here.st_gid) {
        set(0o600)?; // the old mode must not apply to the new group, nor the list's mask to any
    }
    if has_list {
        acl::remove(ours)?;
    }
    let owner = give_owner(ours, &here, &like)?;
    let gid = give_group(ours, &here, &like);
    if wanted.need_list() && wanted.set_list(ours, (owner, gid), READ_WRITE).is_ok() {
        return Ok(owner == like.st_uid);
    }
    set(0o600 | wanted.as_mode(gid) & 0o066)?;
    Ok(owner == like.st_uid)
}

/// Gives it the owner of `like`, if this process may: not without `CAP_CHOWN`, nor an owner whom its user namespace
/// does not know. Returns the owner that it has.
fn give_owner(ours: BorrowedFd<'_>, here: &Stat, like: &Stat) -> rustix::io::Result<u32> {
    if !is_root() || like.st_uid == here.st_uid {
        return Ok(here.st_uid);
    }
    match fchown(ours, Some(Uid::from_raw(like.st_uid)), None) {
        Err(Errno::PERM | Errno::INVAL) => Ok(here.st_uid),
        given => given.map(|()| like.st_uid),
    }
}

/// As [`give_owner`], with the group.
fn give_group(ours: BorrowedFd<'_>, here: &Stat, like: &Stat) -> u32 {
    let is_same = like.st_gid == here.st_gid || fchown(ours, None, Some(Gid::from_raw(like.st_gid))).is_ok();
    if is_same { like.st_gid } else { here.st_gid }
}

/// Makes a call that needs permissions on a file. If the file's mode denies them to its owner (0444), its owner gets
/// them for the duration of the call: an open descriptor allows writes, but not changes of attributes. A kill in
/// between leaves the mode changed.
pub(crate) fn as_owner<T>(
    file: BorrowedFd<'_>,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let denied = match call() {
        Err(Errno::ACCESS) => Errno::ACCESS,
        done => return done,
    };
    let stat = fstat(file)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let own = Mode::RUSR | Mode::WUSR;
    if mode.contains(own) || stat.st_uid != effective_user() {
        return Err(denied);
    }
    fchmod(file, mode | own)?;
    let done = call();
    fchmod(file, mode)?;
    done
}

fn is_root() -> bool {
    effective_user() == 0
}
