//! Before and after a call that changes names: the atomic files that it names are prepared for it. A journal may lie
//! beside its file: before the file gets another name or loses one, it is checkpointed; once it has lost its last name
//! it is demoted, since it will not survive a crash. A file that a crash left with a journal is recovered first.

use super::foresee::{Name, Outcome};
use crate::file::{Access, AtomicFile, commit_leftover};
use crate::index::Control;
use crate::journal::{Marked, control, mark};
use crate::posix::call::lock;
use crate::posix::call::look::stat_at;
use crate::posix::descriptors::table;
use crate::posix::life::process;
use crate::posix::runtime::say::{say, say_error};
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::traces;
use crate::posix::selection::traces::has_journal;
use crate::recovery;
use core::ffi::c_char;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// What a call is about to do to the file behind a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It gets another name.
    Moves,
    /// It loses this one.
    Goes,
}

/// A name in a call, with the flags by which the kernel looks it up.
#[derive(Clone, Copy)]
pub(super) struct Named {
    dirfd: i32,
    path: *const c_char,
    follow: i32,
    change: Change,
}

impl Named {
    pub(super) fn new((dirfd, path): Name, change: Change) -> Self {
        Named { dirfd, path, follow: libc::AT_SYMLINK_NOFOLLOW, change }
    }

    pub(super) fn looked_up(self, follow: i32) -> Self {
        Named { follow, ..self }
    }
}

/// An atomic file that is open here, and whether the call may take its last name.
struct OpenFile {
    file: Arc<AtomicFile>,
    may_end: bool,
}

/// What has a name.
enum Behind {
    /// An atomic file that is open here.
    Open(OpenFile),
    /// A file that is not open here.
    Closed,
    /// No regular file.
    Other,
}

impl Behind {
    /// # Safety
    /// As [`Prepared::for_call`].
    unsafe fn of(name: &Named) -> Self {
        if !table::any() {
            return Behind::Closed;
        }
        // SAFETY: the caller's promise; the kernel reads the path.
        match unsafe { stat_at(name.dirfd, name.path, name.follow) } {
            Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFREG => {
                let may_end = name.change == Change::Goes && stat.st_nlink == 1;
                let found = AtomicFile::find(stat.st_dev, stat.st_ino);
                found.map_or(Behind::Closed, |file| Behind::Open(OpenFile { file, may_end }))
            }
            _ => Behind::Other,
        }
    }
}

/// The atomic files that a call names and that are open here, prepared for it.
///
/// A file that may lose its last name is only committed before the call, and demoted after it: if the kernel refuses
/// the call, the next write finds the file as atomic as before.
pub(super) struct Prepared<const N: usize> {
    open: [Option<OpenFile>; N],
    outcome: Outcome,
}

impl<const N: usize> Prepared<N> {
    /// Prepares the atomic files behind the names, open here or left by a crash. The call itself follows in any case.
    /// `foresee` is asked only if a file is open here, which the call would commit.
    ///
    /// # Safety
    /// The paths are C strings, or pointers that the kernel refuses.
    pub(super) unsafe fn for_call(names: [Named; N], foresee: impl FnOnce() -> Outcome) -> Self {
        let mut prepared = Self { open: [const { None }; N], outcome: Outcome::Open };
        let Some(config) = process::config() else { return prepared };
        if in_vfork_child() || lock::not_reentered().is_err() {
            return prepared;
        }
        // SAFETY: the caller's promise.
        let behind = names.map(|name| unsafe { (Behind::of(&name), name) });
        let is_open = |(behind, _): &(Behind, Named)| matches!(behind, Behind::Open(open) if !open.file.is_demoted());
        if behind.iter().any(is_open) {
            prepared.outcome = foresee();
        }
        for (open, (behind, name)) in prepared.open.iter_mut().zip(behind) {
            match behind {
                Behind::Open(found) => {
                    if prepared.outcome == Outcome::Open {
                        found.commit();
                    }
                    *open = Some(found);
                }
                // SAFETY: the caller's promise.
                Behind::Closed => unsafe { recover(config, name.dirfd, name.path, name.change) },
                Behind::Other => {}
            }
        }
        prepared
    }

