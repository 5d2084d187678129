//! What a process keeps of its ownership.

use super::burst::{Burst, Ended, LONGEST_BURST};
use super::hand_over_image::HandOverImage;
use super::owner_session::OwnerSession;
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::descriptors::shared_memory;
use crate::file::images::Others;
use crate::file::session::flush_tries::FlushTries;
use crate::index::{HAS_IMAGE, ImageKind, MOVED, Membership, SESSION, Shared, follow_up};
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use rustix::time::Timespec;
use std::sync::{Arc, OnceLock};

/// How long a process that waits for ownership sleeps between two looks: nothing wakes it when the owner dies.
pub(in crate::file) const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Looks at an owner that could not hand over at the last request, until it is taken to be still unable: about a
/// second.
pub(in crate::file) const UNANSWERED: u32 = 100;
/// Looks until a wait is given up: about a minute.
pub(in crate::file) const LOOKS: u32 = 6000;
/// The most nanoseconds for which a new owner lets requests wait. Usually it is the time that it took to begin and to
/// end the last session: some microseconds for a hand-over, a few syncs of the disk if the session ends.
pub(in crate::file) const MAX_REQUEST_WAIT: u64 = 50_000_000;

/// What a process keeps about its ownership of a file.
pub(in crate::file) struct Ownership {
    pub membership: Arc<Membership>,
    /// The count of requests when ownership was acquired, or the last request answered.
    pub(in crate::file) requests_seen: AtomicU32,
    /// The count of requests when the background was last woken to answer.
    pub(in crate::file) requests_woken_for: AtomicU32,
    /// The word for which the background sleeps, as it was before its last look.
    pub(in crate::file) calls_seen: AtomicU32,
    /// The number of requests of `famio flush`, with its looks, when the background last looked.
    pub(in crate::file) flush_seen: AtomicU32,
    pub(in crate::file) flush_tries: FlushTries,
    /// When ownership was acquired or its session begun, and how long that and the last end took.
    pub(in crate::file) since: AtomicU64,
    pub(in crate::file) began_in: AtomicU64,
    pub(in crate::file) ended_in: AtomicU64,
    /// The session has taken up a hand-over image, which goes at the next commit.
    pub(in crate::file) has_taken_image: AtomicBool,
    /// Some changes in it belong to other processes, which may still die.
    pub(in crate::file) foreign: AtomicBool,
    pub(in crate::file) is_owner: AtomicBool,
    /// The state of the control page in which this process could not put in order what a dead one left, or not show
    /// what others change.
    pub(in crate::file) unrepairable_state: AtomicU64,
    /// The dead members that were dealt with, or left to others, as one number; and since when the remaining ones are
    /// looked at.
    pub(in crate::file) reaped: AtomicU64,
    pub(in crate::file) reaping_since: AtomicU64,
    /// Maps being made.
    pub(in crate::file) maps_in_progress: AtomicU32,
    /// Maps of the kernel's file being made.
    pub(in crate::file) kernel_maps_in_progress: AtomicU32,
    pub others: Others,
    /// The kinds of locks for writing that this process may have on the file ([`LockOf`](crate::file::LockOf)).
    pub(in crate::file) locked: AtomicU32,
    /// A lock was released since the session's open epoch began, and what was written before that is still here.
    pub(in crate::file) has_released_lock: AtomicBool,
    /// Commits of this process that have ended. Changed while no thread writes.
    pub(in crate::file) commits: AtomicU64,
    pub(in crate::file) unattached: Unattached,
    /// The session was taken over with a file that another program has changed (`lifetime/deferred_close.rs`).
    pub is_file_changed: AtomicBool,
    /// The session of another process that is read along.
    pub(in crate::file) joined: crate::thread::Mutex<Option<Arc<OwnerSession>>>,
    /// The number of an arena that could not be joined.
    pub(in crate::file) unjoined: AtomicU64,
    /// Calls after each of which the session is left to its next owner, since processes change the file alternately.
    pub calls_in_tenure: AtomicU32,
    pub(in crate::file) burst: Burst,
    /// The next session saves no before-images: those of the last one found no room.
    pub no_images: AtomicBool,
    /// Changes of a killed process were kept, and this process has dealt with them.
    pub(in crate::file) has_kept: AtomicBool,
    /// Shows a file that is immutable, and so cannot be recovered.
    pub(in crate::file) view: crate::thread::Mutex<Option<View>>,
}

