//! A file's size: asked for, set, and the room up to it.

use crate::error::Result;
use crate::file::atomic::{ATTACHED, AtomicFile, GROWING, PLAIN};
use crate::file::base::refusal::Answer;
use crate::file::descriptors::by_kernel::punch_hole;
use core::sync::atomic::Ordering;
use rustix::fs::FallocateFlags;

impl AtomicFile {
    /// Whether the file grows, or may begin to.
    #[inline]
    pub(super) fn may_grow_with_a_change(&self) -> bool {
        [PLAIN, GROWING].contains(&self.state.load(Ordering::Acquire))
    }

    /// The logical size in bytes, with uncommitted changes.
    pub fn size(&self) -> u64 {
        self.size_beside_kernels(None)
    }

    /// Whether this process has just opened it by its only descriptor, and no other process uses it, so that the file
    /// is what the kernel has.
    pub fn is_unchanged_since_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == PLAIN
            && !self.ownership.membership.has_attached()
            && self.shadow().is_none()
            && self.fds.is_one()
    }

    /// As [`size`](Self::size), for a caller that has just got the size from the kernel, and the time of the last
    /// change, in seconds and nanoseconds.
    pub fn size_given(&self, kernels: u64, changed: Option<(i64, u64)>) -> u64 {
        self.size_beside_kernels(Some((kernels, changed)))
    }

    fn size_beside_kernels(&self, given: Option<(u64, Option<(i64, u64)>)>) -> u64 {
        let given_size = given.map(|(size, _)| size);
        let kernel = || self.fds.stat().map_or(given_size.unwrap_or(0), |stat| stat.st_size as u64);
        let mut given_whole = given.and_then(|(size, changed)| Some((size, changed?)));
        loop {
            let Some(unmoved) = self.growing.before_read() else {
                rustix::thread::sched_yield();
                continue;
            };
            let session = self.session();
            if self.ownership.has_foreign() {
                let _ = self.roll_back_dead(); // the next read or write reports errors
            }
            match (self.state.load(Ordering::Acquire), session) {
                (ATTACHED, Some(session)) => return session.arena.shared().size(),
                (GROWING, _) => {
                    let size = kernel();
                    if self.growing.is_unmoved(unmoved) {
                        return size;
                    }
                }
                (PLAIN, _)
                    if self.ownership.membership.shadow().is_none()
                        && let Some(size) = self.size_if_alone(given_whole.take())
                        && self.growing.is_unmoved(unmoved) =>
                {
                    return size;
                }
                (PLAIN, _)
                    if let Some(quiet) = self.quiet_now()
                        && self.ownership.membership.shadow().is_none() =>
                {
                    let size = self.size_while_quiet(quiet, given_size);
                    if self.growing.is_unmoved(unmoved) && self.is_still(quiet) {
                        return size;
                    }
                }
                (PLAIN, _) if self.ownership.membership.shadow().is_some() => match self.shared_size() {
                    Some(size) => return size,
                    None => return kernel(),
                },
                (PLAIN, _) => match self.size_as_non_owner() {
                    Ok(Some(size)) => return size,
                    Ok(None) => {}
                    Err(_) => return kernel(),
                },
                _ => return kernel(),
            }
        }
    }

    /// The size of the kernel's file in the state `quiet`.
    fn size_while_quiet(&self, quiet: u64, given: Option<u64>) -> u64 {
        if let Some(given) = given.filter(|&given| self.kernels_size.is(given, quiet)) {
            return given;
        }
        let size = self.kernels_size();
        // A process that is not attached to the control file only has the inode's times to tell states apart, which
        // is too little.
        if self.ownership.membership.has_attached() && self.is_still(quiet) {
            self.kernels_size.set(size, quiet);
        }
        size
    }

    /// The size of the kernel's file.
    pub(in crate::file) fn kernels_size(&self) -> u64 {
        self.fds.stat().map_or(0, |stat| stat.st_size as u64)
    }

    /// Sets the size; part of the open epoch. Growing shows zeros.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn set_size(&self, size: u64) -> Result<()> {
        Self::may_lock()?;
        if self.may_grow_with_a_change()
            && let Some(done) = self.set_size_growing(size, false)
        {
            return done;
        }
        self.reserve_size_in_record(size)?;
        let set = || self.set_size_of_file(size);
        self.changing(set, set, |()| size..size)
    }

    /// As [`set_size`](Self::set_size), past the shadow.
    pub(in crate::file) fn set_size_of_file(&self, size: u64) -> Answer<()> {
        self.writing(
            |session| session.set_size(&self.fds, size),
            || self.fds.with(true, |fd| Ok(rustix::fs::ftruncate(fd, size)?)),
        )
    }

    /// Makes the file at least `size` bytes long; part of the open epoch. New bytes are zeros.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn grow(&self, size: u64) -> Result<()> {
        Self::may_lock()?;
        if self.may_grow_with_a_change()
            && let Some(done) = self.set_size_growing(size, true)
        {
            return done;
        }
        self.reserve_in_record(size, 1)?;
        let grow = || {
            self.writing(
                |session| session.grow(&self.fds, size),
                || {
                    // One byte of room at the end: the kernel cuts nothing, whichever process makes it longer.
                    let Some(last) = size.checked_sub(1) else { return Ok(()) };
                    self.fds.with(true, |fd| Ok(rustix::fs::fallocate(fd, FallocateFlags::empty(), last, 1)?))
                },
            )
        };
        self.changing(grow, grow, |()| size..size)
    }

    /// Zeros over `from..to`, as far as the file goes; part of the open epoch. Holes stay holes.
    ///
    /// # Errors
    /// As [`write`](Self::write); a part of the range may be zeros then. Writes of other threads are not undone.
    pub fn zero(&self, from: u64, to: u64) -> Result<()> {
        Self::may_lock()?;
        if let Some(done) = self.zero_growing(from, to) {
            return done;
        }
        if self.settings.group.is_some() {
            let end = to.min(self.size());
            self.reserve_in_record(from, end.saturating_sub(from) as usize)?;
        }
        let mut at = from;
        while at < to {
            let zero = || {
                self.writing(
                    |session| session.zero_some(&self.fds, at, to),
                    || self.fds.with(true, |fd| punch_hole(fd, at, to)).map(|()| to),
                )
            };
            at = self.changing(zero, zero, |&next| at..next)?;
        }
        Ok(())
    }
}
