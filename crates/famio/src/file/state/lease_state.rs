//! The write lease of one file, as its process knows it.

use crate::file::base::lease_wakeup;
use crate::file::session::Session;
use crate::settings::PolicyChoice;
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;

/// Epochs before the first attempt: a file that is written once and closed gains nothing.
pub(in crate::file) const FIRST: u64 = 4;
/// Epochs between two checks whether it is time for another attempt.
pub(in crate::file) const AGAIN: u64 = 64;
/// Milliseconds: after *n* failures in a row the next attempt waits `PAUSE << n`, up to `PAUSE_MAX`.
pub(in crate::file) const PAUSE: u64 = 50;
pub(in crate::file) const PAUSE_MAX: u64 = 10_000;
/// In `due`: do not try.
pub(in crate::file) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(in crate::file) struct Lease {
    pub(in crate::file) state: Mutex<State>,
    /// The epoch from which on to try.
    pub(in crate::file) due: AtomicU64,
    /// It is held: a copy of `state`, readable without the lock.
    pub(in crate::file) held: AtomicBool,
    /// The program locks the file often.
    pub(in crate::file) for_locks: AtomicBool,
}

#[derive(Debug, Default)]
pub(in crate::file) struct State {
    /// The program's descriptor by which it is held.
    pub(in crate::file) fd: Option<RawFd>,
    /// There is a session that can use it.
    pub(in crate::file) wanted: bool,
    /// The session writes alternately under it, and shows the committed state before the release.
    pub(in crate::file) exposes: bool,
    /// The thread has to try.
    pub(in crate::file) asked: bool,
    /// The session is about to end.
    pub(in crate::file) resting: bool,
    /// The description is shared with others, or the program uses what a lease uses: never again.
    pub(in crate::file) barred: bool,
    /// Failed attempts in a row, and the time of the last attempt in milliseconds.
    pub(in crate::file) failures: u32,
    pub(in crate::file) tried: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            due: AtomicU64::new(NEVER),
            held: AtomicBool::new(false),
            for_locks: AtomicBool::new(false),
        }
    }
}

impl Lease {
    pub(in crate::file) fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Whether it is never to be taken again while the program has the file open.
    pub fn is_barred(&self) -> bool {
        self.state().barred
    }

    /// A session has begun.
    pub fn begin(&self, session: &Session) {
        let mut state = self.state();
        state.resting = false;
        let wants = matches!(session.choice, PolicyChoice::Auto | PolicyChoice::Alternate);
        state.exposes = wants && session.engine.may_alternate();
        state.wanted = (state.exposes || self.for_locks.load(Ordering::Relaxed)) && !state.barred;
        let due = if state.wanted { session.arena.shared().committed() + FIRST } else { NEVER };
        self.due.store(due, Ordering::Relaxed);
    }

    /// The program locks the file often: the next SYNC asks for the lease, whatever the session does.
    #[cold]
    pub fn want_for_locks(&self, session: &Session) {
        if self.for_locks.load(Ordering::Relaxed) {
            return;
        }
        // Otherwise a thread is at it, and the program comes again.
        let Some(mut state) = self.state.try_lock() else { return };
        if session.arena.shared().closed.load(Ordering::Acquire) == 0 && !state.resting {
            self.for_locks.store(true, Ordering::Relaxed);
            state.wanted = !state.barred;
            if state.wanted && state.fd.is_none() {
                self.due.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The session is about to end: it keeps the lease until then, and takes none.
    pub fn rest(&self) {
        let mut state = self.state();
        (state.wanted, state.resting) = (false, true);
        self.due.store(NEVER, Ordering::Relaxed);
    }

    /// The descriptor by which it is held may have a new number.
    pub fn renumber(&self, old: RawFd, new: RawFd) {
        let mut state = self.state();
        if state.fd == Some(old) {
            state.fd = Some(new);
        }
    }

    /// After a SYNC: whether it may be time to try. One load if it is not.
    #[inline]
    pub fn is_due(&self, session: &Session) -> bool {
        session.arena.shared().committed() >= self.due.load(Ordering::Relaxed)
    }

    /// Asks the thread to try, unless it is too early or of no use.
    #[cold]
    pub fn ask(&self, session: &Session) {
        let shared = session.arena.shared();
        self.due.store(shared.committed() + AGAIN, Ordering::Relaxed);
        // Otherwise the lease thread has it, or a thread that releases the lease.
        let Some(mut state) = self.state.try_lock() else { return };
        let pause = match state.failures {
            0 => 0,
            n => (PAUSE << n.min(16)).min(PAUSE_MAX),
        };
        let undo = crate::file::engine::policy::Policy::Undo as u32;
        let is_of_use = self.for_locks.load(Ordering::Relaxed) || shared.policy.load(Ordering::Relaxed) != undo;
        if is_of_use && now() >= state.tried + pause {
            self.ask_now(&mut state);
        }
    }

    pub(in crate::file) fn ask_now(&self, state: &mut State) {
        if state.wanted && state.fd.is_none() && !state.asked {
            state.asked = lease_wakeup::wake();
            if state.asked {
                self.due.store(NEVER, Ordering::Relaxed);
            }
        }
    }

    /// Plans another attempt, some epochs from now.
    pub(in crate::file) fn later(&self, state: &State, session: Option<&Session>) {
        let due = match session {
            Some(session) if state.wanted => session.arena.shared().committed() + AGAIN,
            _ => NEVER,
        };
        self.due.store(due, Ordering::Relaxed);
    }
}

/// Milliseconds of the monotonic clock.
pub(in crate::file) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
