//! A few background threads for the whole process, started when there is work and ended after a while without. They
//! block all signals. A forked child starts its own.

use crate::thread::{Guard, Mutex};
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Work that threads can do in parts and in any order. It checks itself whether it is still wanted.
pub(crate) trait Work: Send + Sync {
    /// Does `range` of it. `serial`: from [`Asked`].
    fn work(&self, range: Range<usize>, serial: u32);
}

/// The most threads: they suffice to saturate the memory.
const THREADS_MAX: usize = 4;

/// The most waiting requests: further advice would come too late.
const WAITING_MAX: usize = 256;

/// How long a thread stays without work.
const LINGER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

struct Crew {
    process: u32,
    threads_max: usize,
    state: Mutex<State>,
    /// Counts events; threads sleep while it does not change.
    events: AtomicU32,
}

/// A request.
pub(crate) struct Asked {
    pub work: Arc<dyn Work>,
    pub range: Range<usize>,
    /// Lets the work tell outdated requests.
    pub serial: u32,
}

struct State {
    waiting: VecDeque<Asked>,
    threads: usize,
    asleep: usize,
}

/// This process's. A child replaces it, since a lock in it may have been held at the fork; the old one is never
/// freed.
static CREW: AtomicPtr<Crew> = AtomicPtr::new(null_mut());

/// This process's id.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

fn crew() -> &'static Crew {
    let me = process();
    loop {
        let found = CREW.load(Acquire);
        // SAFETY: null, or leaked below and never freed.
        if let Some(crew) = unsafe { found.as_ref() }
            && crew.process == me
        {
            return crew;
        }
        let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize);
        let new = Box::into_raw(Box::new(Crew {
            process: me,
            // On a single processor a thread would only take turns with its caller.
            threads_max: processors.saturating_sub(1).min(THREADS_MAX),
            state: Mutex::new(State { waiting: VecDeque::with_capacity(WAITING_MAX), threads: 0, asleep: 0 }),
            events: AtomicU32::new(0),
        }));
        if CREW.compare_exchange(found, new, AcqRel, Relaxed).is_err() {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// In a forked child: the threads are the parent's.
pub(crate) fn forget_parents() {
    CREW.store(null_mut(), Release);
}

/// Has up to `parts` threads do it, each with the whole range. Returns false, and does nothing, if too much waits or
/// there are no threads.
pub(crate) fn ask(asked: Asked, parts: usize) -> bool {
    let crew = crew();
    ask_with(crew, crew.state.lock(), asked, parts)
}

/// As [`ask`], without waiting for a lock, since the caller may be a signal handler that has interrupted its holder.
/// False also if another thread asks at this moment.
pub(crate) fn try_ask(asked: Asked, parts: usize) -> bool {
    let crew = crew();
    crew.state.try_lock().is_some_and(|state| ask_with(crew, state, asked, parts))
}

fn ask_with(crew: &'static Crew, mut state: Guard<'_, State>, asked: Asked, parts: usize) -> bool {
    let parts = parts.min(crew.threads_max);
    if parts == 0 || state.waiting.len() + parts > WAITING_MAX {
        return false;
    }
    for _ in 0..parts {
        let Asked { work, range, serial } = &asked;
        state.waiting.push_back(Asked { work: work.clone(), range: range.clone(), serial: *serial });
    }
    let starts = state.waiting.len().saturating_sub(state.asleep).min(crew.threads_max - state.threads);
    let started = (0..starts).take_while(|_| start(crew)).count();
    state.threads += started;
    if state.threads == 0 {
        let refused: Vec<_> = state.waiting.drain(..).collect();
        drop(state);
        drop(refused); // after the lock: its destructor may ask as well
        return false;
    }
    let wake = state.asleep.min(parts) as u32;
    drop(state);
    crew.events.fetch_add(1, SeqCst);
    if wake != 0 {
        let _ = futex::wake(&crew.events, futex::Flags::PRIVATE, wake);
    }
    true
}

fn start(crew: &'static Crew) -> bool {
    crate::thread::start("famio-map", move || serve(crew))
}

fn serve(crew: &Crew) {
    loop {
        let mut state = crew.state.lock();
        if let Some(Asked { work, range, serial }) = state.waiting.pop_front() {
            drop(state);
            work.work(range, serial);
            continue;
        }
        state.asleep += 1;
        let seen = crew.events.load(SeqCst);
        drop(state);
        let slept = futex::wait(&crew.events, futex::Flags::PRIVATE, seen, Some(&LINGER));
        let mut state = crew.state.lock();
        state.asleep -= 1;
        if slept == Err(rustix::io::Errno::TIMEDOUT) && state.waiting.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct Told(std::sync::Mutex<Sender<Range<usize>>>);

    impl Work for Told {
        fn work(&self, range: Range<usize>, _: u32) {
            assert_ne!(crate::sys::block_signals(0) & crate::sys::signal_bit(libc::SIGUSR1), 0, "signals are blocked");
            self.0.lock().unwrap().send(range).unwrap();
        }
    }

    #[test]
    fn work_is_done_by_another_thread() {
        let (tell, told) = channel();
        let work = Arc::new(Told(std::sync::Mutex::new(tell)));
        for i in 0..20 {
            if crew().threads_max == 0 {
                return;
            }
            // Not while other tests have asked for much.
            while !ask(Asked { work: work.clone(), range: i..i + 1, serial: 0 }, 1) {
                std::thread::yield_now();
            }
            assert_eq!(told.recv().unwrap(), i..i + 1);
        }
    }
}
