//! Ownership and permissions of Famio's own files: only users who may access a file may access Famio's files for it
//! (SECURITY.md).

use super::beside::is_sticky;
use super::kept::open_folder_at;
use crate::error::{Error, Result};
use crate::sys::{effective_user, owner_and_mode, owner_and_mode_of_folder};
use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

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
        Err(e) => return Err(e.into()),
    };
    let (above, here) = (owner_and_mode_of_folder(parent)?, fstat(&folder)?);
    if is_sticky(&above) {
        let owner = owner_and_mode(file)?;
        if is_root() && owner.st_uid != here.st_uid {
            fchown(&folder, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
        }
    } else {
        if is_root() && (above.st_uid, above.st_gid) != (here.st_uid, here.st_gid) {
            fchown(&folder, Some(Uid::from_raw(above.st_uid)), Some(Gid::from_raw(above.st_gid)))?;
        }
        let theirs = Some(Gid::from_raw(above.st_gid));
        let same_group = is_root() || above.st_gid == here.st_gid || fchown(&folder, None, theirs).is_ok();
        // If the group is not the parent's, its members are "others" in the parent.
        let others = above.st_mode & 0o007;
        let open = if same_group { above.st_mode & 0o777 } else { (others << 3 | others) & above.st_mode };
        fchmod(&folder, Mode::from_raw_mode(0o700 | open | here.st_mode & SET_GROUP))?;
    }
    Ok(())
}

/// Whether journals of `file` may lie in a folder: only the file's owner, root, this user, or users who may replace
/// the file in `parent` anyway, may replace files in it.
pub(in crate::journal) fn check_folder(
    folder: BorrowedFd<'_>,
    parent: Option<BorrowedFd<'_>>,
    file: Option<BorrowedFd<'_>>,
) -> Result<()> {
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
    Ok(())
}

/// Gives a journal the owner, group and mode of its file, as far as this process may.
pub(crate) fn give_to_owner_of(file: BorrowedFd<'_>, journal: BorrowedFd<'_>) -> Result<()> {
    give(file, journal, users_of)
}

/// Gives one of Famio's files to the users who may write `file`, and to no others: a user who may only read the file
/// must not be able to lock it.
pub(crate) fn give_to_writers_of(file: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> Result<()> {
    give(file, ours, writers_of)
}

/// `mode` computes the permissions beyond the owner's, from the file's state and whether our file has its group.
/// Group bits are for the file's group, or are not set.
fn give(file: BorrowedFd<'_>, ours: BorrowedFd<'_>, mode: fn(&Stat, bool) -> u32) -> Result<()> {
    let (like, here) = (fstat(file)?, fstat(ours)?); // as it is now: it may just have been restricted
    let mut now = here.st_mode & 0o7777;
    let mut set = |to: u32| match core::mem::replace(&mut now, to) == to {
        true => Ok(()),
        false => fchmod(ours, Mode::from_raw_mode(to)),
    };
    if (like.st_uid, like.st_gid) != (here.st_uid, here.st_gid) {
        set(0o600)?; // the old mode must not apply to the new group
    }
    if is_root() && like.st_uid != here.st_uid {
        fchown(ours, Some(Uid::from_raw(like.st_uid)), None)?;
    }
    let same_group = like.st_gid == here.st_gid || fchown(ours, None, Some(Gid::from_raw(like.st_gid))).is_ok();
    Ok(set(0o600 | mode(&like, same_group))?)
}

/// The permissions, beyond the owner's, of something for the users of a file. `same_group`: it has the file's group.
/// If it has another one, the file's group is among its others, and its group among the file's others.
fn users_of(file: &Stat, same_group: bool) -> u32 {
    let [group, others] = [file.st_mode >> 3 & 0o6, file.st_mode & 0o6];
    let everybody = group & others;
    if same_group { group << 3 | others } else { everybody << 3 | everybody }
}

/// As [`users_of`], for the file's writers only.
fn writers_of(file: &Stat, same_group: bool) -> u32 {
    let write = users_of(file, same_group) & 0o022;
    write | write << 1
}

/// Whether shared memory can come from a user who may write `file`, and only such users can write it: a regular file
/// with at most one name.
///
/// # Errors
/// `EACCES`, with the reason if not.
pub(crate) fn check_shared(ours: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<()> {
    let refused = |what: String| Err(Error::with(libc::EACCES, format!("{what}; not used")));
    let (here, like) = (fstat(ours)?, owner_and_mode(file)?);
    if FileType::from_raw_mode(here.st_mode) != FileType::RegularFile {
        return refused("not a regular file".into());
    }
    if here.st_nlink > 1 {
        return refused(format!("has {} names, not one", here.st_nlink));
    }
    let allowed = writers_of(&like, here.st_gid == like.st_gid);
    let by_owner = [0, like.st_uid, effective_user()].contains(&here.st_uid);
    // If the group, or everybody, may write the file, any of them may have created this.
    if !by_owner && allowed & 0o022 == 0 {
        return refused(format!("belongs to user {}, who may not write the file", here.st_uid));
    }
    if here.st_mode & 0o077 & !allowed != 0 {
        return refused(format!("mode {:03o} admits users who may not write the file", here.st_mode & 0o777));
    }
    Ok(())
}

/// Whether every user who may write `file` will trust a journal that this process has just made for it. Not if the
/// process has the file open from a time when it had more permissions, as another user.
pub(in crate::journal) fn check_made(journal: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<()> {
    let me = effective_user();
    let file = fstat(file)?;
    if [0, file.st_uid].contains(&me) || is_by_writer(&fstat(journal)?, &file) {
        return Ok(());
    }
    let what = format!("would belong to user {me}, who may not write the file (user {}'s)", file.st_uid);
    Err(Error::with(libc::EACCES, what))
}

/// Whether the owner of a journal is among the file's users because the group, or everybody, may write the file.
fn is_by_writer(journal: &Stat, file: &Stat) -> bool {
    let is_everybodys = file.st_mode & 0o022 == 0o022;
    is_everybodys || journal.st_mode & 0o022 & users_of(file, journal.st_gid == file.st_gid) != 0
}

/// Whether a journal can be trusted: a regular file with one name that belongs to the file's owner, root, this user or
/// one of the group, or of everybody, who may write the file; and that only users who may write the file can write.
/// Without the file, checks what can be checked.
pub fn check_journal(journal: BorrowedFd<'_>, file: Option<BorrowedFd<'_>>) -> Result<()> {
    let refused = |what: String| Err(Error::with(libc::EIO, format!("{what}; not used")));
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
    let file = owner_and_mode(file)?;
    if ![file.st_uid, 0, effective_user()].contains(&stat.st_uid) && !is_by_writer(&stat, &file) {
        return refused(format!(
            "belongs to user {}, not to the file's owner ({}), root or you",
            stat.st_uid, file.st_uid
        ));
    }
    if writers_beyond(&stat, &file) != 0 {
        return refused(format!(
            "mode {:03o} lets users write it who may not write the file (mode {:03o}); chmod go-w",
            stat.st_mode & 0o777,
            file.st_mode & 0o777
        ));
    }
    Ok(())
}

/// Write permissions on the journal that the file does not give.
fn writers_beyond(journal: &Stat, file: &Stat) -> u32 {
    journal.st_mode & 0o022 & !users_of(file, journal.st_gid == file.st_gid)
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
