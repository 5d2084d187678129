//! Read locks that stay in the kernel when the program unlocks them (*kept locks*), while several processes read one
//! file often: the program's next read lock of the same bytes then makes no system call. As NFS clients keep
//! delegations, they are recalled: a process of Famio to which the kernel refuses a lock for writing has the others drop
//! what they keep, and asks again.
//!
//! The kernel has each lock that the program has, at every moment. What processes share (`index/members`) only says who
//! keeps locks, so nothing that happens there, or to another process, can give a lock to two.
//!
//! Locks are kept from an unlock of the whole file on, when this process certainly has no record lock, up to a lock for
//! writing, a recall, or a pause. Meanwhile `Locks::place` says that they are in memory, so that each call comes here.

use super::{AtomicFile, IN_MEMORY, Kind, Lock, Owner, Range, kernel};
use crate::fast_path::FAST_PATH;
use crate::file::base::background_wakeup::{self, Watched};
use crate::file::registry::files;
use crate::file::state::kept_locks::Kept;
use crate::file::state::lock_ranges::Ranges;
use crate::file::state::lock_state::Table;
use crate::settings::DeferClose;
use crate::sys::monotonic_now;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::time::Timespec;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Lock calls are frequent if [`CALLS_BEFORE_LEASE`](super::CALLS_BEFORE_LEASE) of them in the kernel come within so
/// many nanoseconds.
const FREQUENT: u64 = 50_000_000;
/// So many times in a row, and a process becomes a member for its locks.
const OFTEN: u32 = 8;
/// The fewest and most unlocks before locks are kept again after a recall, or a lock for writing.
const PAUSE: u32 = 4;
const PAUSE_MAX: u32 = 1024;
/// Calls while locks were kept from which on that was worth it.
const WORTH: u32 = 32;
/// Nanoseconds in which none are kept after a recall.
const TURN_OF_RECALLER: u64 = 500_000;
/// Nanoseconds after a recall in which a lock for writing that the kernel refuses is asked for again, and how one waits
/// in between.
const RECENT: u64 = 2_000_000;
const SPINS: u32 = 60;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
/// All processes at once keep no locks in the first `TURN` nanoseconds of each `PERIOD`: a turn for programs without
/// Famio that wait for a lock for writing. Longer than the longest pause of SQLite between two tries.
const PERIOD: u64 = 3_000_000_000;
const TURN: u64 = 200_000_000;
/// Nanoseconds between two looks, of a process that is no member, whether the file has members.
const LOOK_FOR_MEMBERS: u64 = 10_000_000;

/// Counts closes that may have dropped what is kept of any file.
static DOUBTS: AtomicU32 = AtomicU32::new(0);

fn is_turn_of_others() -> bool {
    monotonic_now() % PERIOD < TURN
}

impl AtomicFile {
    /// A lock call went to the kernel. Often enough, locks are kept.
    pub(super) fn count_lock_calls(&self) {
        let (keeping, now) = (&self.locks.keeping, monotonic_now());
        let since = keeping.counted_at.swap(now, Ordering::Relaxed);
        if now.saturating_sub(since) >= FREQUENT {
            return keeping.frequent.store(0, Ordering::Relaxed);
        }
        let times = keeping.frequent.fetch_add(1, Ordering::Relaxed);
        let wants = Self::may_wait().is_ok() && self.has_other_processes(times);
        keeping.is_wanted.store(wants, Ordering::Relaxed);
    }

    /// Whether other members have the file open. This process becomes one, if it locks often for long enough: `times`.
    fn has_other_processes(&self, times: u32) -> bool {
        let (keeping, membership) = (&self.locks.keeping, &self.ownership.membership);
        if !membership.is_attached() && times >= OFTEN && !keeping.is_kept_out.load(Ordering::Relaxed) {
            keeping.is_kept_out.store(self.is_disowned() || self.become_member().is_err(), Ordering::Relaxed);
        }
        membership.is_attached() && membership.has_others()
    }

