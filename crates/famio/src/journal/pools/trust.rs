//! Whether Famio's own files can be trusted: who may have made them, and who may write them (SECURITY.md).

use super::acl::{Permissions, READ_WRITE, WRITE};
use super::beside::is_sticky;
use crate::error::{Error, Result};
use crate::sys::{effective_user, owner_and_mode, owner_and_mode_of_folder};
use rustix::fs::{FileType, Stat, fstat};
use std::os::fd::BorrowedFd;

/// The user that stands for all whom a user namespace does not know.
const UNKNOWN: u32 = 65534;

/// Whether journals of `file` may lie in a folder: only the file's owner, root, this user, or users who may replace
/// the file in `parent` anyway, may replace files in it. Returns whether it [is this user's own](is_own).
pub(in crate::journal) fn check_folder(
    folder: BorrowedFd<'_>,
    parent: Option<BorrowedFd<'_>>,
    file: Option<BorrowedFd<'_>>,
) -> Result<bool> {
    let stat = fstat(folder)?;
    let parent = parent.map(owner_and_mode_of_folder).transpose()?;
    let owner = file.map(owner_and_mode).transpose()?.map(|file| file.st_uid);
    let me = effective_user();
    let keeper = parent.filter(|parent| !is_sticky(parent)).map(|parent| parent.st_uid);
    // If a group, or everybody, may write the surrounding folder, any of them may have created this one; but they
    // could replace the file as well.
    let is_shared = parent.is_some_and(|parent| !is_sticky(&parent) && parent.st_mode & 0o022 != 0);
    let trusted = is_shared || [0, me].contains(&stat.st_uid) || [owner, keeper].contains(&Some(stat.st_uid));
    if owner.is_some() && !trusted {
        let text =
            format!("belongs to user {}, not to the file's owner, root or you; choose a pool of your own", stat.st_uid);
        return Err(Error::with(libc::EACCES, text));
    }
    let anybody = |stat: &Stat| stat.st_mode & 0o002 != 0 && !is_sticky(stat);
    if anybody(&stat) && !parent.is_some_and(|parent| anybody(&parent)) {
        return Err(Error::with(libc::EACCES, "everybody can replace journals in it; chmod o-w or +t"));
    }
    Ok(is_own_by(&stat))
}

/// Whether in a folder the group of a file says that its owner is a member: not where others than its own group may put
/// files that get the folder's group, or have got a group elsewhere.
fn do_groups_count(folder: BorrowedFd<'_>) -> Result<bool> {
    let stat = fstat(folder)?;
    let is_everybodys = is_sticky(&stat) && stat.st_mode & 0o002 != 0;
    Ok(!is_everybodys && !Permissions::of(folder, &stat)?.name_writers())
}

/// Whether the owner of one of our files is among the users who may write `file`: as one of everybody, as one that its
/// list names, or as one of its group.
fn is_by_writer(ours: &Permissions, owner: u32, file: &Permissions, folder: Option<BorrowedFd<'_>>) -> Result<bool> {
    Ok(file.are_everybodys_to_write()
        || file.names_writer(owner)
        || ours.has_group_that_writes(file) && folder.map_or(Ok(true), do_groups_count)?)
}

/// Whether one of our files belongs to the owner of the file, to root or to this user.
fn is_by_owner(here: &Stat, like: &Stat) -> bool {
    [0, like.st_uid, effective_user()].contains(&here.st_uid)
}

/// Whether moreover its mode alone keeps all others from this: users and groups whom a list names get no more than the
/// mode's group bits.
fn is_kept_to_owner(here: &Stat, like: &Stat, bits: u32) -> bool {
    here.st_mode & (bits << 3 | bits) == 0 && is_by_owner(here, like)
}

