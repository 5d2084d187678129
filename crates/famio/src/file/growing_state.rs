//! What a process keeps of a file that grows.

use super::growing_order::Order;
use crate::journal::GrowingMark;
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::thread::{Mutex, current};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// What a process keeps of a growing file.
#[derive(Default)]
pub(super) struct Growing {
    /// Odd while the open epoch is on its way from the kernel's file into a session.
    pub(super) moves: AtomicU32,
    /// The thread that moves it, by the address of its block.
    pub(super) mover: AtomicUsize,
    /// It has grown for long: from its next change on it has a session.
    pub(super) is_over: AtomicBool,
    /// While it grows. Comes after `AtomicFile::inner`.
    pub(super) state: Mutex<Option<State>>,
}

/// A file that grows.
pub(super) struct State {
    /// As it is on the file, if it is; what is committed is below its `new`.
    pub(super) mark: GrowingMark,
    /// A new file that is the kernel's until its first SYNC (`on-close = leave`), and gets its mark then: in this order.
    pub(super) marked_later: Option<Order>,
    pub(super) medium: &'static dyn Medium,
    /// The file system keeps the order of what it makes durable: a commit needs one flush, and no hash.
    pub(super) keeps_order: bool,
    /// A flush has failed: no more commits.
    pub(super) is_suspect: bool,
    /// How often it was committed.
    pub(super) commits: u32,
    /// Where the space ends that the program has preallocated, if that is beyond the end of the file.
    pub(super) preallocated: u64,
}

impl State {
    pub(super) fn is_marked(&self) -> bool {
        self.marked_later.is_none()
    }

    pub(super) fn committed(&self) -> u64 {
        self.mark.new
    }

    pub(super) fn durability(&self) -> Durability {
        if self.mark.boot.is_some() { Durability::Process } else { Durability::Power }
    }
}

/// Why a file whose flush failed takes no more changes.
pub(super) const SUSPECT: &str = "an earlier SYNC of it failed, and it takes no more: close it, and open it again";

/// What the file showed counts if nothing has moved since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Unmoved(u32);

impl Growing {
    /// To be called before the kernel's file is read, of a file without a session. `None`: look again in a moment.
    #[inline]
    pub fn before_read(&self) -> Option<Unmoved> {
        let moves = self.moves.load(Ordering::Acquire);
        let is_mine = || self.mover.load(Ordering::Relaxed) == me();
        (moves.is_multiple_of(2) || is_mine()).then_some(Unmoved(moves))
    }

    /// Whether what was read since is what the file had.
    #[inline]
    pub fn is_unmoved(&self, before: Unmoved) -> bool {
        core::sync::atomic::fence(Ordering::Acquire);
        Unmoved(self.moves.load(Ordering::Relaxed)) == before
    }

    /// While it lives the file goes on growing, if it does, or does not begin to.
    pub fn stay(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    pub(super) fn moving(&self) -> Moving<'_> {
        self.mover.store(me(), Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::SeqCst);
        Moving(self)
    }
}

pub(super) fn me() -> usize {
    core::ptr::from_ref(current()) as usize
}

/// The open epoch is on its way, until this is dropped.
pub(super) struct Moving<'a>(&'a Growing);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.mover.store(0, Ordering::Relaxed);
        self.0.moves.fetch_add(1, Ordering::SeqCst);
    }
}