    /// Begins to keep locks, after the kernel has unlocked all that the process had. `granted`: the count of locks that it
    /// had granted before that.
    #[cold]
    pub(super) fn try_to_keep(&self, granted: u32) {
        let locks = &self.locks;
        let pause = locks.keeping.pause.load(Ordering::Relaxed);
        if pause > 0 {
            return locks.keeping.pause.store(pause - 1, Ordering::Relaxed);
        }
        let may = self.settings.defer_close == DeferClose::Never // a close that is made up for later drops locks
            && !self.is_disowned()
            && !is_turn_of_others()
            && monotonic_now() >= locks.keeping.not_before.load(Ordering::Relaxed);
        if !may || Self::may_wait().is_err() {
            return;
        }
        if !background_wakeup::is_there() {
            return background_wakeup::watch_members(); // nobody would answer a recall
        }
        let mut table = locks.table.lock();
        if table.leased
            || table.kept.is_some()
            || self.fds.are_joined()
            || locks.place.compare_exchange(0, IN_MEMORY, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return;
        }
        // No call is in the kernel now. One that was there in between has a lock, or the close of a descriptor drops some.
        let granted_since = locks.keeping.granted.load(Ordering::Acquire) != granted;
        let may_begin = !granted_since && locks.keeping.closing.load(Ordering::SeqCst) == 0;
        let begun = if may_begin { self.ownership.membership.begin_to_keep_locks() } else { None };
        let Some(recalls) = begun else {
            locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
            return self.pause_keeping(0);
        };
        table.forget();
        FAST_PATH.kept_locks.fetch_add(1, Ordering::SeqCst);
        let doubts = DOUBTS.load(Ordering::SeqCst);
        table.kept = Some(Kept { in_kernel: Ranges::default(), recalls, doubts, calls: 0, calls_seen: 0 });
        drop(table);
        if locks.keeping.has_kept.swap(true, Ordering::AcqRel) {
            background_wakeup::remind(); // to look at it from time to time
        } else {
            self.register_for_death_notice();
            background_wakeup::watch_members();
        }
    }

    /// After locks were kept for so many calls.
    fn pause_keeping(&self, calls: u32) {
        let locks = &self.locks;
        let next = if calls >= WORTH {
            PAUSE
        } else {
            (locks.keeping.next_pause.load(Ordering::Relaxed) * 2).clamp(PAUSE, PAUSE_MAX)
        };
        locks.keeping.next_pause.store(next, Ordering::Relaxed);
        locks.keeping.pause.store(next, Ordering::Relaxed);
    }

    /// A call while locks are kept; `kind` `None`: unlocks. `None`: the kernel is to do it, with no lock kept.
    #[inline]
    pub(super) fn set_kept(
        &self,
        table: &mut Table,
        owner: Owner,
        kind: Option<Kind>,
        range: Range,
    ) -> Option<core::result::Result<(), i32>> {
        let Table { kept, ranges, .. } = table;
        let kept = kept.as_mut()?;
        let is_kept = owner == Owner::Process && kind != Some(Kind::Write);
        let is_in_doubt = DOUBTS.load(Ordering::Relaxed) != kept.doubts;
        if !is_kept || is_in_doubt || self.ownership.membership.are_locks_recalled(kept.recalls) {
            return None;
        }
        kept.calls = kept.calls.wrapping_add(1);
        match kind {
            None => ranges.unset(owner, range),
            Some(kind) => {
                let lock = Lock { owner, kind, range };
                if !kept.in_kernel.have(lock) {
                    self.fds.with(false, |fd| kernel::set(fd, lock)).ok()?; // or else the kernel refuses it again
                    kept.in_kernel.set(lock);
                }
                ranges.set(lock);
            }
        }
        Some(Ok(()))
    }

