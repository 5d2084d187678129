//! The stat family for a file that other processes have open, and this one does not: while another process writes it,
//! the kernel's size is not the file's size.

use super::selected::wanted;
use crate::file::AtomicFile;
use crate::index::{Control, Glance};
use crate::journal::{control, keeping_folders, known_control};
use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::life::process;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::config::Config;
use crate::posix::selection::{path_text, traces};
use crate::posix::{fail, raw};
use crate::sys::InternalFd;
use crate::sys::internal::{Undisturbed, occupy_standard};
use core::ffi::c_char;
use libc::{stat as Stat, statx as Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// What the kernel says of a file: enough to notice that it was changed.
#[derive(PartialEq, Eq)]
pub(super) struct Seen {
    file: (u64, u64),
    owner: u32,
    size: u64,
    changed: (i64, i64),
}

impl Seen {
    pub(super) fn of(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Self { file: (stat.st_dev, stat.st_ino), owner: stat.st_uid, size: stat.st_size as u64, changed }
    }

    /// Of a result with [`SEEN_BY_STATX`].
    pub(super) fn of_statx(stat: &Statx) -> Self {
        let device = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let changed = (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into());
        Self { file: (device, stat.stx_ino), owner: stat.stx_uid, size: stat.stx_size, changed }
    }

    /// Whether the path leads to another regular file by now, or to this one after a change.
    fn was_before(&self, now: &Stat) -> bool {
        now.st_mode & libc::S_IFMT == libc::S_IFREG && *self != Self::of(now)
    }
}

pub(super) const SEEN_BY_STATX: u32 =
    libc::STATX_INO | libc::STATX_TYPE | libc::STATX_UID | libc::STATX_SIZE | libc::STATX_CTIME;

/// How the file of others was reached: by a descriptor, for what the kernel says of it.
pub(super) enum Reached<'a> {
    /// By a glance at the session of others, which has its size and times.
    Seen(RawFd, &'a Glance),
    /// It is open as an atomic file.
    Opened(RawFd),
}

impl Reached<'_> {
    pub(super) fn descriptor(&self) -> RawFd {
        match self {
            Self::Seen(fd, _) | Self::Opened(fd) => *fd,
        }
    }
}

/// Calls `look` with an atomic file that other processes have open and this one does not: after a glance, and if that
/// is not enough (false) with it open. Only for a path that may be selected, of a file with an open epoch. Returns
/// whether the path may lead elsewhere by now, so that the kernel has to be asked again.
///
/// # Safety
/// The kernel has just read the path, or it is null.
#[cold]
pub(super) unsafe fn look_at_others(
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    seen: impl FnOnce() -> Seen,
    mut look: impl FnMut(Reached<'_>) -> bool,
) -> bool {
    let Some(config) = process::config() else { return false };
    // SAFETY: the caller's promise.
    let name = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
    if name.is_empty() || !config.globs.may_match(name.to_bytes()) {
        return false;
    }
    if crate::posix::call::lock::not_reentered().is_err() || in_vfork_child() {
        return false;
    }
    let mut was_seen = false;
    let mut glance = |reached: Reached<'_>| {
        was_seen = true;
        look(reached)
    };
    // SAFETY: the path is good.
    if !unsafe { has_to_be_opened(config, dirfd, path, flags, &seen(), &mut glance) } {
        return false;
    }
    let nofollow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
    let _standard = occupy_standard(); // as a standard stream it would be demoted
    // SAFETY: the path is good.
    let mut fd = unsafe { crate::posix::openat(dirfd, path, libc::O_RDONLY | libc::O_CLOEXEC | nofollow, 0) };
    if fd == fail(libc::EMFILE) {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | nofollow;
        // SAFETY: as above; no other code has the descriptor.
        fd = unsafe {
            match crate::posix::with_number(|| raw!(SYS_openat, dirfd, path, flags, 0)) {
                made if made >= 0 => {
                    crate::posix::adopt(made as RawFd, path_text::path_of(made as RawFd, name).as_ptr())
                }
                error => error,
            }
        };
    }
    if fd >= 0 {
        look(Reached::Opened(fd as RawFd));
        crate::posix::close(fd as RawFd);
    }
    // What a glance in vain has shown must not stay.
    [libc::ENOENT, libc::ESTALE].map(fail).contains(&fd) || was_seen && fd < 0
}

/// Whether a process has an open epoch on the file that the path leads to, as far as this process may know; or may have
/// had one when the kernel said what was `seen`. Not if a glance at the session was enough to `look` at the file.
///
/// # Safety
/// As [`look_at_others`].
unsafe fn has_to_be_opened(
    config: &Config,
    dirfd: RawFd,
    path: *const c_char,
    flags: i32,
    seen: &Seen,
    look: &mut dyn FnMut(Reached<'_>) -> bool,
) -> bool {
    // SAFETY: the path is good.
    let name = unsafe { CStr::from_ptr(path) };
    if traces::are_absent(config, dirfd, name, seen.owner) {
        // SAFETY: the path is good.
        let named = unsafe { stat_at(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) };
        if named.is_ok_and(|now| Seen::of(&now) == *seen) {
            return false; // and the path is no link
        }
    }
    let nofollow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
    // Others may have it as an atomic file, and this process as an ordinary one.
    // SAFETY: the path is good.
    let is_selected = unsafe { wanted(dirfd, path, libc::O_RDONLY | nofollow, false) }.is_some();
    let _undisturbed = Undisturbed::begin();
    // Closing an ordinary descriptor of the file would drop the program's locks; closing this kind does not.
    // SAFETY: the path is good.
    let Some(file) = (unsafe { crate::posix::look(dirfd, path, flags & libc::AT_SYMLINK_NOFOLLOW != 0) }) else {
        return false;
    };
    let pool = config.settings.pool.as_deref();
    let known = known_control::find(file.as_fd(), file.identity(), pool);
    let search = || keeping_folders(|| control::find(file.as_fd(), pool)).ok().flatten();
    match known.or_else(search).map(Control::new).filter(Control::is_in_use) {
        Some(control) => !(is_selected && is_seen_at_a_glance(&file, control, look)),
        // A session that was there may be gone by now.
        None => stat_of(file.as_raw_fd()).is_ok_and(|now| seen.was_before(&now)),
    }
}

fn is_seen_at_a_glance(file: &InternalFd, control: Control, look: &mut dyn FnMut(Reached<'_>) -> bool) -> bool {
    let key = file.identity();
    if AtomicFile::find(key.0, key.1).is_some() {
        return false; // the path led elsewhere before
    }
    Glance::of(control, key).is_some_and(|glance| look(Reached::Seen(file.as_raw_fd(), &glance)) && glance.is_current())
}