impl Ownership {
    pub fn new(membership: Membership) -> Self {
        Self {
            membership: Arc::new(membership),
            requests_seen: AtomicU32::new(0),
            requests_woken_for: AtomicU32::new(0),
            calls_seen: AtomicU32::new(0),
            flush_seen: AtomicU32::new(0),
            flush_tries: FlushTries::default(),
            since: AtomicU64::new(0),
            began_in: AtomicU64::new(0),
            ended_in: AtomicU64::new(0),
            has_taken_image: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            is_owner: AtomicBool::new(false),
            unrepairable_state: AtomicU64::new(0),
            reaped: AtomicU64::new(0),
            reaping_since: AtomicU64::new(0),
            maps_in_progress: AtomicU32::new(0),
            kernel_maps_in_progress: AtomicU32::new(0),
            others: Others::default(),
            locked: AtomicU32::new(0),
            has_released_lock: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            unattached: Unattached::default(),
            is_file_changed: AtomicBool::new(false),
            joined: crate::thread::Mutex::default(),
            unjoined: AtomicU64::new(0),
            calls_in_tenure: AtomicU32::new(0),
            burst: Burst::default(),
            no_images: AtomicBool::new(false),
            has_kept: AtomicBool::new(false),
            view: crate::thread::Mutex::default(),
        }
    }

    /// Whether the file is as last committed, and no session changes it. This process is attached to the control
    /// file.
    #[inline]
    pub(in crate::file) fn is_quiet(&self) -> Option<u64> {
        if !self.membership.has_attached() {
            return None;
        }
        let state = self.membership.state();
        (state & (SESSION | HAS_IMAGE | MOVED) == 0).then_some(state)
    }

    /// Whether this process knows of a session, of any process, or of a hand-over image.
    pub fn is_disturbed(&self) -> bool {
        self.membership.has_attached() && self.is_quiet().is_none()
    }

    /// Whether there is a hand-over image. This process is attached to the control file.
    pub fn is_handed_over(&self) -> bool {
        self.membership.state() & HAS_IMAGE != 0
    }

    /// Whether nothing has changed since [`is_quiet`](Self::is_quiet).
    #[inline]
    pub(in crate::file) fn still(&self, quiet: u64) -> bool {
        core::sync::atomic::fence(Ordering::Acquire);
        self.membership.state() == quiet
    }

    /// Whether the owner has said that it cannot hand over: after `asked` hand-overs were counted, or earlier without
    /// an answer since.
    pub(in crate::file) fn is_refused(&self, asked: u32, look: u32) -> bool {
        self.membership.stuck() != 0 && (self.membership.change_count() != asked || look > UNANSWERED)
    }

