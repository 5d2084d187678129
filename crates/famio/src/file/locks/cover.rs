//! The cover: a write lock of the kernel on the whole file, by a description of this process's own, while the record
//! locks of all processes are in the lock table. It keeps the locks of programs without Famio away, and those of
//! processes that do not use the table.
//!
//! Its descriptor is opened and closed only while the process has no record lock in the kernel: the kernel drops those
//! with any descriptor of the file that is closed.

use super::{AtomicFile, IN_MEMORY};
use crate::file::base::background_wakeup;
use crate::file::state::lock_state::OwnLocks;
use crate::index::LockedTable;
use crate::sys::locks::{Lock, is_locked, try_lock, unlock};
use crate::sys::{InternalFd, monotonic_now, open_again};
use core::ops::Range;
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use std::os::fd::{AsFd, BorrowedFd};

/// The whole file, for `F_OFD_SETLK`.
const WHOLE: Range<i64> = 0..0;
/// Nanoseconds for which locks stay in the kernel after the cover was given up: longer than the longest pause of
/// SQLite between two tries, so that programs without Famio get a turn.
const TURN: u64 = 110_000_000;
/// Nanoseconds after which the cover is given up for such a turn.
const LONGEST: u64 = 1_500_000_000;
/// Nanoseconds for which the kernel may still have the cover of a process that has died.
const DYING: u64 = 200_000_000;

/// Looks, a millisecond apart, for a moment without locks, before a longer pause.
pub(super) const LOOKS_IN_VAIN: u32 = 64;
/// The most unlocks between two attempts to take it.
const PAUSE_MAX: u32 = 16;

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum LookAgain {
    No,
    /// In a while.
    Later,
    /// At once.
    Soon,
}

impl AtomicFile {
    /// Whether locks are in the table. After the death of the process that had the cover, this one takes it.
    #[inline]
    pub(super) fn is_covered(&self, own: &mut OwnLocks, locked: &LockedTable<'_>) -> bool {
        match locked.cover() {
            None => false,
            Some(holder) if !self.ownership.membership.is_gone(holder) => {
                own.failing_since = 0;
                true
            }
            Some(_) => self.take_over_cover(own, locked),
        }
    }

    #[cold]
    fn take_over_cover(&self, own: &mut OwnLocks, locked: &LockedTable<'_>) -> bool {
        if self.take_cover(own, locked) {
            own.failing_since = 0;
            return true;
        }
        // The kernel marks a process dead before it drops its locks.
        let now = monotonic_now();
        if own.failing_since == 0 {
            own.failing_since = now;
        }
        if now - own.failing_since < DYING {
            return true;
        }
        own.failing_since = 0;
        locked.end_cover(now + TURN);
        false
    }

    /// Takes the cover, if the kernel has no lock on the file.
    fn take_cover(&self, own: &mut OwnLocks, locked: &LockedTable<'_>) -> bool {
        let Some(cover) = self.alone_in_kernel(|| self.lock_whole_file()) else { return false };
        own.cover = Some((cover, monotonic_now()));
        locked.set_cover();
        background_wakeup::wake();
        true
    }

