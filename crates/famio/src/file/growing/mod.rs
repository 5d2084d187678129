//! Growing files: a file that is new, or only grows, needs no journal. The committed size is in the file's mark
//! ([`GrowingMark`]), and everything beyond it is uncommitted; bytes go straight to the kernel's file. A crash, or
//! the end of the process, leaves the mark, and recovery cuts the file to the committed size.
//!
//! With `on-close = leave` a new file has no mark, and is the kernel's in all respects, until its first SYNC.
//!
//! A file grows only while this process holds the write lease, so that no other process has it open. When the program
//! changes committed bytes, maps the file, or shares it with a child, a session begins and continues the open epoch.

mod before_cut;
mod begin;
mod change;
mod end;
mod order;
mod session;
mod sync;

use crate::journal::GrowingMark;
use crate::pmem::Medium;
use crate::settings::Durability;
use crate::thread::{Mutex, current};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use order::Order;
pub(super) use session::Tail;

/// What a process keeps about a growing file.
#[derive(Default)]
pub(super) struct Growing {
    /// Odd while the open epoch moves from the kernel's file into a session.
    moves: AtomicU32,
    /// The thread that moves it, by the address of its block.
    mover: AtomicUsize,
    /// It has been growing for long: its next change begins a session.
    is_over: AtomicBool,
    /// While it grows. Locked after `AtomicFile::inner`.
    state: Mutex<Option<State>>,
}

struct State {
    /// The mark on the file, if there is one; bytes below its `new` are committed.
    mark: GrowingMark,
    /// With `on-close = leave`: a new file that is the kernel's until its first SYNC, and gets its mark then, in this
    /// order.
    marked_later: Option<Order>,
    medium: &'static dyn Medium,
    /// The file system keeps the order of what it makes durable: a commit needs one flush, and no hash.
    keeps_order: bool,
    /// A flush has failed: no more commits.
    is_suspect: bool,
    /// Commits until now.
    commits: u32,
    /// The end of the space that the program has preallocated, if that is beyond the end of the file.
    preallocated: u64,
}

impl State {
    fn is_marked(&self) -> bool {
        self.marked_later.is_none()
    }

    fn committed(&self) -> u64 {
        self.mark.new
    }

    fn durability(&self) -> Durability {
        if self.mark.boot.is_some() { Durability::Process } else { Durability::Power }
    }
}

/// Why a file whose flush failed takes no more changes.
const SUSPECT: &str = "an earlier SYNC of it failed, and it takes no more: close it, and open it again";

/// Proves that bytes read from the file are valid if nothing has moved since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Unmoved(u32);

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

    /// While this lives the file neither stops growing nor begins to.
    pub fn stay(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    fn moving(&self) -> Moving<'_> {
        self.mover.store(me(), Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::SeqCst);
        Moving(self)
    }
}

fn me() -> usize {
    core::ptr::from_ref(current()) as usize
}

/// The open epoch moves until this is dropped.
struct Moving<'a>(&'a Growing);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.mover.store(0, Ordering::Relaxed);
        self.0.moves.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