    /// Has the kernel unlock what the program has unlocked. Nothing is kept any more.
    pub(super) fn end_kept_locks(&self, table: &mut Table) {
        let Some(mut kept) = table.kept.take() else { return };
        if self.ownership.membership.are_locks_recalled(kept.recalls) {
            self.locks.keeping.not_before.store(monotonic_now() + TURN_OF_RECALLER, Ordering::Relaxed);
        }
        table.ranges.iter().for_each(|lock| kept.in_kernel.unset(lock.owner, lock.range));
        let unlock = |fd: BorrowedFd<'_>| {
            kept.in_kernel.iter().for_each(|lock| kernel::unset(fd, *lock));
            Ok(())
        };
        let _ = self.fds.with(false, unlock); // without a descriptor the process has no lock
        self.are_moved(table);
        self.locks.place.fetch_and(!IN_MEMORY, Ordering::AcqRel);
        FAST_PATH.kept_locks.fetch_sub(1, Ordering::SeqCst);
        self.ownership.membership.end_to_keep_locks();
        self.pause_keeping(kept.calls);
    }

    /// The same, if this process keeps any: before it gets a lease, leaves the others, or runs another program.
    pub(crate) fn keep_no_locks(&self) {
        if self.locks.keeping.has_kept.load(Ordering::Acquire) && Self::may_lock().is_ok() {
            self.end_kept_locks(&mut self.locks.table.lock());
        }
    }

    /// The program is about to close a descriptor, which drops its record locks. Until the result is dropped, after the
    /// close, none are kept.
    pub fn begins_to_close(self: &Arc<Self>) -> Closing {
        self.locks.keeping.closing.fetch_add(1, Ordering::SeqCst);
        self.keep_no_locks();
        Closing(self.clone())
    }

    /// In a forked child: the kernel has none of its parent's locks for it.
    pub(in crate::file) fn forget_kept_locks(&self) {
        self.locks.keeping.has_kept.store(false, Ordering::Release);
        FAST_PATH.kept_locks.store(0, Ordering::SeqCst);
    }

    fn drop_recalled_locks(&self) {
        let mut table = self.locks.table.lock();
        let is_recalled = |kept: &Kept| self.ownership.membership.are_locks_recalled(kept.recalls);
        if table.kept.as_ref().is_some_and(is_recalled) {
            self.end_kept_locks(&mut table);
        }
    }

    /// The background's look: drops what is kept if it was recalled, is not used, or others have their turn. Whether to
    /// look again.
    pub(in crate::file) fn look_after_kept_locks(&self) -> bool {
        let locks = &self.locks;
        if !locks.keeping.has_kept.load(Ordering::Acquire) {
            return false;
        }
        let membership = &self.ownership.membership;
        locks.keeping.recalls_seen.store(membership.lock_recalls(), Ordering::Relaxed); // before the look
        let mut table = locks.table.lock();
        let Some(kept) = &mut table.kept else { return false };
        let is_idle = core::mem::replace(&mut kept.calls_seen, kept.calls) == kept.calls;
        let is_recalled = membership.are_locks_recalled(kept.recalls);
        if !(is_idle || is_recalled || is_turn_of_others() || !membership.has_others()) {
            return true;
        }
        self.end_kept_locks(&mut table);
        if is_idle {
            locks.keeping.is_wanted.store(false, Ordering::Relaxed);
        }
        false
    }

    /// Adds what the background waits for.
    pub(in crate::file) fn watch_kept_locks(&self, on: &mut Watched) -> bool {
        if !self.locks.keeping.has_kept.load(Ordering::Acquire) || self.is_disowned() {
            return true;
        }
        let (membership, seen) = (&self.ownership.membership, self.locks.keeping.recalls_seen.load(Ordering::Relaxed));
        on.words.push(membership.watch_recalls(seen));
        membership.lock_recalls() == seen
    }

    /// This process waits for a lock for writing: meanwhile no other begins to keep locks. `None`: none does.
    pub(super) fn waits_for_lock(&self, blocks: bool) -> Option<Waiting<'_>> {
        let membership = &self.ownership.membership;
        let may_recall = !self.is_disowned() && Self::may_wait().is_ok();
        if !may_recall || !membership.has_attached() && !self.joins_others() {
            return None;
        }
        if !blocks && membership.lock_recalls() == 0 && !membership.do_others_keep_locks() {
            return None; // nobody ever has
        }
        if self.locks.keeping.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            membership.set_waits_for_lock(true);
        }
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
}