    /// Runs `act`, if no thread of this process is about to lock in the kernel.
    fn alone_in_kernel<T>(&self, act: impl FnOnce() -> Option<T>) -> Option<T> {
        let place = &self.locks.place;
        // Other threads then wait for the table of locks.
        place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).ok()?;
        let done = act();
        place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        done
    }

    /// A description with a lock on the whole file. This process has no lock in the kernel, and sets none meanwhile: if
    /// it fails, the close of the description would drop it.
    fn lock_whole_file(&self) -> Option<InternalFd> {
        let is_free = |fd: BorrowedFd<'_>| Ok(!is_locked(fd, WHOLE, Lock::Exclusive));
        if !self.fds.with(false, is_free).unwrap_or(false) {
            return None;
        }
        // Without waiting for another program's lease.
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let opened = self.fds.with(false, |fd| Ok(open_again(fd, flags)?)).ok()?;
        try_lock(opened.as_fd(), WHOLE, Lock::Exclusive).unwrap_or(false).then_some(opened)
    }

    /// After an unlock in the kernel: takes the cover, if lock calls are frequent.
    #[cold]
    pub(super) fn try_cover(&self) {
        if self.ownership.membership.is_lock_table_barred() {
            self.locks.wants_cover.store(false, Ordering::Relaxed);
            return;
        }
        let _ = self.with_locked_table(|own, locked| {
            if locked.cover().is_some() || own.cover.is_some() || !locked.may_cover(monotonic_now()) {
                return;
            }
            if own.pause > 0 {
                own.pause -= 1;
                return;
            }
            if self.take_cover(own, locked) {
                own.next_pause = 0;
                own.calls_seen = locked.table().calls();
            } else {
                own.next_pause = (own.next_pause * 2 + 1).min(PAUSE_MAX);
                own.pause = own.next_pause;
            }
        });
    }

    /// Gives up the cover. Nobody takes it for the next `turn` nanoseconds.
    pub(super) fn uncover(&self, own: &mut OwnLocks, locked: &LockedTable<'_>, turn: u64) {
        // Before others may lock in the kernel, this process's threads among them: its close drops what they have.
        self.release_cover(own);
        own.looks_in_vain = 0;
        locked.end_cover(monotonic_now() + turn);
    }

    /// Releases the kernel's lock on the whole file. Not by the close alone: a child may have a duplicate.
    fn release_cover(&self, own: &mut OwnLocks) {
        let Some((cover, _)) = own.cover.take() else { return };
        // A thread that was about to lock in the kernel before there was a cover could do so between the unlock and the
        // close, which would drop its lock.
        let _ = self.alone_in_kernel(move || {
            unlock(&cover, WHOLE);
            drop(cover);
            Some(())
        });
    }

    /// The background's look: gives up the cover if it should, and makes own locks in the kernel after another process
    /// has given it up.
    pub(in crate::file) fn look_after_locks(&self) -> LookAgain {
        if !self.locks.is_sharing.load(Ordering::Acquire) {
            return LookAgain::No;
        }
        let mut is_alone = false;
        let looked = self.with_locked_table(|own, locked| {
            own.changes_seen = locked.table().change_count(); // before the look
            let is_covered = self.is_covered(own, locked);
            if own.cover.is_some() && locked.cover() != Some(locked.table().me()) {
                self.release_cover(own); // others have taken this process for gone
            }
            if !is_covered {
                self.move_own_to_kernel(own, locked);
                is_alone = !self.ownership.membership.has_others();
                return if own.are_any() { LookAgain::Soon } else { LookAgain::No };
            }
            let Some((cover, since)) = &own.cover else {
                let is_dying = locked.cover().is_some_and(|holder| self.ownership.membership.is_dying(holder));
                return if is_dying { LookAgain::Soon } else { LookAgain::No };
            };
            let calls = locked.table().calls();
            let is_idle = core::mem::replace(&mut own.calls_seen, calls) == calls;
            let is_lost = cover.get().is_err();
            let is_needed = locked.is_uncover_wanted() || self.ownership.membership.is_lock_table_barred();
            let is_long = monotonic_now() - since > LONGEST;
            let is_alone_now = !self.ownership.membership.has_others();
            if !(is_idle || is_lost || is_needed || is_long || is_alone_now) {
                return LookAgain::Later;
            }
            // Only with an empty table are programs without Famio kept out at each moment.
            let has_locks = own.are_any() || locked.has_others();
            let may_wait = !is_needed || own.looks_in_vain < LOOKS_IN_VAIN;
            if has_locks && !is_lost && may_wait {
                own.looks_in_vain = (own.looks_in_vain + 1).min(LOOKS_IN_VAIN);
                let is_soon = is_needed || !is_idle && own.looks_in_vain < LOOKS_IN_VAIN;
                return if is_soon { LookAgain::Soon } else { LookAgain::Later };
            }
            self.uncover(own, locked, if is_idle { 0 } else { TURN });
            self.move_own_to_kernel(own, locked);
            match own.are_any() {
                true => LookAgain::Soon,
                false if is_alone_now => LookAgain::Later,
                false => LookAgain::No,
            }
        });
        if is_alone {
            self.leave_lock_table_if_alone();
        }
        looked.flatten().unwrap_or(LookAgain::Later)
    }
}