    /// Ownership is not handed over while a map is being made.
    pub fn begin_map(&self) -> MapInProgress<'_> {
        self.maps_in_progress.fetch_add(1, Ordering::SeqCst);
        MapInProgress(&self.maps_in_progress)
    }

    /// A map of the kernel's file is being made, which is not in the list of maps yet. The caller must wait for
    /// nothing meanwhile, least of all for another process, which may wait for the maps of this one.
    pub fn begin_kernel_map(&self) -> MapInProgress<'_> {
        self.kernel_maps_in_progress.fetch_add(1, Ordering::SeqCst);
        MapInProgress(&self.kernel_maps_in_progress)
    }

    /// Whether such a map is being made.
    pub fn has_kernel_map_in_progress(&self) -> bool {
        self.kernel_maps_in_progress.load(Ordering::SeqCst) > 0
    }

    /// In this state of the control page this process cannot do its part.
    pub fn cannot_repair(&self, state: u64) {
        self.unrepairable_state.store(state, Ordering::Relaxed);
    }

    /// Whether that holds for this state.
    pub fn is_unrepairable(&self, state: u64) -> bool {
        self.unrepairable_state.load(Ordering::Relaxed) == state
    }

    /// Whether a map is being made.
    pub fn has_map_in_progress(&self) -> bool {
        self.maps_in_progress.load(Ordering::SeqCst) > 0
    }

    /// Whether this process's session has changes of others that may still be rolled back.
    #[inline]
    pub fn has_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Whether another process has requested ownership since this one acquired it.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.membership.requests() != self.requests_seen.load(Ordering::Relaxed)
    }

    /// Whether this process has owned the file long enough to hand it over.
    pub(in crate::file) fn was_long_enough(&self) -> bool {
        let spent = self.began_in.load(Ordering::Relaxed) + self.ended_in.load(Ordering::Relaxed);
        monotonic_now() >= self.since.load(Ordering::Relaxed) + spent.min(MAX_REQUEST_WAIT)
    }

    /// Whether this process, at the end of a call, stays the owner although other processes wait, since the call is
    /// part of a [`Burst`]. `now`: in nanoseconds, as all times here.
    pub(in crate::file) fn keeps_for_burst(&self, ended: Ended, now: u64) -> bool {
        self.burst.call_ended(ended, now) && self.may_keep(now)
    }

    /// Whether this process, the owner, is in a burst of calls for which it may stay the owner.
    pub(in crate::file) fn may_finish_burst(&self, now: u64) -> bool {
        self.burst.goes_on(now) && self.may_keep(now)
    }

    fn may_keep(&self, now: u64) -> bool {
        now < self.since.load(Ordering::Relaxed) + LONGEST_BURST
    }

    /// The session whose beginning started at `begun` exists now.
    pub fn began(&self, begun: u64) {
        let now = monotonic_now();
        self.began_in.store(now - begun, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// Reads the hand-over image; empty if there is none.
    pub fn hand_over_image(&self, fds: &Descriptors) -> Result<HandOverImage> {
        let Some(path) = self.membership.epoch() else { return Ok(HandOverImage::default()) };
        let failed =
            |e: Error| e.context(format_args!("reading {path}, the open epoch that one process leaves for the next"));
        shared_memory::open(fds, &path).and_then(HandOverImage::load).map_err(failed)
    }

    /// Stores the epoch as hand-over image, or removes the image if it is empty. Called by the owner. `is_whole`: it
    /// has everything uncommitted, though a session, or what is left of one, seems to have it, too.
    pub(in crate::file) fn send(&self, fds: &Descriptors, epoch: &HandOverImage, is_whole: bool) -> Result<()> {
        if epoch.changes.is_empty() {
            self.membership.forget_epoch();
            return Ok(());
        }
        let number = self.membership.begin_epoch();
        let path = self.membership.epoch_path(number);
        let stored = shared_memory::make(fds, &self.membership, &path).and_then(|file| epoch.store(file));
        if let Err(e) = stored {
            let _ = rustix::fs::unlinkat(rustix::fs::CWD, &*path, rustix::fs::AtFlags::empty());
            return Err(e.context(format_args!("writing {path}, the open epoch that one process leaves for the next")));
        }
        self.membership.set_epoch(number, ImageKind { is_kept: epoch.is_kept(), is_whole });
        Ok(())
    }

    /// The number of commits of this process that have ended.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// The hand-over image that this session took up is committed and durable. `shared`: the session's.
    pub fn committed(&self, shared: &Shared) {
        self.commits.store(self.commits.load(Ordering::Relaxed) + 1, Ordering::Release);
        if self.membership.stuck() != 0 {
            self.membership.set_stuck(0); // a commit makes it possible to end the session
        }
        // Looked at first: a locked instruction would wait for all earlier stores, and most SYNCs have nothing to do
        // here.
        if self.has_released_lock.load(Ordering::Acquire) {
            self.has_released_lock.store(false, Ordering::Release);
            shared.released.store(0, Ordering::Release);
        }
        if self.has_taken_image.load(Ordering::Acquire) && self.has_taken_image.swap(false, Ordering::AcqRel) {
            self.membership.forget_epoch();
            self.all_own();
            // Also with the gate open: the next epoch has only this process's own changes, until a new session takes
            // up changes of others; that session sets the bit before any thread is inside.
            shared.follow_up.fetch_and(!follow_up::OTHERS, Ordering::Release);
        } else if self.foreign.load(Ordering::Acquire) {
            self.all_own();
            shared.follow_up.fetch_and(!follow_up::OTHERS, Ordering::Release);
        }
    }

    /// Whether the session's open epoch has changes of other processes.
    ///
    /// # Errors
    /// `EIO`: the before-images are damaged.
    pub fn has_epoch_of_others(&self, session: &crate::file::session::Session) -> Result<bool> {
        let me = self.membership.me().id;
        let has_others = session.has_images(|writer| writer.id != me)?;
        Ok(has_others || self.has_taken_image.load(Ordering::Acquire) || self.foreign.load(Ordering::Acquire))
    }

    /// The open epoch was discarded.
    pub fn nothing_is_open(&self) {
        self.all_own();
    }

    /// Forgets which process wrote what: the session is another process's from now on.
    pub(in crate::file) fn forget_writers(&self) {
        self.has_released_lock.store(false, Ordering::Release);
        self.has_taken_image.store(false, Ordering::Release);
        self.foreign.store(false, Ordering::Release);
        self.others.lock().clear();
    }

    /// Nothing in this process's session, if it has one, came from other processes or was released.
    pub(in crate::file) fn all_own(&self) {
        self.forget_writers();
    }
}

/// See [`Ownership::begin_map`] and [`Ownership::begin_kernel_map`].
pub(in crate::file) struct MapInProgress<'a>(&'a AtomicU32);

impl Drop for MapInProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What such a process has seen.
#[derive(Default)]
pub(in crate::file) struct Unattached {
    /// The state when there was no control file; 0: not looked yet.
    pub(in crate::file) seen: AtomicU64,
    pub(in crate::file) looks: AtomicU32,
    /// Whether the file system [stamps each change](crate::sys::FileSystem::stamps_each_change); unset: not asked yet.
    pub(in crate::file) stamps_each: OnceLock<bool>,
    /// What this process sees of the members if it found no free slot.
    pub(in crate::file) visit: crate::thread::Mutex<Option<Arc<Ownership>>>,
}

/// The file with what a recovery would do.
#[derive(Debug)]
pub(in crate::file) struct View {
    pub(in crate::file) seen: Seen,
    pub(in crate::file) epoch: Arc<HandOverImage>,
}

/// What changes if any process changes the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) struct Seen {
    pub(in crate::file) state: u64,
    pub(in crate::file) changed: (i64, u64),
}
