//! A process that reads a file without being attached, because there is no control file yet (readers make none, and
//! so leave no trace beside a file) or it may not write the file. The first write sets the file's mark first, which
//! moves the inode's ctime: by that a reader notices that other processes may use the file.

use crate::error::{Error, Result};
use crate::file::descriptors::by_kernel::read_by_kernel;
use crate::file::{Access, AtomicFile, UserBuf};
use crate::index::Control;
use crate::journal::control;
use crate::recovery::Known;
use crate::sys::{FileSystem, identity_at, may_be_stamped_again};
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, CWD, Stat};
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// In a state from [`AtomicFile::quiet`]: this process is not attached.
const ALONE: u64 = 1 << 63;
/// The state was seen so soon after the last change that the next change may have the same time.
const RECENT: u64 = 1 << 62;
/// Looks at the time until a process that could write the file attaches, and then need not look any more.
const LOOKS: u32 = 256;

impl AtomicFile {
    /// Whether the file is as last committed, and no session changes it: a state. After acting on it, the caller
    /// checks it by [`is_still`](Self::is_still).
    #[inline]
    pub(in crate::file) fn quiet(&self) -> Option<u64> {
        if self.ownership.membership.has_attached() {
            return self.ownership.is_quiet();
        }
        match self.ownership.unattached.seen.load(Ordering::Acquire) {
            0 => self.look_for_others(),
            seen => Some(seen),
        }
    }

    /// As [`quiet`](Self::quiet), but looks at the file's time again if the process is not attached. So a read begins
    /// with the present size, and stores no bytes beyond what it returns unless the file is cut meanwhile.
    #[inline]
    pub(in crate::file) fn quiet_now(&self) -> Option<u64> {
        self.quiet().filter(|&quiet| self.is_quiet_now(quiet))
    }

    /// Of a state from [`quiet`](Self::quiet): what [`quiet_now`](Self::quiet_now) checks.
    #[inline]
    pub(in crate::file) fn is_quiet_now(&self, quiet: u64) -> bool {
        quiet & ALONE == 0 || self.has_same_time(quiet)
    }

    /// If this process is not attached, the file in the state `quiet`, and the kernel is to read it: reads. The caller
    /// checks the state again.
    pub(in crate::file) fn read_alone(&self, quiet: u64, offset: u64, bufs: &[UserBuf]) -> Option<Result<usize>> {
        if quiet & ALONE == 0 || !self.plain.is_for_kernel() {
            return None;
        }
        let read =
            |fd: BorrowedFd<'_>, stat: Stat| Ok(same(state_of(&stat), quiet).then(|| read_by_kernel(fd, offset, bufs)));
        self.fds.with_stat(read).ok().flatten()
    }

    /// As [`quiet_now`](Self::quiet_now), if this process is not attached.
    pub(in crate::file) fn quiet_alone(&self) -> Option<u64> {
        self.quiet_now().filter(|&quiet| quiet & ALONE != 0)
    }

    #[cold]
    fn has_same_time(&self, quiet: u64) -> bool {
        self.change_seen().is_some_and(|now| same(now, quiet)) || self.is_still_alone(quiet)
    }

    /// Whether nothing has changed since [`quiet`](Self::quiet).
    #[inline]
    pub(in crate::file) fn is_still(&self, quiet: u64) -> bool {
        if quiet & ALONE == 0 { self.ownership.still(quiet) } else { self.is_still_alone(quiet) }
    }

    #[cold]
    fn is_still_alone(&self, quiet: u64) -> bool {
        let unattached = &self.ownership.unattached;
        if unattached.looks.fetch_add(1, Ordering::Relaxed) == LOOKS && self.fds.has(Access::Write) {
            let _ = self.become_member(); // if that fails, it goes on looking
        }
        if self.ownership.membership.has_attached() {
            return false;
        }
        match self.fds.with_stat(|fd, stat| Ok((state_of(&stat), self.is_unchanged(quiet, fd, &stat)))) {
            Ok((now, true)) => {
                if now != quiet {
                    unattached.seen.store(now, Ordering::Release);
                }
                true
            }
            Ok((now, false)) if same(now, quiet) => self.look_for_others().is_some_and(|now| same(now, quiet)),
            _ => {
                unattached.seen.store(0, Ordering::Release);
                false
            }
        }
    }

