//! A file between its first write and its clean close: arena, home, engine.

pub(super) mod attach;
pub(super) mod close;
pub(super) mod closed_gate;
pub(super) mod deferred;
mod exclusive;
pub(super) mod flush;
pub(super) mod flush_tries;
mod gap;
pub(super) mod gather;
mod open_blocks;
pub(super) mod read;
pub(super) mod save_images;
pub(super) mod size;
pub(super) mod sync;
pub(super) mod write;
pub(super) mod zero;

use super::images::Imaging;
use super::{Descriptors, Home};
use crate::file::base::calls::Grace;
use crate::file::engine::context::{Context, Engine};
use crate::index::{Arena, CLOSED, Pairs};
use crate::settings::PolicyChoice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::Arc;

/// An attached file.
pub(crate) struct Session {
    pub arena: Arc<Arena>,
    pub home: Home,
    pub engine: Box<dyn Engine>,
    /// This process's slot.
    pub me: u32,
    /// Whether a thread may have exclusive mode: not while there are other processes, which could not read along.
    pub may_be_exclusive: AtomicBool,
    /// The arena's generation when this process became the owner: it counts sessions, and changes of the owner.
    pub generation: AtomicU64,
    /// The arena's number on the control page.
    pub arena_number: u64,
    /// The value of `Shared::open` while this is the session.
    pub opened: AtomicU64,
    /// What this process knows about the session's before-images.
    pub(super) imaging: Imaging,
    pub choice: PolicyChoice,
    /// Whether uncommitted changes are kept after a kill: then calls record in advance what they do.
    pub keeps: bool,
    /// Whether the session belongs to a group. Then uncommitted changes are not handed over, so no before-images are
    /// needed; exclusive mode is off, since readers in other processes could not end it. False for a session taken from
    /// another process, unless it turns out that it cannot be ended.
    pub of_group: AtomicBool,
    pub(super) gathered: Gathered,
    /// Transactions of two threads that are copied at the same time. Apart, since it is large: the stack may be small.
    pub(in crate::file) pairs: Box<Pairs>,
    /// A SYNC has found the journal gone, and made it again.
    pub(super) was_lost: AtomicBool,
    /// The last epoch had one write at most: so may the next.
    pub(super) syncs_each_write: AtomicBool,
}

/// How far file and journal were gathered. Changed only by the background.
#[derive(Default)]
pub(super) struct Gathered {
    /// The file's next huge page to look at.
    pub(super) next: AtomicU64,
    /// The journal's.
    pub(super) next_of_journal: AtomicU64,
    /// The size of the arena when the pass began: if it has grown since, there are newly written blocks.
    pub(super) arena: AtomicU64,
    /// Pages that failed.
    pub(super) failed: AtomicU64,
    /// The time (monotonic, nanoseconds) from which on the next round may begin beside writers.
    pub(super) rest_until: AtomicU64,
}

/// The most bytes that one call moves, as in the kernel.
pub(crate) const CALL_MAX: usize = 0x7fff_f000;

impl Session {
    #[inline]
    pub fn context<'a>(&'a self, fds: &'a Descriptors) -> Context<'a> {
        let generation = self.generation.load(Ordering::Relaxed);
        Context { arena: &self.arena, home: &self.home, fds, me: self.me, exclusive: false, generation }
    }
}

impl Session {
    /// Leaves the journal as a crash would, to a recovery.
    pub(super) fn abandon(&self) {
        self.engine.abandon();
        self.engine.journal().limit().end();
    }

    /// Other processes may read along from now on: the session is complete.
    pub(super) fn open_to_others(&self) {
        let shared = self.arena.shared();
        shared.journal.store(self.engine.inode_in_place(), Ordering::Release);
        shared.journal_file.store(self.engine.journal().file().identity().1, Ordering::Release);
        self.opened.store(self.generation.load(Ordering::Acquire), Ordering::Release);
        shared.open.store(self.opened.load(Ordering::Acquire), Ordering::Release);
    }

    /// First step of the end: other processes may no longer read along.
    pub(super) fn close_to_others(&self) {
        self.arena.shared().open.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst); // before anything is reused
    }

    /// The session could not end and goes on; processes that want to read request ownership.
    pub(super) fn stays_closed_to_others(&self) {
        self.arena.shared().open.store(CLOSED, Ordering::Release);
    }
}

/// A session that has ended, until no call can use it any more. Its descriptors and maps go with it.
pub(super) struct OldSession {
    pub session: Box<Session>,
    grace: Grace,
}

impl OldSession {
    /// No call finds it any more, but calls may be inside.
    pub fn new(session: Box<Session>) -> Self {
        Self { session, grace: Grace::new() }
    }

    /// Whether no call is inside any more.
    pub fn is_unused(&mut self) -> bool {
        self.grace.wait()
    }
}
