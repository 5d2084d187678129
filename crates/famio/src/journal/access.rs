//! Who owns what is ours, and who may touch it: no more than those who may touch the file (rule 11).

pub(super) use super::beside::is_sticky;
use crate::error::{Error, Result};
use rustix::fs::{FileType, Gid, Mode, Stat, Uid, fchmod, fchown, fstat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

const SET_GROUP: u32 = 0o2000;

/// Makes a folder for journals: its owner and its group are its parent's, where we may give it away, and it is as open as its parent:
/// all who may write the one have to find what a killed process of another user has left in the other. In a parent with the sticky bit it is the file's owner's alone. One that is there stays.
pub(super) fn make_folder(parent: BorrowedFd<'_>, name: &str, file: BorrowedFd<'_>) -> Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let flags = rustix::fs::OFlags::RDONLY
        | rustix::fs::OFlags::DIRECTORY
        | rustix::fs::OFlags::NOFOLLOW
        | rustix::fs::OFlags::CLOEXEC;
    let folder = match crate::sys::openat(parent, name, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()), // removed again; the caller sees
        Err(e) => return Err(e.into()),
    };
    let (above, here) = (fstat(parent)?, fstat(&folder)?);
    if is_sticky(&above) {
        let owner = fstat(file)?;
        if is_root() && owner.st_uid != here.st_uid {
            fchown(&folder, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
        }
    } else {
        if is_root() && (above.st_uid, above.st_gid) != (here.st_uid, here.st_gid) {
            fchown(&folder, Some(Uid::from_raw(above.st_uid)), Some(Gid::from_raw(above.st_gid)))?;
        }
        let theirs = Some(Gid::from_raw(above.st_gid));
        let same_group = is_root() || above.st_gid == here.st_gid || fchown(&folder, None, theirs).is_ok();
        // A group that is not the parent's is of the others there.
        let others = above.st_mode & 0o007;
        let open = if same_group { above.st_mode & 0o777 } else { (others << 3 | others) & above.st_mode };
        fchmod(&folder, Mode::from_raw_mode(0o700 | open | here.st_mode & SET_GROUP))?;
    }
    Ok(())
}

/// Whether journals of `file` may lie in a folder: nobody but the file's owner, root and us could replace them, or
/// those who may as well replace the file, since they may do so in `parent`.
pub(super) fn check_folder(
    folder: BorrowedFd<'_>,
    parent: Option<BorrowedFd<'_>>,
    file: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let stat = fstat(folder)?;
    let parent = parent.map(fstat).transpose()?;
    let owner = file.map(fstat).transpose()?.map(|file| file.st_uid);
    let me = rustix::process::geteuid().as_raw();
    let keeper = parent.filter(|parent| !is_sticky(parent)).map(|parent| parent.st_uid);
    // Where a group, or everybody, may write the folder around it, each of those may have made it; and could as well replace the
    // file.
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

/// Gives a journal the file's owner, group and mode, as far as we may.
pub(crate) fn give_to_owner_of(file: BorrowedFd<'_>, journal: BorrowedFd<'_>) -> Result<()> {
    give(file, journal, |file, same_group| if same_group { file.st_mode & 0o066 } else { 0 })
}

/// Gives a file of ours to those who may write `file`, and to nobody else: who may only read it is to lock nothing of it.
pub(crate) fn give_to_writers_of(file: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> Result<()> {
    give(file, ours, writers_of)
}

/// `mode`: beyond its owner's, of the file's state, and whether ours has its group. Bits for a group are for the file's, or for none.
fn give(file: BorrowedFd<'_>, ours: BorrowedFd<'_>, mode: fn(&Stat, bool) -> u32) -> Result<()> {
    let (like, here) = (fstat(file)?, fstat(ours)?);
    let mut now = here.st_mode & 0o7777;
    let mut set = |to: u32| match core::mem::replace(&mut now, to) == to {
        true => Ok(()),
        false => fchmod(ours, Mode::from_raw_mode(to)),
    };
    if (like.st_uid, like.st_gid) != (here.st_uid, here.st_gid) {
        set(0o600)?; // not the old mode for the new group
    }
    if is_root() && like.st_uid != here.st_uid {
        fchown(ours, Some(Uid::from_raw(like.st_uid)), None)?;
    }
    let same_group = like.st_gid == here.st_gid || fchown(ours, None, Some(Gid::from_raw(like.st_gid))).is_ok();
    Ok(set(0o600 | mode(&like, same_group))?)
}

/// The mode of what is for the writers of a file, beyond its owner. `same_group`: it has the file's group.
fn writers_of(file: &Stat, same_group: bool) -> u32 {
    let group = if file.st_mode & 0o020 != 0 && same_group { 0o060 } else { 0 };
    let others = if file.st_mode & 0o002 != 0 { 0o006 } else { 0 };
    group | others
}

/// Whether memory that processes share can be from one that may write `file`, and is open to such alone: a regular file with one
/// name, or none any more.
///
/// # Errors
/// `EACCES`, and why not.
pub(crate) fn check_shared(ours: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<()> {
    let refused = |what: String| Err(Error::with(libc::EACCES, format!("{what}; not used")));
    let (here, like) = (fstat(ours)?, fstat(file)?);
    if FileType::from_raw_mode(here.st_mode) != FileType::RegularFile {
        return refused("not a regular file".into());
    }
    if here.st_nlink > 1 {
        return refused(format!("has {} names, not one", here.st_nlink));
    }
    let allowed = writers_of(&like, here.st_gid == like.st_gid);
    let by_owner = [0, like.st_uid, rustix::process::geteuid().as_raw()].contains(&here.st_uid);
    // Whose group or whose everybody may write the file: it can be anybody's of those.
    if !by_owner && allowed & 0o022 == 0 {
        return refused(format!("belongs to user {}, who may not write the file", here.st_uid));
    }
    if here.st_mode & 0o077 & !allowed != 0 {
        return refused(format!("mode {:03o} admits users who may not write the file", here.st_mode & 0o777));
    }
    Ok(())
}

/// Whether a journal can be trusted: a regular file with one name, of the file's owner, root or us, that nobody may
/// write who may not write the file. Without the file, only what can be told without it.
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
    let file = fstat(file)?;
    // Whose group or whose everybody may write the file: it can be anybody's of those.
    let by_writer = stat.st_mode & 0o022 & writers_of(&file, stat.st_gid == file.st_gid) != 0;
    if ![file.st_uid, 0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) && !by_writer {
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

/// Write permissions that the journal gives and the file does not.
fn writers_beyond(journal: &Stat, file: &Stat) -> u32 {
    let allowed = if journal.st_gid == file.st_gid { file.st_mode } else { file.st_mode & !0o020 };
    journal.st_mode & 0o022 & !allowed
}

/// Makes a call that takes permissions on a file. An owner who has taken them from himself (mode 0444) has them meanwhile: what lets
/// him write through a descriptor that is open already does not let him change an attribute. A kill in between leaves them.
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
    if mode.contains(own) || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(denied);
    }
    fchmod(file, mode | own)?;
    let done = call();
    fchmod(file, mode)?;
    done
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
