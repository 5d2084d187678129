//! A program that becomes another user, or gets another root: for a while, or for good. What takes its rights is done before; what
//! could not be done without them is done when it has them again.

use super::table;
use crate::file::{AtomicFile, bar_leases};
use crate::posix::runtime::state::{in_vfork_child, is_on};
use crate::posix::selection::policy;
use crate::recovery::{Options, Silent, recover_path};
use crate::settings::Settings;
use crate::sys::users::{effective, may_come_back};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the program has ever called what changes rights.
static CHANGES: AtomicBool = AtomicBool::new(false);

/// Files that were closed without the right to take their journals away.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

struct Left {
    key: (u64, u64),
    path: CString,
    settings: Settings,
    /// The user who could not.
    user: u32,
}

/// Most of them that are remembered.
const MOST: usize = 1000;

/// Before `setuid`, `seteuid`, `chroot` and the like: what this process has from its parent becomes its own as long as it may.
pub fn before_change() {
    if !is_on() || in_vfork_child() {
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

/// Around `setuid`, `seteuid` and the like: [`before_change`]; and after a success (`result` = 0) what is left is taken away.
pub fn change(result: Option<i32>) {
    match result {
        None => before_change(),
        Some(0) if is_on() && !in_vfork_child() && crate::posix::call::lock::not_reentered().is_ok() => tidy(),
        Some(_) => {}
    }
}

/// What this process has from its parent, and what is open of it, becomes its own.
pub(in crate::posix) fn take_all_home() {
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
pub(in crate::posix) fn closed(fd: Option<RawFd>, file: &AtomicFile) {
    let (device, inode) = file.key();
    if !CHANGES.load(Ordering::Relaxed) || !may_come_back() || AtomicFile::find(device, inode).is_some() {
        return;
    }
    // It may have been renamed.
    let path = fd.map_or_else(|| file.path().to_owned(), |fd| policy::path_of(fd, file.path()));
    let left = Left { key: (device, inode), path, settings: file.settings().clone(), user: effective() };
    keep([left]);
}

fn keep(more: impl IntoIterator<Item = Left>) {
    let mut all = LEFT.lock();
    for left in more {
        if all.len() < MOST && all.iter().all(|there| there.path != left.path) {
            all.push(left);
        }
    }
}

/// Takes away what could not be taken away at a `close`, by another user than the one who could not. Best effort: a clean journal
/// is never replayed, and who opens the file next, or recovers it, takes it away.
pub(in crate::posix) fn tidy() {
    if !CHANGES.load(Ordering::Relaxed) {
        return;
    }
    let user = effective();
    let mut all = core::mem::take(&mut *LEFT.lock());
    all.retain_mut(|left| {
        // Open again: its last `close` sees to it.
        if AtomicFile::find(left.key.0, left.key.1).is_some() {
            return false;
        }
        if left.user == user {
            return true;
        }
        left.user = user;
        let path = Path::new(OsStr::from_bytes(left.path.to_bytes()));
        recover_path(path, &left.settings, &Options::default(), &Silent).is_err_and(|e| e.errno() != libc::ENOENT)
    });
    keep(all);
}

/// In a forked child: they are the parent's.
pub(in crate::posix) fn forget() {
    if let Some(mut left) = LEFT.try_lock() {
        left.clear();
    }
}