/// Ends what is kept of one file, before a lock that is not counted.
pub fn keep_no_locks_of(key: (u64, u64)) {
    if let Some(file) = AtomicFile::find(key.0, key.1) {
        file.keep_no_locks();
    }
}

/// The program is about to close a descriptor of the file with that identity, which the library does not know. As from
/// [`begins_to_close`](AtomicFile::begins_to_close).
pub fn begins_to_close_other(key: (u64, u64)) -> Option<Closing> {
    AtomicFile::find(key.0, key.1).map(|file| file.begins_to_close())
}

/// The same, of many descriptors.
pub fn begins_to_close_many() -> Vec<Closing> {
    if !are_any_kept() {
        return Vec::new();
    }
    let all: Vec<_> = files().values().cloned().collect();
    all.iter().map(AtomicFile::begins_to_close).collect()
}

/// The same, in a signal handler that may not look: what is kept is not relied on any more.
pub fn doubt_kept_locks() {
    DOUBTS.fetch_add(1, Ordering::SeqCst);
}

/// Ends what is kept of all files.
pub fn keep_no_locks() {
    if are_any_kept() {
        let all: Vec<_> = files().values().cloned().collect();
        all.iter().for_each(|file| file.keep_no_locks());
    }
}

/// The background has long work: drops what was recalled meanwhile.
pub(in crate::file) fn answer_recalls() {
    if are_any_kept() {
        let all: Vec<_> = files().values().cloned().collect();
        all.iter().for_each(|file| file.drop_recalled_locks());
    }
}

/// Whether this process sees all lock calls of its program ([`all_calls_are_seen`]).
static ARE_SEEN: AtomicBool = AtomicBool::new(false);

/// The library is under the program, and sees each of its lock calls. Otherwise no other process keeps locks while this
/// one is a member.
pub fn all_calls_are_seen() {
    ARE_SEEN.store(true, Ordering::Release);
}

pub(in crate::file) fn are_all_calls_seen() -> bool {
    ARE_SEEN.load(Ordering::Acquire)
}

/// Whether the locks of any file are kept.
#[inline]
pub fn are_any_kept() -> bool {
    FAST_PATH.kept_locks.load(Ordering::Relaxed) != 0
}

/// While a call waits for a lock.
pub struct Waiting<'a>(&'a AtomicFile);

impl Waiting<'_> {
    /// Whether to ask the kernel again, since other processes kept locks, which they have dropped.
    pub fn recalls(&self) -> bool {
        let recalled = self.0.ownership.membership.recall_kept_locks();
        if recalled {
            self.0.locks.keeping.recalled_at.store(monotonic_now(), Ordering::Relaxed);
        }
        recalled
    }

    /// The same, and again for less than a millisecond: a process that drops what it keeps does so as it locks, and has a
    /// lock just then. `tries`: the times before.
    pub fn asks_again(&self, tries: u32) -> bool {
        self.recalls() || self.has_recalled(tries)
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
        if self.0.locks.keeping.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ownership.membership.set_waits_for_lock(false);
        }
    }
}

/// While the program closes a descriptor of the file.
pub struct Closing(Arc<AtomicFile>);

impl Closing {
    /// The close comes later, unseen: this process keeps no locks on the file from here on.
    pub fn does_not_end(self) {
        self.0.locks.keeping.closing.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.locks.keeping.closing.fetch_sub(1, Ordering::SeqCst);
    }
}