    /// After the call has succeeded.
    pub(super) fn done(self) {
        for open in self.open.into_iter().flatten() {
            if self.outcome == Outcome::Fails {
                open.commit(); // another process has changed something since that was foreseen
            }
            if open.may_end {
                open.end_if_nameless();
            }
        }
    }
}

impl OpenFile {
    /// Before the call: the journal may stay behind, or be looked for beside another name.
    fn commit(&self) {
        let done = if self.may_end { self.file.checkpoint_while_named() } else { self.file.checkpoint() };
        if let Err(error) = done {
            say(self.file.path(), &format!("{error}; its journal stays where it is"));
        }
        give_back(&self.file);
    }

    fn end_if_nameless(&self) {
        if let Err(error) = self.file.demote_if_nameless() {
            say(self.file.path(), &error.to_string()); // the next write tries again
        }
        give_back(&self.file);
    }
}

/// If the file is demoted, its descriptors are the kernel's.
fn give_back(file: &Arc<AtomicFile>) {
    if file.is_demoted() {
        table::for_each(0, u32::MAX, |fd, handle| {
            if Arc::ptr_eq(handle.file(), file) {
                let _ = handle.demote(fd); // reported; and so is its next call
            }
        });
    }
}

/// Recovers an atomic file that a crash left with a journal: once the file is removed or moved, its journal could
/// only be removed by hand. A file in use by another process is left to that process.
///
/// # Safety
/// As [`Prepared::for_call`].
unsafe fn recover(config: &Config, dirfd: i32, path: *const c_char, change: Change) {
    // SAFETY: the kernel checks the path.
    let Ok(stat) = (unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) }) else { return };
    // SAFETY: the kernel has read the path to its end.
    let name = unsafe { CStr::from_ptr(path) };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG
        || !config.globs.matches(dirfd, name.to_bytes(), false)
        || traces::are_absent(config, dirfd, name, stat.st_uid)
    {
        return;
    }
    // A look that opens nothing: closing a descriptor of an ordinary file would drop the program's locks on it.
    // SAFETY: as above.
    let Some(look) = (unsafe { crate::posix::look(dirfd, path, true) }) else { return };
    let grows = || matches!(mark::of_looked_at(look.as_fd()), Ok(Some(Marked::Growing(_))));
    if change == Change::Goes && stat.st_nlink == 1 && grows() {
        return; // it has no journal, and a process that lets it grow would make one in a folder that may go next
    }
    let link = format!("/proc/thread-self/fd/{}", look.as_raw_fd());
    let marked = rustix::fs::getxattr(&*link, mark::NAME, &mut [0u8; 0]).is_ok();
    if !marked && !has_journal(look.as_fd(), &config.settings).unwrap_or(false) {
        let found = control::find(look.as_fd(), config.settings.pool.as_deref()).ok().flatten();
        let Some(control) = found.map(Control::new) else { return };
        if !control.has_kept_epoch() {
            // Left by a process that was killed after it removed its journal. Once the file is gone, no process would
            // look for it.
            return control.remove_if_unused();
        }
    }
    // Does not wait for another process's lease on the file.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |access| crate::sys::openat(rustix::fs::CWD, &*link, access | flags, Mode::empty());
    let (file, is_writable) = match open(OFlags::RDWR) {
        Ok(file) => (file, true),
        Err(_) => match open(OFlags::RDONLY) {
            Ok(file) => (file, false), // the owner of the file may do this all the same
            Err(_) => return,
        },
    };
    let Ok(Some(mut owner_lock)) = recovery::owner_lock(file.as_fd(), &config.settings, true, true) else { return };
    let control = owner_lock.control().clone();
    if recovery::is_in_session(file.as_fd(), &config.settings) {
        owner_lock.leave();
        return control.remove_if_unused();
    }
    if owner_lock.may_keep() {
        owner_lock.leave();
        let access = if is_writable { Access::Write } else { Access::Read };
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(path) };
        if let Err(error) = commit_leftover(file.as_fd(), access, path, &config.settings) {
            say_error(path, &error);
        }
        return;
    }
    match recovery::at_open(file.as_fd(), is_writable, &mut owner_lock, &config.settings) {
        Ok(()) => owner_lock.release(),
        Err(error) => {
            owner_lock.leave();
            // SAFETY: as above.
            say_error(unsafe { CStr::from_ptr(path) }, &error);
        }
    }
    control.remove_if_unused();
}
