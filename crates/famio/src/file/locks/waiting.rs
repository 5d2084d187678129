//! A lock for writing that the kernel has refused: other processes may only keep what excludes it (`kept`).

use super::AtomicFile;
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::time::Timespec;
use std::os::fd::BorrowedFd;

/// Nanoseconds after a recall in which a lock for writing that the kernel refuses is asked for again, and how one waits
/// in between.
const RECENT: u64 = 2_000_000;
const SPINS: u32 = 60;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
/// Nanoseconds between two looks, of a process that is no member, whether the file has members.
const LOOK_FOR_MEMBERS: u64 = 10_000_000;

/// Whether this process sees all lock calls of its program ([`all_calls_are_seen`]).
static ARE_SEEN: AtomicBool = AtomicBool::new(false);

/// The library is under the program, and sees each of its lock calls. Otherwise no other process keeps locks while this
/// one is a member.
pub fn all_calls_are_seen() {
    ARE_SEEN.store(true, Ordering::Release);
}

impl AtomicFile {
    /// This process waits for a lock for writing: meanwhile no other begins to keep locks. `None`: none does, nor can
    /// begin to before the call returns, if it `blocks`.
    pub(super) fn waits_for_lock(&self, blocks: bool) -> Option<Waiting<'_>> {
        let membership = &self.ownership.membership;
        let may_recall = !self.is_disowned() && Self::may_wait().is_ok();
        let joins = || if blocks { self.become_member().is_ok() } else { self.joins_others() };
        if !may_recall || !membership.is_attached() && !joins() {
            return None;
        }
        if !blocks && membership.lock_recalls() == 0 && !membership.do_others_keep_locks() {
            return None; // nobody ever has
        }
        let mut waiting = self.locks.keeping.waiting.lock();
        *waiting += 1;
        membership.set_waits_for_lock(true);
        drop(waiting);
        Some(Waiting(self))
    }

    /// Becomes a member, if there are any.
    fn joins_others(&self) -> bool {
        let (now, looked) = (monotonic_now(), self.locks.keeping.looked_at.load(Ordering::Relaxed));
        if now.saturating_sub(looked) < LOOK_FOR_MEMBERS {
            return false;
        }
        let find = |fd: BorrowedFd<'_>| crate::journal::control::find(fd, self.settings.pool.as_deref());
        let has_members = matches!(self.fds.with(false, find), Ok(Some(_)));
        let joined = has_members && self.become_member().is_ok();
        if !joined {
            self.locks.keeping.looked_at.store(now, Ordering::Relaxed);
        }
        joined
    }

    /// This process has become a member. If it waits for a lock, or does not see its program's lock calls and so could not
    /// recall what others keep, nobody keeps any.
    pub(in crate::file) fn recalls_as_new_member(&self) {
        let waits = self.locks.keeping.waiting.try_lock().is_some_and(|waiting| *waiting > 0);
        if waits || !ARE_SEEN.load(Ordering::Acquire) {
            self.ownership.membership.set_waits_for_lock(true);
            self.ownership.membership.recall_kept_locks();
        }
    }
}

/// While a call waits for a lock.
pub struct Waiting<'a>(&'a AtomicFile);

impl Waiting<'_> {
    /// Makes others drop what they keep, and waits for that. Returns whether any did.
    pub fn recalls(&self) -> bool {
        let recalled = self.0.ownership.membership.recall_kept_locks();
        if recalled {
            self.0.locks.keeping.recalled_at.store(monotonic_now(), Ordering::Relaxed);
        }
        recalled
    }

    /// The same without waiting, for a call that waits in the kernel.
    pub fn recalls_at_once(&self) {
        self.0.ownership.membership.ask_keepers();
    }

    /// Whether to ask the kernel again, since other processes kept locks, which they have dropped; and for up to two
    /// milliseconds after that: a process that drops what it keeps does so as it locks, and has a lock just then. `tries`:
    /// the times before.
    pub fn asks_again(&self, tries: u32) -> bool {
        self.recalls() || self.has_recalled(tries) || tries == 0 // it may have dropped it since the kernel has refused
    }

    /// Whether locks were recalled a moment ago. Waits a little if so, longer with more `tries`.
    fn has_recalled(&self, tries: u32) -> bool {
        let recalled = self.0.locks.keeping.recalled_at.load(Ordering::Relaxed);
        let is_recent = recalled != 0 && monotonic_now().saturating_sub(recalled) < RECENT;
        match tries {
            _ if !is_recent => {}
            0..3 => (0..SPINS).for_each(|_| core::hint::spin_loop()),
            // The process with the lock may not run, as this one does in its place. (`sched_yield` would return after
            // milliseconds.)
            _ => drop(rustix::thread::nanosleep(&LOOK)),
        }
        is_recent
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.locks.keeping.waiting.lock();
        *waiting -= 1;
        if *waiting == 0 {
            self.0.ownership.membership.set_waits_for_lock(false);
        }
    }
}