    /// The file's size by a single look, if this process is not attached and has looked for others before. `given`: what
    /// the kernel has just said of it: its size, and the time of its last change.
    pub(in crate::file) fn size_if_alone(&self, given: Option<(u64, (i64, u64))>) -> Option<u64> {
        let quiet = self.ownership.unattached.seen.load(Ordering::Acquire);
        if quiet == 0 || self.ownership.membership.has_attached() {
            return None;
        }
        match given {
            Some((size, changed)) if quiet & RECENT == 0 && same(state_at(changed), quiet) => Some(size),
            Some((_, changed)) if !same(state_at(changed), quiet) => None,
            _ => {
                let look = |fd: BorrowedFd<'_>, stat: Stat| {
                    Ok(self.is_unchanged(quiet, fd, &stat).then_some(stat.st_size as u64))
                };
                self.fds.with_stat(look).ok().flatten()
            }
        }
    }

    /// Whether the file was in the state `quiet` when `stat` was made. Within a grain of its times, if they have one,
    /// it may have changed, and then has a mark, or a control file: what a growing file has that is not committed is
    /// handed over without a mark.
    fn is_unchanged(&self, quiet: u64, file: BorrowedFd<'_>, stat: &Stat) -> bool {
        let is_fine = || stat.st_ctime_nsec != 0 && self.stamps_each_change(file);
        let is_unused = || control::is_unused(file, self.settings.pool.as_deref(), self.path_if_still());
        same(state_of(stat), quiet) && (quiet & RECENT == 0 || is_fine() || is_unused())
    }

    /// Whether each change of the file gets a time of its own.
    pub(in crate::file) fn has_fine_times(&self) -> bool {
        self.fds.with(false, |fd| Ok(self.stamps_each_change(fd))).unwrap_or(false)
    }

    fn stamps_each_change(&self, file: BorrowedFd<'_>) -> bool {
        let ask = || FileSystem::of(file).is_ok_and(|system| system.stamps_each_change());
        *self.ownership.unattached.stamps_each.get_or_init(ask)
    }

    /// Attaches if there is a control file; otherwise returns the state.
    #[cold]
    fn look_for_others(&self) -> Option<u64> {
        if self.visit_again().is_some() {
            return None;
        }
        let before = self.change_seen();
        let find = |fd: BorrowedFd<'_>| {
            let pool = self.settings.pool.as_deref();
            if control::is_unused(fd, pool, self.path_if_still()) { Ok(None) } else { control::find(fd, pool) }
        };
        let found = self.fds.with(false, find);
        if let Ok(Some(control)) = found {
            if self.become_member().is_ok() {
                return None;
            }
            // What they change does not reach the file before a checkpoint.
            if self.ownership.membership.is_full() {
                self.ownership.unattached.seen.store(0, Ordering::Release);
                return None;
            }
            // Changes of members that share memory elsewhere cannot be read from here; an unchanged file can.
            if self.ownership.membership.is_kept_out() && Control::new(control).is_in_use() {
                self.ownership.unattached.seen.store(0, Ordering::Release);
                return None;
            }
        }
        // A process that may not open the control file reads the kernel's file, as a program without this library
        // does.
        self.ownership.unattached.seen.store(before.unwrap_or(0), Ordering::Release);
        before
    }

    /// The path by which it was opened, if that still leads to it. To ask the kernel for the path of an open file takes
    /// as long as forty other questions.
    fn path_if_still(&self) -> Option<&Path> {
        let path = Path::new(OsStr::from_bytes(self.path.to_bytes()));
        let found = || identity_at(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        (path.is_absolute() && found().is_ok_and(|found| found == self.key())).then_some(path)
    }

    /// At an open: whether neither a crash nor another process has left anything for the file. Then the first read need
    /// not look again.
    ///
    /// Not for an empty file that is opened to write: once its times were asked for, the next write changes its inode,
    /// which the next SYNC has to flush.
    pub(in crate::file) fn is_unused_by_others(&self, fd: BorrowedFd<'_>, known: Known<'_>) -> bool {
        let asked = || (self.found_size > 0).then(|| self.change_seen()).flatten();
        let Some(before) = known.changed.map(state_at).or_else(asked) else { return false };
        let is_unused = control::is_unused(fd, self.settings.pool.as_deref(), known.path);
        if is_unused {
            self.ownership.unattached.seen.store(before, Ordering::Release);
        }
        is_unused
    }

    /// The time of the inode's last change, as a state.
    fn change_seen(&self) -> Option<u64> {
        self.fds.stat().ok().map(|stat| state_of(&stat))
    }

    /// Whether `error`, from attaching, means that this process may only read the file, and has opened it only for
    /// that.
    pub(in crate::file) fn is_mere_reader(&self, error: &Error) -> bool {
        [libc::EACCES, libc::EPERM, libc::EROFS].contains(&error.errno()) && !self.fds.has(Access::Write)
    }

    /// If this process is not attached, checks whether other processes have come.
    ///
    /// # Errors
    /// Those of attaching. `EBADF`: the program has no descriptor of it any more.
    pub(in crate::file) fn look(&self) -> Result<()> {
        if self.ownership.membership.has_attached() {
            return self.become_member();
        }
        // A changed state is looked at again.
        if !self.quiet().is_some_and(|quiet| self.is_still(quiet)) && self.quiet().is_none() {
            self.fds.stat()?; // or the program has closed its descriptors unseen: there is nothing to look at again
            if self.ownership.membership.is_kept_out() || self.ownership.membership.is_full() {
                return self.become_member();
            }
        }
        Ok(())
    }
}