/// Whether shared memory with a name is that of [`check_shared`], and nobody but its owner may read or write it.
pub(in crate::journal) fn is_for_owner_alone(ours: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<bool> {
    let (here, like) = (fstat(ours)?, owner_and_mode(file)?);
    let is_regular = FileType::from_raw_mode(here.st_mode) == FileType::RegularFile;
    Ok(is_regular && here.st_nlink == 1 && is_kept_to_owner(&here, &like, READ_WRITE))
}

/// Whether one of our files, with the permissions `given`, belongs to the owner of `file`, to root, to this user, or to
/// another user who may write `file`.
fn is_by_trusted(
    (here, given): (&Stat, &Permissions),
    (like, allowed): (&Stat, &Permissions),
    folder: Option<BorrowedFd<'_>>,
) -> Result<bool> {
    Ok(is_by_owner(here, like) || is_by_writer(given, here.st_uid, allowed, folder)?)
}

/// Whether nobody but root and this user can put anything into a folder.
pub(super) fn is_own(folder: BorrowedFd<'_>) -> bool {
    fstat(folder).is_ok_and(|stat| is_own_by(&stat))
}

fn is_own_by(folder: &Stat) -> bool {
    [0, effective_user()].contains(&folder.st_uid) && folder.st_mode & 0o022 == 0 // or a list's mask
}

/// Whether nobody but a folder's owner and the owners of the files in it can replace or remove those.
pub(in crate::journal) fn is_protected(folder: BorrowedFd<'_>) -> bool {
    let is = |stat: Stat| is_sticky(&stat) || stat.st_mode & 0o022 == 0; // or a list's mask
    fstat(folder).is_ok_and(is)
}

/// Whether shared memory can come from a user who may write `file`, and only such users can write it: a regular file
/// with at most one name. `folder`: in which it was found by its name.
///
/// # Errors
/// `EACCES`, with the reason if not.
pub(crate) fn check_shared(ours: BorrowedFd<'_>, file: BorrowedFd<'_>, folder: Option<BorrowedFd<'_>>) -> Result<()> {
    let refused = |what: String| Err(Error::with(libc::EACCES, format!("{what}; not used")));
    let (here, like) = (fstat(ours)?, owner_and_mode(file)?);
    if FileType::from_raw_mode(here.st_mode) != FileType::RegularFile {
        return refused("not a regular file".into());
    }
    if here.st_nlink > 1 {
        return refused(format!("has {} names, not one", here.st_nlink));
    }
    if is_kept_to_owner(&here, &like, READ_WRITE) {
        return Ok(());
    }
    let (allowed, given) = (Permissions::of(file, &like)?, Permissions::of_looked_at(ours, &here)?);
    if !is_by_trusted((&here, &given), (&like, &allowed), folder)? {
        return refused(format!("belongs to user {}, who may not write the file", here.st_uid));
    }
    if given.exceed_writers_of(&allowed, READ_WRITE) {
        return refused(format!("mode {:03o} admits users who may not write the file", here.st_mode & 0o777));
    }
    Ok(())
}

/// Whether every user who may write `file` will trust a journal that this process has just made for it in `folder`, and
/// that it could not give to the file's owner. Not if the process has the file open from a time when it was another
/// user.
pub(in crate::journal) fn check_made(
    journal: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
) -> Result<()> {
    let (here, like) = (fstat(journal)?, fstat(file)?);
    // In a user namespace, root is nobody outside.
    if here.st_uid == 0 && like.st_uid != UNKNOWN {
        return Ok(());
    }
    let (given, allowed) = (Permissions::of(journal, &here)?, Permissions::of(file, &like)?);
    if is_by_writer(&given, here.st_uid, &allowed, Some(folder))? {
        return Ok(());
    }
    let what = format!(
        "its journal would belong to user {}, and nothing shows the file's other users that this user may write the file (user {}'s)",
        here.st_uid, like.st_uid
    );
    Err(Error::with(libc::EACCES, what))
}

/// Whether a journal can be trusted: a regular file with one name that belongs to the file's owner, root, this user or
/// another user who may write the file; and that only users who may write the file can write. `folder`: in which it was
/// found. Without the file, checks what can be checked.
pub(in crate::journal) fn check_journal(
    journal: BorrowedFd<'_>,
    file: Option<BorrowedFd<'_>>,
    folder: BorrowedFd<'_>,
) -> Result<()> {
    let refused = |what: String| Err(Error::with(libc::EACCES, format!("{what}; not used")));
    let stat = fstat(journal)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return refused("a symbolic link, not a journal".into()),
        _ => return refused("not a regular file".into()),
    }
    if stat.st_nlink != 1 {
        return refused(format!("has {} names, not one", stat.st_nlink));
    }
    let Some(file) = file else { return Ok(()) };
    let like = owner_and_mode(file)?;
    if is_kept_to_owner(&stat, &like, WRITE) {
        return Ok(());
    }
    let (given, allowed) = (Permissions::of_looked_at(journal, &stat)?, Permissions::of(file, &like)?);
    if !is_by_trusted((&stat, &given), (&like, &allowed), Some(folder))? {
        return refused(format!(
            "belongs to user {}, not to the file's owner ({}), root or you",
            stat.st_uid, like.st_uid
        ));
    }
    if given.exceed_writers_of(&allowed, WRITE) {
        return refused(format!(
            "mode {:03o} lets users write it who may not write the file (mode {:03o}); chmod go-w, or setfacl -b",
            stat.st_mode & 0o777,
            like.st_mode & 0o777
        ));
    }
    Ok(())
}
