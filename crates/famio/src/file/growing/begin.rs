//! A file begins to grow: first the lease, then the mark.

use super::change::Reach;
use crate::error::Result;
use crate::file::atomic::{AtomicFile, GROWING, Inner, PLAIN};
use crate::file::lease;
use crate::file::shadow;
use crate::file::state::growing_order::{Order, room_for_overwrites};
use crate::file::state::growing_state::{ReleasedLock, State};
use crate::journal::live::durability_of;
use crate::journal::{BootId, GrowingMark, Identity, Overwrites};
use crate::pmem::{TestHooks, detect_on, keeps_order, medium};
use crate::settings::{Durability, JournalChoice, OnClose, OnKill};
use crate::sys::{FileSystem, look_at};
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Flags that the descriptor must not have: with them the kernel would do more than the library asks for, or less.
const ODD: OFlags = OFlags::APPEND.union(OFlags::DIRECT).union(OFlags::DSYNC).union(OFlags::SYNC);

impl AtomicFile {
    /// Before the first change of a file: makes it a growing file if it may be one, and only what lies beyond its end is
    /// changed, or a few bytes before. `None`: it does not grow. Otherwise a descriptor that was just confirmed, and has
    /// the lease; none, if it was growing already.
    pub(super) fn begin_to_grow(&self, reach: Reach<'_>) -> Option<Option<RawFd>> {
        if self.growing.is_over.load(Ordering::Relaxed)
            || self.ownership.membership.has_attached()
            || self.ownership.membership.is_attached()
        {
            return None;
        }
        let inner = self.inner();
        // Checked again under the lease. Most files that are not new are changed elsewhere, and need no lease for the
        // check.
        let is_open = reach.is_open_with(self.found_size);
        if self.state.load(Ordering::Acquire) != PLAIN || !is_open || !self.may_grow(&inner) {
            return (self.state.load(Ordering::Acquire) == GROWING).then_some(None); // perhaps by another thread
        }
        // A map that was kept of it as an ordinary file counts as an open of it.
        crate::map::cache::forget(self.device, self.inode);
        let watcher = lease::Watched::begin()?;
        let (mut is_taken, are_seen) = (false, self.fds.are_seen());
        let first_state = if self.fds.are_several() {
            is_taken =
                self.join_for_lease(|| self.fds.with(true, |fd| Ok(watcher.take(fd, are_seen))).unwrap_or(false));
            if is_taken { self.fds.with(true, |fd| self.first_state(fd, reach)) } else { Ok(None) }
        } else {
            self.fds.with(true, |fd| {
                is_taken = watcher.take(fd, are_seen);
                if is_taken { self.first_state(fd, reach) } else { Ok(None) }
            })
        };
        // On any error: a session reports it, or the file is demoted.
        let Ok(Some((state, fd))) = first_state else {
            if is_taken {
                let _ = self.give_up_growing_lease(None); // fails only if the lease is gone already
            }
            return None;
        };
        self.growing.is_shared.store(false, Ordering::Relaxed);
        *self.growing.state.lock() = Some(state);
        self.state.store(GROWING, Ordering::SeqCst);
        watcher.keep_watching();
        Some(Some(fd))
    }

    fn may_grow(&self, inner: &Inner) -> bool {
        let is_new =
            inner.session.is_none() && inner.owner_lock.is_none() && inner.left.is_none() && inner.unsent.is_none();
        let settings = &self.settings;
        is_new
            && !self.growing.is_over.load(Ordering::Relaxed)
            && TestHooks::current().medium.is_none() // the recorder has no order of mark and size
            && settings.journal == JournalChoice::Auto
            && settings.on_kill == OnKill::Rollback
            && settings.pool.is_none()
            && self.shadow().is_none()
            && !shadow::is_mapped(self.key())
            && self.lease.may_be_taken()
    }

    /// Under the lease: marks the file, unless that comes later, and returns the descriptor, too. `None`: it needs a
    /// session.
    fn first_state(&self, fd: BorrowedFd<'_>, reach: Reach<'_>) -> Result<Option<(Box<State>, RawFd)>> {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        let looked = look_at(fd, false)?;
        let size = looked.size;
        if flags & OFlags::RWMODE != OFlags::RDWR
            || flags.intersects(ODD)
            || looked.is_deleted
            || !reach.is_open_with(size)
        {
            return Ok(None);
        }
        let system = FileSystem::of(fd)?;
        let detected = detect_on(&system, fd, &self.settings)?;
        let order = Order::of(fd, &detected)?;
        if matches!(order, Order::Unknown) {
            return Ok(None);
        }
        let identity = Identity::of_looked_at(fd, &system, &looked)?.hash128() as u64;
        let is_volatile = durability_of(detected.domain) == Durability::Process;
        let boot = if is_volatile { Some(BootId::current()?) } else { None };
        let mut mark = GrowingMark { is_found: true, ..GrowingMark::new(size, boot, identity) };
        mark.renew();
        let medium = medium(detected.domain, detected.eadr);
        let keeps_order = keeps_order(fd, &detected);
        let mut state = Box::new(State {
            mark,
            overwrites: Overwrites::default(),
            is_unapplied: false,
            released_lock: ReleasedLock::No,
            room: room_for_overwrites(&detected, keeps_order),
            marked_later: None,
            medium,
            keeps_order: keeps_order && !is_volatile,
            is_suspect: false,
            commits: 0,
            overwriting_writes: 0,
            preallocated: 0,
        });
        // Before the mark: without it, a session costs nothing more.
        if let Reach::Within(at, new) = reach
            && state.with_overwrite(fd, at, new)?.is_none()
        {
            return Ok(None);
        }
        if self.settings.on_close == OnClose::Leave && size == 0 {
            state.marked_later = Some(order);
        } else if !order.mark(fd, &state.mark)? {
            return Ok(None);
        }
        Ok(Some((state, fd.as_raw_fd())))
    }
}
