//! Folders that had no pool when they were last looked at, by device, inode and times: to make a pool changes the times of
//! its folder. So the files of a folder that does not change are opened without looking for its pool each time.

use crate::sys::may_be_stamped_again;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::Stat;
use xxhash_rust::xxh3::xxh3_64;

const PLACES: usize = 16;
const NONE: u64 = 0;

/// A hash of each, at a place that its inode chooses.
static KNOWN: [AtomicU64; PLACES] = [const { AtomicU64::new(NONE) }; PLACES];

fn place(folder: &Stat) -> &'static AtomicU64 {
    &KNOWN[folder.st_ino as usize % PLACES]
}

fn hash(folder: &Stat) -> u64 {
    let modified = [folder.st_mtime as u64, folder.st_mtime_nsec];
    let changed = [folder.st_ctime as u64, folder.st_ctime_nsec];
    let words = [[folder.st_dev, folder.st_ino], modified, changed];
    xxh3_64(words.map(|pair| pair.map(u64::to_ne_bytes)).as_flattened().as_flattened()).max(NONE + 1)
}

/// Whether this folder, as it is now, has no pool.
pub(super) fn is_known(folder: &Stat) -> bool {
    place(folder).load(Ordering::Relaxed) == hash(folder)
}

/// Whether a change from now on gives the folder another time. To be asked before its pool is looked for.
pub(super) fn is_settled(folder: &Stat) -> bool {
    !may_be_stamped_again(folder.st_mtime, folder.st_mtime_nsec)
        && !may_be_stamped_again(folder.st_ctime, folder.st_ctime_nsec)
}

/// The folder has no pool, for files of no owner, and was settled before that was looked for.
pub(super) fn note(folder: &Stat) {
    place(folder).store(hash(folder), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use rustix::fs::stat;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_known_until_it_changes() {
        let dir = Scratch::new();
        let folder = dir.path("folder");
        std::fs::create_dir(&folder).unwrap();
        let now = || stat(&folder).unwrap();
        let note_once_settled = || {
            while !is_settled(&now()) {
                std::hint::spin_loop(); // the clock ticks
            }
            note(&now());
            assert!(is_known(&now()));
        };
        assert!(!is_settled(&now()), "a change at this moment could have the same time");
        note_once_settled();
        std::fs::create_dir(folder.join(".famio")).unwrap();
        assert!(!is_known(&now()));
        std::fs::remove_dir(folder.join(".famio")).unwrap();
        note_once_settled();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(!is_known(&now()));
    }
}
