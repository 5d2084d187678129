//! The background: one thread for the whole process that settles. It sleeps until there is work, and holds nothing while
//! it does.

use super::registry::files;
use crate::sys::{Ended, WORDS_MAX, Word, wait_for_any};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::{Arc, OnceLock, Weak};

/// 0: no thread. Else the process id of its process: a forked child has none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// There is something for the thread, but it could not be started.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Counts the events; the thread sleeps while it does not change.
static EVENTS: AtomicU32 = AtomicU32::new(0);
/// Whether the thread sleeps: `TIMED`, or until the next event.
static ASLEEP: AtomicU32 = AtomicU32::new(AWAKE);
const AWAKE: u32 = 0;
const TIMED: u32 = 1;
const DEEP: u32 = 2;

/// A file that nobody wrote for so long is settled without haste.
pub(super) const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Between two looks at a bell that is to be answered soon.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Between two looks at bells where the kernel can't wait for them.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Between two looks at who has died, where there are too many to wait for.
const CROWDED: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What a file still has for the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing that could be settled now: the next event brings more.
    Nothing,
    /// Something, for a quiet moment.
    ForLater,
    /// Something to go on with at once.
    More,
}

/// Starts the thread, once a process. In a call that may be a signal handler's it only is wanted: until another call, at the
/// latest the next SYNC, writers settle for themselves, and nobody answers at the door.
pub(super) fn start() {
    if crate::pmem::Lab::current().still {
        return;
    }
    let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let seen = OWNER.load(Ordering::Acquire);
    if seen != me && !crate::thread::may_start() {
        WANTED.store(true, Ordering::Relaxed);
        return;
    }
    WANTED.store(false, Ordering::Relaxed);
    if seen == me || OWNER.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        notify();
        return;
    }
    if !crate::thread::start("famio", work) {
        OWNER.store(0, Ordering::Release); // writers settle for themselves; the next attach tries again
    }
}

/// Waits until the thread is there, if it was started: with it, the end of this process is seen at once.
pub(super) fn wait_until_there() {
    // Its beginning takes memory of libc's, which this thread may have interrupted.
    if crate::thread::handlers::may_be_in_handler() {
        return;
    }
    for _ in 0..STARTS {
        if crate::index::LIVES.are_kept() || OWNER.load(Ordering::Acquire) == 0 {
            return;
        }
        let _ = rustix::thread::nanosleep(&STARTING);
    }
}

/// Looks at whether the thread has started, and the time between two: a second in all.
const STARTS: u32 = 10_000;
const STARTING: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// What is done after each round besides settling; gives whether it is to be done again. Set once, by who uses this library
/// under a program (`posix`).
static ALSO: OnceLock<fn() -> bool> = OnceLock::new();

/// There are others to be watched from now on.
pub(super) fn look() {
    start();
    wake();
}

/// `also` is done after every round, if the process has a background.
pub(crate) fn do_also(also: fn() -> bool) {
    let _ = ALSO.set(also);
}

/// There is something to be looked at again in a while.
pub(crate) fn remind() {
    notify();
}

/// There is work at once: space is low.
pub(super) fn wake() {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) != AWAKE {
        let _ = futex::wake(&EVENTS, futex::Flags::PRIVATE, 1);
    }
}

/// There will be work at a quiet moment. One load while the thread is about.
#[inline]
pub(super) fn notify() {
    if WANTED.load(Ordering::Relaxed) {
        start();
    }
    if ASLEEP.load(Ordering::SeqCst) == DEEP {
        wake();
    }
}

/// Until the next event, or until something happens at the door of a file.
fn sleep(seen: u32, limit: Option<&Timespec>) {
    let mut watched = Watched::default();
    if !files().iter().all(|file| file.watch_door(&mut watched)) {
        return;
    }
    let Watched { mut words, mut holders, mut others } = watched;
    if words.is_empty() && holders.is_empty() && others.is_empty() {
        let _ = futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, limit);
        return;
    }
    words.push(Word::private(&EVENTS, seen));
    let lives = words.len();
    words.append(&mut holders);
    let mut limit = limit;
    if words.len() + others.len() <= WORDS_MAX {
        words.append(&mut others);
    } else {
        limit = Some(limit.map_or(&CROWDED, |limit| limit.min(&CROWDED)));
    }
    // The kernel takes so many; it knows the call since 5.16.
    let ended = if words.len() > WORDS_MAX { Ended::Unknown } else { wait_for_any(&words, limit) };
    match ended {
        // Of those who watch a life the kernel wakes one, which may have left that door by now.
        Ended::Woken(index) if index >= lives => words[index].wake(),
        Ended::Woken(_) | Ended::Otherwise => {}
        Ended::Unknown => {
            let limit = limit.map_or(&LOOK, |limit| limit.min(&LOOK));
            let _ = futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, Some(limit));
        }
    }
}

/// What the background waits for at doors.
#[derive(Default)]
pub(super) struct Watched {
    /// Bells, and turns that are given.
    pub words: Vec<Word>,
    /// Lives of those who have a session.
    pub holders: Vec<Word>,
    /// Lives of others who may have left something in a map.
    pub others: Vec<Word>,
}

fn work() {
    crate::index::LIVES.keep();
    // Of sessions that had begun where it could not be started.
    for file in files().clone() {
        if file.state.load(Ordering::Acquire) == super::atomic::ATTACHED {
            file.be_seen();
        }
    }
    let (mut pending, mut rung) = (false, false);
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        ASLEEP.store(if pending { TIMED } else { DEEP }, Ordering::SeqCst);
        sleep(seen, if rung { Some(&SOON) } else { pending.then_some(&IDLE) });
        ASLEEP.store(AWAKE, Ordering::SeqCst);
        // Weak: a file that is closed meanwhile is to give its maps back at once, and not when this round is over.
        let all: Vec<Weak<super::AtomicFile>> = files().iter().map(Arc::downgrade).collect();
        (pending, rung) = (false, false);
        for file in all.iter().filter_map(Weak::upgrade) {
            rung |= file.mind_door();
            loop {
                match file.settle_some() {
                    // What can't be settled now stays in the journal, where it is safe.
                    Err(_) | Ok(Left::Nothing) => break,
                    Ok(Left::ForLater) => {
                        pending = true;
                        break;
                    }
                    Ok(Left::More) => {}
                }
            }
        }
        pending |= ALSO.get().is_some_and(|also| also());
    }
}