fn same(one: u64, other: u64) -> bool {
    (one ^ other) & !RECENT == 0
}

/// The state of a file. To be made before the file is looked at.
fn state_of(file: &Stat) -> u64 {
    state_at((file.st_ctime, file.st_ctime_nsec))
}

/// As [`state_of`], by the time of the inode's last change.
fn state_at((seconds, nanoseconds): (i64, u64)) -> u64 {
    let is_recent = may_be_stamped_again(seconds, nanoseconds);
    let time = (seconds as u64).wrapping_mul(1_000_000_007).wrapping_add(nanoseconds);
    time & !(ALONE | RECENT) | ALONE | if is_recent { RECENT } else { 0 }
}

#[cfg(test)]
mod tests {
    use crate::Settings;
    use crate::file::{Access, AtomicFile, UserBuf};
    use std::os::fd::{AsFd, AsRawFd};

    /// A `stat` by name never came back.
    #[test]
    fn a_file_whose_descriptors_were_closed_unseen_is_not_looked_at_for_ever() {
        let path = format!("/dev/shm/famio-unseen-{}", std::process::id());
        std::fs::write(&path, [b'x'; 100]).unwrap();
        let name = std::ffi::CString::new(path.as_str()).unwrap();
        for access in [Access::Read, Access::Write] {
            // The library finds other numbers, or the same ones with another file.
            let file = std::fs::File::options().read(true).write(access == Access::Write).open(&path).unwrap();
            let atomic = AtomicFile::open(file.as_fd(), access, &name, &Settings::default()).unwrap();
            let mut target = std::os::fd::OwnedFd::from(file);
            rustix::io::dup2(std::fs::File::open("/dev/null").unwrap(), &mut target).unwrap();
            assert_eq!(atomic.size_given(100, None), 100);
            // SAFETY: the test's memory.
            let read = unsafe { atomic.read(0, &[UserBuf::of(&mut [0; 10])]) };
            assert_eq!(read.map_err(|e| e.errno()), Err(libc::EBADF));
            atomic.remove_descriptor(target.as_raw_fd()).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}
