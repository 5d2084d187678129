//! How the background is started, and told that there is work.

use super::lease_wakeup;
use crate::index::LIVES;
use crate::sys::Word;
use crate::sys::internal::undisturbed;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::OnceLock;

/// The id of the process whose thread it is; 0: there is no thread. A forked child has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// There is work for the thread, but it could not be started.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Counts events; the thread sleeps while it does not change.
pub(in crate::file) static EVENTS: AtomicU32 = AtomicU32::new(0);
/// How the thread sleeps: for a time (`TIMED`), or until the next event (`DEEP`).
pub(in crate::file) static ASLEEP: AtomicU32 = AtomicU32::new(AWAKE);
pub(in crate::file) const AWAKE: u32 = 0;
pub(in crate::file) const TIMED: u32 = 1;
pub(in crate::file) const DEEP: u32 = 2;

/// What the thread does. Set before any file is open.
static WORK: OnceLock<fn()> = OnceLock::new();

/// To be called before any file is open.
pub(in crate::file) fn set_work(work: fn()) {
    let _ = WORK.set(work);
}

/// Starts the thread, once per process. Inside a signal handler (or if that is unclear) this is put off to another
/// call, at the latest the next SYNC: until then writers make checkpoints themselves, and requests of other processes
/// wait.
pub(in crate::file) fn start() {
    if crate::pmem::TestHooks::current().still {
        return;
    }
    let me = crate::sys::process_id();
    let seen = PROCESS.load(Ordering::Acquire);
    if seen != me && !crate::thread::may_start() {
        WANTED.store(true, Ordering::Relaxed);
        lease_wakeup::wake(); // its thread starts this one, if it is there
        return;
    }
    WANTED.store(false, Ordering::Relaxed);
    if seen == me || PROCESS.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        notify();
        return;
    }
    if !WORK.get().is_some_and(|work| crate::thread::start("famio", *work)) {
        PROCESS.store(0, Ordering::Release); // writers make checkpoints themselves; the next attach tries again
    }
}

/// Whether the thread was started.
pub(in crate::file) fn is_there() -> bool {
    PROCESS.load(Ordering::Acquire) == crate::sys::process_id() && !crate::pmem::TestHooks::current().still
}

/// Starts the thread, if a call wanted it and could not start it.
pub(in crate::file) fn start_if_wanted() {
    if WANTED.load(Ordering::Relaxed) {
        start();
    }
}

/// In a forked child: the thread is the parent's.
pub(in crate::file) fn forget_parents() {
    PROCESS.store(0, Ordering::Release);
}

/// Waits until the thread runs, if it was started: with it, other members notice the end of this process at once.
pub(in crate::file) fn wait_until_there() {
    // A new thread takes memory of libc's, which this thread may have interrupted.
    if crate::thread::handlers::may_be_in_handler() {
        return;
    }
    for _ in 0..STARTS {
        if LIVES.are_kept() || PROCESS.load(Ordering::Acquire) == 0 {
            return;
        }
        let _ = rustix::thread::nanosleep(&STARTING);
    }
}

/// Looks whether the thread has started, and the time between two: a second in all.
const STARTS: u32 = 10_000;
const STARTING: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Runs after each round; returns whether to run again. Set once, by the code that runs this library under a
/// program (`posix`).
pub(in crate::file) static EVERY_ROUND: OnceLock<fn() -> bool> = OnceLock::new();

/// There are other members to watch from now on.
pub(in crate::file) fn watch_members() {
    start();
    wake();
}

/// Runs `task` after every round, if the process has a background.
pub(crate) fn run_every_round(task: fn() -> bool) {
    let _ = EVERY_ROUND.set(task);
}

/// There is something to look at again later.
pub(crate) fn remind() {
    start_if_wanted();
    rouse();
}

/// There is work at once: space is low.
pub(in crate::file) fn wake() {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) != AWAKE {
        let _ = futex::wake(&EVENTS, futex::Flags::PRIVATE, 1);
    }
}

/// There will be work in a quiet moment. One load while the thread is awake.
#[inline]
pub(in crate::file) fn notify() {
    start_if_wanted();
    if ASLEEP.load(Ordering::SeqCst) == DEEP && !undisturbed::put_off(rouse) {
        wake();
    }
}

fn rouse() {
    if ASLEEP.load(Ordering::SeqCst) == DEEP {
        wake();
    }
}

/// What the background waits for on control pages.
#[derive(Default)]
pub(in crate::file) struct Watched {
    /// Requests and hand-overs.
    pub words: Vec<Word>,
    /// Robust futexes of processes that have a session.
    pub holders: Vec<Word>,
    /// Robust futexes of other members that may have left something in a map.
    pub others: Vec<Word>,
}
