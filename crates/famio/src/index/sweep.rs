//! Arenas that nobody will ask for again: a program was killed, and its file deleted before it was recovered. They take
//! memory until the machine is started anew.
//!
//! None that is in use goes: its lock is held. None whose file could still be recovered goes, as far as can be told by the
//! paths that it was left with: it knows when the last writer left.

use super::claim::Unlocks;
use super::shared::{HINTS, MAGIC, Shared};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const FOLDER: &str = "/dev/shm";
/// A lock file without an arena may be about to be locked: one that is older than this, in seconds, is not.
const FRESH: i64 = 60;

/// Sweeps, once a process: at the first attach.
pub(crate) fn sweep_once() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        sweep();
    }
}

/// Removes what nobody needs any more. Best effort: what is another user's stays.
pub(crate) fn sweep() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(CWD, FOLDER, flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::read_from(&folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_bytes().ends_with(b".door") {
            super::door::sweep_door(name);
            continue;
        }
        if let Some(door) = beside_of(name.to_bytes()) {
            // By who is at the door alone such a file is made.
            let gone = |name: &[u8]| {
                matches!(rustix::fs::lstat(Path::new(FOLDER).join(OsStr::from_bytes(name))), Err(Errno::NOENT))
            };
            if gone(&door) {
                let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
            }
            continue;
        }
        let Some(of) = name.to_str().ok().and_then(file_of) else { continue };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(arena) = rustix::fs::openat(&folder, name, flags, Mode::empty()) else { continue };
        // Locked only when it looks stale: whoever claims the file meanwhile would be told that it is in use.
        if !is_stale(&arena, of) || rustix::fs::flock(&arena, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let _unlocks = Unlocks(&arena);
        let same = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|there| {
            rustix::fs::fstat(&arena).is_ok_and(|here| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
        });
        if same && is_stale(&arena, of) {
            let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
        }
    }
}

/// The name of the door that a file of its own lies beside: what travels, or a shadow.
fn beside_of(name: &[u8]) -> Option<Vec<u8>> {
    let name = core::str::from_utf8(name).ok()?.strip_prefix("famio-")?;
    let (key, number) = name.split_once(".epoch.").or_else(|| name.split_once(".shadow."))?;
    number.parse::<u64>().ok()?;
    Some(format!("famio-{key}.door").into_bytes())
}

/// Device and inode of the file that an arena's name says.
fn file_of(name: &str) -> Option<(u64, u64)> {
    let (device, inode) = name.strip_prefix("famio-")?.strip_suffix(".arena")?.split_once('-')?;
    Some((u64::from_str_radix(device, 16).ok()?, u64::from_str_radix(inode, 16).ok()?))
}

fn is_stale(arena: &OwnedFd, of: (u64, u64)) -> bool {
    let Ok(stat) = rustix::fs::fstat(arena) else { return false };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return false;
    }
    if stat.st_size == 0 {
        return crate::sys::coarse_now().tv_sec - stat.st_mtime > FRESH;
    }
    let mut page = [0u8; size_of::<Shared>()];
    if !matches!(rustix::io::pread(arena, &mut page, 0), Ok(n) if n == page.len()) {
        return false;
    }
    let magic = u64::from_le_bytes(core::array::from_fn(|i| page[offset_of!(Shared, magic) + i]));
    let mut hints = page[offset_of!(Shared, hints)..][..HINTS].split(|&byte| byte == 0);
    let mut hint =
        || hints.next().filter(|path| path.first() == Some(&b'/')).map(|path| Path::new(OsStr::from_bytes(path)));
    match (hint(), hint()) {
        (Some(file), Some(journal)) if magic == MAGIC => !may_be_recovered(of, file, journal),
        _ => false, // no arena of ours, or it does not know
    }
}

/// Whether the file is where it was, or its journal, and the file could be elsewhere.
fn may_be_recovered(of: (u64, u64), file: &Path, journal: &Path) -> bool {
    match rustix::fs::stat(file) {
        Ok(stat) if (stat.st_dev, stat.st_ino) == of => return true,
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
        Err(_) => return true,
    }
    if matches!(rustix::fs::lstat(journal), Err(Errno::NOENT | Errno::NOTDIR)) {
        return false;
    }
    // With the journal beside it the file has to be there, too, if only by another name.
    match (file.parent(), journal.parent().and_then(Path::parent)) {
        (Some(folder), Some(beside)) if folder == beside => has_inode(folder, of.1),
        _ => true,
    }
}

fn has_inode(folder: &Path, inode: u64) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = rustix::fs::openat(CWD, folder, flags, Mode::empty()).and_then(Dir::new);
    entries.map_or(true, |mut entries| entries.any(|entry| entry.map_or(true, |entry| entry.ino() == inode)))
}
