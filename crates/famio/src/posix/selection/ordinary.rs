//! Files that match the configuration but are ordinary in this process, because something that the library does not
//! see uses them: permanently (a mapping, a queue), or while a stream of libc's is open.

use crate::posix::raw;
use crate::posix::runtime::say::say;
use crate::thread::{Guard, Mutex};
use core::ffi::c_char;
use libc::stat as Stat;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Identifies a file, even if another file gets its inode number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::posix) struct Identity {
    dev: u64,
    ino: u64,
    /// Birth time; zero if the file system has none.
    born: (i64, u32),
}

impl Identity {
    /// The identity of the file behind `path`; if that is empty, behind `dirfd`.
    ///
    /// # Safety
    /// `path` is a C string.
    pub(in crate::posix) unsafe fn of(dirfd: RawFd, path: *const c_char, stat: &Stat) -> Self {
        // SAFETY: the caller's promise. All-zero bytes are a valid statx; the kernel fills it in.
        let born = unsafe {
            let flags = if *path == 0 { libc::AT_EMPTY_PATH } else { 0 };
            let mut more: libc::statx = core::mem::zeroed();
            let done = raw!(SYS_statx, dirfd, path, flags, libc::STATX_BTIME, &raw mut more);
            if done == 0 { (more.stx_btime.tv_sec, more.stx_btime.tv_nsec) } else { (0, 0) }
        };
        Identity { dev: stat.st_dev, ino: stat.st_ino, born }
    }
}

struct Entry {
    file: Identity,
    /// Whether the file stays ordinary after the last stream is closed.
    for_good: bool,
    /// Addresses of the streams.
    streams: Vec<usize>,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn change<T>(act: impl FnOnce(&mut Guard<'static, Vec<Entry>>) -> T) -> T {
    let mut entries = ENTRIES.lock();
    let value = act(&mut entries);
    COUNT.store(entries.len(), Ordering::Release);
    value
}

fn entry(entries: &mut Vec<Entry>, file: Identity) -> &mut Entry {
    let index = entries.iter().position(|entry| entry.file == file).unwrap_or_else(|| {
        entries.push(Entry { file, for_good: false, streams: Vec::new() });
        entries.len() - 1
    });
    &mut entries[index]
}

/// Whether there is any such file.
pub(in crate::posix) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Makes the file ordinary in this process, permanently.
pub(in crate::posix) fn note_for_good(file: Identity) {
    change(|entries| entry(entries, file).for_good = true);
}

/// Undoes that, if the file could not be demoted.
pub(in crate::posix) fn forget(file: &Identity) {
    change(|entries| entries.retain(|entry| entry.file != *file));
}

/// A stream of the file is open.
pub(in crate::posix) fn stream_opened(file: Identity, stream: usize) {
    change(|entries| entry(entries, file).streams.push(stream));
}

/// A stream is closed. Returns whether it was noted here.
pub(in crate::posix) fn stream_closed(stream: usize) {
    if any() {
        change(|entries| {
            for entry in entries.iter_mut() {
                entry.streams.retain(|&other| other != stream);
            }
            entries.retain(|entry| entry.for_good || !entry.streams.is_empty());
        });
    }
}

/// Whether the file is ordinary. If a descriptor is opened (`descriptor`) while a stream is open, the file becomes
/// ordinary permanently, since the descriptor could not be made an atomic file's later.
///
/// # Safety
/// `path` is a C string; empty: `dirfd` itself.
pub(in crate::posix) unsafe fn is(dirfd: RawFd, path: *const c_char, stat: &Stat, descriptor: bool) -> bool {
    if !any() {
        return false;
    }
    // SAFETY: the caller's promise.
    let file = unsafe { Identity::of(dirfd, path, stat) };
    let (found, new) = change(|entries| match entries.iter_mut().find(|entry| entry.file == file) {
        Some(entry) => {
            let new = descriptor && !entry.for_good;
            entry.for_good |= descriptor;
            (true, new)
        }
        None => (false, false),
    });
    if new {
        // SAFETY: the caller's promise.
        let said = unsafe { CStr::from_ptr(path) };
        say(said, "opened while a stream (fopen) of it is open: from here on it is an ordinary file");
    }
    found
}
