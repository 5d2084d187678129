//! Programs that change their user or root, temporarily or for good. Work that needs the current rights is done
//! before the change; work that the process lacks the rights for is done when it has them again.

use super::table;
use crate::file::{AtomicFile, bar_leases};
use crate::posix::runtime::state::{in_vfork_child, is_on};
use crate::posix::selection::path_text;
use crate::recovery::{Options, Silent, recover_path};
use crate::settings::Settings;
use crate::sys::users::{effective, may_come_back};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the program has ever called a function that changes rights.
static CHANGES: AtomicBool = AtomicBool::new(false);

/// Files that were closed without the right to remove their journals.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

struct Left {
    key: (u64, u64),
    path: CString,
    settings: Settings,
    /// The user who lacked the right.
    user: u32,
}

/// The most files that are remembered.
const MOST: usize = 1000;

/// Before `setuid`, `seteuid`, `chroot` and the like: attaches to the files of inherited descriptors while this
/// process may.
pub fn before_change() {
    if !is_on() || in_vfork_child() {
        return;
    }
    CHANGES.store(true, Ordering::Relaxed);
    if crate::posix::call::lock::not_reentered().is_ok() {
        crate::file::end_deferred_closes(None);
    }
    take_all_home();
    bar_leases(); // only the file's owner or root can give a lease back
    each_live(AtomicFile::checkpoint_with_bits);
}

/// Around `setuid`, `seteuid` and the like: [`before_change`], and after a success (`result` = 0) `tidy`.
pub fn change(result: Option<i32>) {
    if result.is_some() && is_on() && !in_vfork_child() {
        each_live(AtomicFile::remove_note_if_not_needed);
    }
    match result {
        None => {
            before_change();
            if is_on() && !in_vfork_child() {
                each_live(AtomicFile::note_before_change_of_rights);
            }
        }
        Some(0) if is_on() && !in_vfork_child() && crate::posix::call::lock::not_reentered().is_ok() => tidy(),
        Some(_) => {}
    }
}

fn each_live(act: impl Fn(&AtomicFile)) {
    table::for_each(0, u32::MAX, |_, handle| {
        if handle.is_live() {
            act(handle.file());
        }
    });
}

/// Makes everything inherited, and still open, this process's own.
pub(in crate::posix) fn take_all_home() {
    let mut foreign = Vec::new();
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_foreign() {
            foreign.push(fd);
        }
    });
    // Asking for a description makes it the process's own.
    foreign.into_iter().for_each(|fd| drop(table::get(fd)));
    each_live(AtomicFile::take_home);
}

/// A descriptor of the file was closed, perhaps the last. `fd`: that descriptor, if it still exists.
pub(in crate::posix) fn closed(fd: Option<RawFd>, file: &AtomicFile) {
    let (device, inode) = file.key();
    if !CHANGES.load(Ordering::Relaxed) || !may_come_back() || AtomicFile::find(device, inode).is_some() {
        return;
    }
    // The file may have been renamed.
    let path = fd.map_or_else(|| file.path().to_owned(), |fd| path_text::path_of(fd, file.path()));
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

/// Removes journals that could not be removed at the end of a session, if the process now runs as another user than
/// then. Best effort: a clean journal is never replayed, and the next process that opens or recovers the file removes
/// it.
pub(in crate::posix) fn tidy() {
    if !CHANGES.load(Ordering::Relaxed) {
        return;
    }
    table::for_each(0, u32::MAX, |_, handle| {
        if handle.is_ours() {
            handle.file().remove_left_journal();
        }
    });
    let user = effective();
    let mut all = core::mem::take(&mut *LEFT.lock());
    all.retain_mut(|left| {
        // If the file is open again, its last `close` handles it.
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

/// In a forked child: these files are the parent's.
pub(in crate::posix) fn forget() {
    if let Some(mut left) = LEFT.try_lock() {
        left.clear();
    }
}
