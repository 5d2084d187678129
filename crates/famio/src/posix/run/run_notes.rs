//! What a process adds to the record of its run: selected files that it opens and syncs, and other files that it
//! syncs. Allocates nothing, and never waits.

use super::maps_list;
use super::run_record::{
    HAS_PROTECTED, MORE_SELECTED, MORE_SYNCED, OwnerSession, PROTECTED, Record, has_all, hash, joined,
};
use crate::posix::call::look::stat_of;
use crate::posix::raw;
use crate::posix::selection::current::published_config;
use crate::posix::selection::globs::{MOST_TOLD_APART, Marks};
use crate::posix::selection::path_text::{self, PathText};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// The number of syncs per process that are all examined; of later ones, only some are.
const ALL_SYNCS: usize = 256;

static SYNCS: AtomicUsize = AtomicUsize::new(0);
static MAP_SYNCS: AtomicUsize = AtomicUsize::new(0);

/// Hashes of the files that this process has noted, since files are opened again and again.
static TOLD: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Notes that a selected file was opened; `of` is its device and inode. `said`: the program's path, from `dirfd`;
/// `real`: the kernel's.
pub(in crate::posix) fn opened(of: (u64, u64), dirfd: RawFd, said: &CStr, real: &CStr, flags: i32) {
    let (Some(joined), Some(config)) = (joined(), published_config()) else { return };
    let record = joined.record;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if writes && flags & libc::O_DSYNC != 0 {
        protected();
    }
    let seen = if writes { &record.written } else { &record.opened };
    if joined.details().is_none() && has_all(seen, config.globs.count()) {
        return;
    }
    let key = (hash(said.to_bytes()) ^ of.0 ^ of.1.rotate_left(32)) << 1 | u64::from(writes);
    if TOLD[(key >> 1) as usize % TOLD.len()].swap(key, Ordering::Relaxed) == key {
        return;
    }
    let mut marks = Marks::default();
    config.globs.mark(dirfd, said.to_bytes(), real.to_bytes(), &mut marks);
    for (index, word) in marks.words().into_iter().enumerate() {
        record.opened[index].fetch_or(word, Ordering::Relaxed);
        if writes {
            record.written[index].fetch_or(word, Ordering::Relaxed);
        }
    }
    if joined.details().is_some()
        && let Some(glob) = (0..MOST_TOLD_APART).find(|&glob| marks.has(glob))
        && let Some(slot) = record.put(&record.selected, of, real.to_bytes(), MORE_SELECTED)
    {
        slot.detail.store(glob as u32, Ordering::Relaxed);
        slot.is_written.fetch_or(u32::from(writes), Ordering::Relaxed);
    }
}

/// Whether no process of the run has said on the same stderr, as this one is about to, that the settings weaken
/// durability.
pub(in crate::posix) fn is_first_to_warn() -> bool {
    let (Some(joined), Ok(stat)) = (joined(), stat_of(libc::STDERR_FILENO)) else { return true };
    let here = (stat.st_ino ^ stat.st_dev) as u32 | 1;
    joined.record.warned_on.swap(here, Ordering::Relaxed) != here
}

/// Notes that a selected file was synced.
#[inline]
pub(in crate::posix) fn protected() {
    if !HAS_PROTECTED.load(Ordering::Relaxed) {
        first_protected();
    }
}

#[cold]
fn first_protected() {
    HAS_PROTECTED.store(true, Ordering::Relaxed);
    if let Some(joined) = joined() {
        joined.record.state.fetch_or(PROTECTED, Ordering::Relaxed);
    }
}

/// Whether this sync of the process is examined.
fn is_looked_at(joined: &OwnerSession, count: &AtomicUsize) -> bool {
    let before = count.fetch_add(1, Ordering::Relaxed);
    (before < ALL_SYNCS || before.is_multiple_of(64))
        && published_config().is_some_and(|config| !joined.record.is_all_well(config.globs.count()))
}

/// Notes that the file of this descriptor, which is not atomic, is synced.
pub fn synced(fd: RawFd) {
    let Some(joined) = joined().filter(|joined| is_looked_at(joined, &SYNCS)) else { return };
    let record = joined.record;
    let Ok(stat) = stat_of(fd) else { return };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink == 0 {
        return;
    }
    let of = (stat.st_dev, stat.st_ino);
    // SAFETY: no memory is passed.
    let flags = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) };
    if flags < 0
        || flags as i32 & libc::O_ACCMODE == libc::O_RDONLY
        || record.synced.iter().any(|slot| slot.is(of.0, of.1))
    {
        return;
    }
    let mut path = PathText::new();
    if path_text::descriptor_path(fd, &mut path) {
        put_synced(record, of, path.get());
    }
}

fn put_synced(record: &Record, of: (u64, u64), path: &[u8]) {
    if published_config().is_some_and(|config| !config.globs.is_own(path)) {
        record.put(&record.synced, of, path, MORE_SYNCED);
    }
}

/// Notes that a map of a file that is not atomic is synced. The kernel's list says what is mapped at `address`.
pub(in crate::posix) fn synced_map(address: usize) {
    let Some(joined) = joined() else { return };
    let count = MAP_SYNCS.fetch_add(1, Ordering::Relaxed);
    let globs = published_config().map_or(0, |config| config.globs.count());
    // The list may be long, so it is read ever less often.
    if (count + 1).is_power_of_two() && !joined.record.is_all_well(globs) {
        maps_list::shared_file_at(address, |of, path| put_synced(joined.record, of, path));
    }
}
