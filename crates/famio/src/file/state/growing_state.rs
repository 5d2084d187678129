//! What a process keeps of a file that grows.

use super::growing_order::Order;
use crate::journal::{GrowingMark, Overwrites};
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::thread::{Mutex, current};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// What a process keeps about a growing file.
#[derive(Default)]
pub(in crate::file) struct Growing {
    /// Odd while the open epoch moves from the kernel's file into a session.
    pub(in crate::file) moves: AtomicU32,
    /// The thread that moves it, by the address of its block.
    pub(in crate::file) mover: AtomicUsize,
    /// It has been growing for long: its next change begins a session.
    pub(in crate::file) is_over: AtomicBool,
    /// The open epoch has overwrites, which the kernel's file does not have.
    pub(in crate::file) is_overwritten: AtomicBool,
    /// The lease is gone, and others may open the file: reads look whether they have changed it.
    pub(in crate::file) is_shared: AtomicBool,
    /// While it grows. Locked after `AtomicFile::inner`.
    pub(in crate::file) state: Mutex<Option<Box<State>>>,
}

pub(in crate::file) struct State {
    /// The mark on the file, if there is one; bytes below its `new` are committed.
    pub(in crate::file) mark: GrowingMark,
    /// Overwrites of committed bytes in the open epoch: in memory until the SYNC has put them into the mark.
    pub(in crate::file) overwrites: Overwrites,
    /// The mark commits overwrites that the kernel's file does not have yet, for want of room: they are still among
    /// those above.
    pub(in crate::file) is_unapplied: bool,
    /// The process has released a lock on the file in the open epoch.
    pub(in crate::file) released_lock: ReleasedLock,
    /// The most bytes of the mark that overwrites may take; 0: it may have none.
    pub(in crate::file) room: usize,
    /// With `on-close = leave`: a new file that is the kernel's until its first SYNC, and gets its mark then, in this
    /// order.
    pub(in crate::file) marked_later: Option<Order>,
    pub(in crate::file) medium: &'static dyn Medium,
    /// The file system keeps the order of what it makes durable: a commit needs one flush, and no hash.
    pub(in crate::file) keeps_order: bool,
    /// A flush has failed: no more commits.
    pub(in crate::file) is_suspect: bool,
    /// Commits until now.
    pub(in crate::file) commits: u32,
    /// Writes until now that overwrote committed bytes, also by the same.
    pub(in crate::file) overwriting_writes: u32,
    /// The end of the space that the program has preallocated, if that is beyond the end of the file.
    pub(in crate::file) preallocated: u64,
}

/// Whether the process has released a lock on the file since it changed it first in the open epoch: then other processes
/// may rely on what it has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::file) enum ReleasedLock {
    No,
    /// And has not changed the file since.
    Last,
    /// And has changed the file since.
    Before,
}

impl State {
    pub(in crate::file) fn is_marked(&self) -> bool {
        self.marked_later.is_none()
    }

    pub(in crate::file) fn committed(&self) -> u64 {
        self.mark.new
    }

    /// Whether the open epoch has overwrites, or the mark has committed ones that the file may lack after a crash.
    pub(in crate::file) fn has_overwrites(&self) -> bool {
        !self.overwrites.is_empty() || !self.mark.overwrites.is_empty()
    }

    pub(in crate::file) fn durability(&self) -> Durability {
        if self.mark.boot.is_some() { Durability::Process } else { Durability::Power }
    }
}

/// Why a file whose flush failed, or of which uncommitted bytes are lost, takes no more changes.
pub(in crate::file) const SUSPECT: &str = "an earlier SYNC of it failed, or what was written could not be kept, and it takes no more: close it, and open it again";

/// Why a file that others have taken over is not read.
pub(in crate::file) const TAKEN: &str =
    "another process has recovered it to its last SYNC, and may have changed it since; close it, and open it again";

/// Proves that bytes read from the file are valid if nothing has moved since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::file) struct Unmoved(u32);

impl Growing {
    /// To be called before the kernel's file is read, without a session. `None`: try again in a moment.
    #[inline]
    pub fn before_read(&self) -> Option<Unmoved> {
        let moves = self.moves.load(Ordering::Acquire);
        let is_mine = || self.mover.load(Ordering::Relaxed) == me();
        (moves.is_multiple_of(2) || is_mine()).then_some(Unmoved(moves))
    }

    /// Whether the bytes read since are valid.
    #[inline]
    pub fn is_unmoved(&self, before: Unmoved) -> bool {
        core::sync::atomic::fence(Ordering::Acquire);
        Unmoved(self.moves.load(Ordering::Relaxed)) == before
    }

    /// To be called with the lock, when the overwrites of the open epoch may have changed: tells readers whether there
    /// are some.
    pub(in crate::file) fn show_overwrites_of(&self, state: &State) {
        self.is_overwritten.store(!state.overwrites.is_empty(), Ordering::Release);
    }

    /// While this lives the file neither stops growing nor begins to.
    pub fn stay(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    pub(in crate::file) fn moving(&self) -> Moving<'_> {
        self.mover.store(me(), Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::SeqCst);
        Moving(self)
    }
}

pub(in crate::file) fn me() -> usize {
    core::ptr::from_ref(current()) as usize
}

/// The open epoch moves until this is dropped.
pub(in crate::file) struct Moving<'a>(&'a Growing);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.mover.store(0, Ordering::Relaxed);
        self.0.moves.fetch_add(1, Ordering::SeqCst);
    }
}
