//! A program that becomes another user, or gets another root: for a while, or for good. What takes its rights is done before; what
//! could not be done without them is done at its end, if it has them again.

use super::{policy, process, table};
use crate::file::{AtomicFile, bar_leases};
use crate::recovery::{Options, Silent, recover_path};
use crate::settings::Settings;
use crate::sys::users::may_come_back;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the program has ever called what changes rights.
static CHANGES: AtomicBool = AtomicBool::new(false);

/// Files that were closed without the right to take their journals away.
static LEFT: Mutex<Vec<(CString, Settings)>> = Mutex::new(Vec::new());
/// Most of them that are remembered.
const MOST: usize = 1000;

/// Before `setuid`, `seteuid`, `chroot` and the like: what this process has from its parent becomes its own as long as it may.
pub fn before_change() {
    if !process::is_on() || process::in_vfork_child() {
        return;
    }
    CHANGES.store(true, Ordering::Relaxed);
    take_all_home();
    bar_leases(); // only the file's owner, or root, gives one back
    table::for_each(0, u32::MAX, |_, handle| {
        if handle.is_live() {
            handle.file().settle_with_bits();
        }
    });
}

/// What this process has from its parent, and what is open of it, becomes its own.
pub(super) fn take_all_home() {
    let mut foreign = Vec::new();
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_foreign() {
            foreign.push(fd);
        }
    });
    // To ask for it is enough.
    foreign.into_iter().for_each(|fd| drop(table::get(fd)));
    table::for_each(0, u32::MAX, |_, handle| {
        if handle.is_live() {
            handle.file().take_home();
        }
    });
}

/// A descriptor of the file is closed, perhaps the last. `fd`: that descriptor, if it still is one.
pub(super) fn closed(fd: Option<RawFd>, file: &AtomicFile) {
    let (device, inode) = file.key();
    if !CHANGES.load(Ordering::Relaxed) || !may_come_back() || AtomicFile::find(device, inode).is_some() {
        return;
    }
    // It may have been renamed.
    let path = fd.map_or_else(|| file.path().to_owned(), |fd| policy::path_of(fd, file.path()));
    let mut left = LEFT.lock();
    if left.len() < MOST && left.iter().all(|(there, _)| *there != path) {
        left.push((path, file.settings().clone()));
    }
}

/// At the end, when all files are closed: takes away what could not be taken away then. Best effort: a clean journal is never
/// replayed, and who opens the file next, or recovers it, takes it away.
pub(super) fn tidy() {
    for (path, settings) in core::mem::take(&mut *LEFT.lock()) {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let _ = recover_path(path, &settings, &Options::default(), &Silent);
    }
}

/// In a forked child: they are the parent's.
pub(super) fn forget() {
    if let Some(mut left) = LEFT.try_lock() {
        left.clear();
    }
}
