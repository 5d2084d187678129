//! How the lease thread is started, and told that there is something to look at.

use crate::sys::syscall;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::time::Timespec;
use std::sync::OnceLock;

/// The signal for which the thread waits. Not `SIGIO`, the kernel's default: a thread that waits for a signal also takes
/// what was sent to the process, and the program may use that one.
pub(in crate::file) const SIGNAL: i32 = libc::SIGSTKFLT;

/// What the thread does. Set before any file is open.
static WORK: OnceLock<fn()> = OnceLock::new();

/// To be called before any file is open.
pub(in crate::file) fn set_work(work: fn()) {
    let _ = WORK.set(work);
}

/// The id of the process whose thread it is; 0: there is no thread. A forked child has none.
pub(in crate::file) static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The thread's id; 0: it has not begun yet.
pub(in crate::file) static TID: AtomicU32 = AtomicU32::new(0);
/// Counts requests, so that the thread does not end with one unheard.
pub(in crate::file) static EVENTS: AtomicU32 = AtomicU32::new(0);

/// The number of growing files: the thread does not end while there are any.
pub(in crate::file) static WATCHED: AtomicU32 = AtomicU32::new(0);
/// The sleep between two looks of a thread that waits for the lease thread to begin, and the number of looks.
const COMING: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
const LOOKS: u32 = 500;

pub(in crate::file) fn pid() -> u32 {
    crate::sys::process_id()
}

/// Tells the thread to look; starts it if there is none. Returns whether there is one now.
pub(in crate::file) fn wake() -> bool {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    let me = pid();
    let seen = PROCESS.load(Ordering::SeqCst);
    if seen == me {
        let tid = TID.load(Ordering::SeqCst);
        if tid != 0 {
            // SAFETY: no memory is involved. The kernel refuses an id of a thread that has ended, or of another
            // process.
            unsafe { syscall(libc::SYS_tgkill, [me as usize, tid as usize, SIGNAL as usize, 0, 0, 0]) };
        }
        return true; // a thread that has not begun yet looks at everything first
    }
    if !crate::thread::may_start() {
        return false;
    }
    if PROCESS.compare_exchange(seen, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return true;
    }
    TID.store(0, Ordering::SeqCst);
    let started = WORK.get().is_some_and(|work| crate::thread::start("famio-lease", *work));
    if !started {
        PROCESS.store(0, Ordering::SeqCst);
    }
    started
}

/// The lease thread, as it was found during a call.
#[derive(Clone, Copy)]
pub(in crate::file) struct Watcher {
    process: u32,
    pub tid: i32,
}

impl Watcher {
    fn find() -> Option<Self> {
        let process = pid();
        let tid = TID.load(Ordering::SeqCst) as i32;
        (PROCESS.load(Ordering::SeqCst) == process && tid != 0).then_some(Self { process, tid })
    }

    /// Whether it still is the watching thread.
    pub fn is_there(self) -> bool {
        TID.load(Ordering::SeqCst) as i32 == self.tid && PROCESS.load(Ordering::SeqCst) == self.process
    }
}

/// The thread has one more file to watch, and runs. `None`: it cannot be started.
pub(in crate::file) fn watch() -> Option<Watcher> {
    WATCHED.fetch_add(1, Ordering::SeqCst);
    if let Some(watcher) = Watcher::find() {
        return Some(watcher);
    }
    if wake() {
        for _ in 0..LOOKS {
            if let Some(watcher) = Watcher::find() {
                return Some(watcher);
            }
            let _ = rustix::thread::nanosleep(&COMING);
        }
    }
    unwatch();
    None
}

/// The thread has one file less to watch.
pub(in crate::file) fn unwatch() {
    let _ = WATCHED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |watched| watched.checked_sub(1));
}

/// In a forked child: the thread is the parent's.
pub(in crate::file) fn forget_parents() {
    PROCESS.store(0, Ordering::SeqCst);
    TID.store(0, Ordering::SeqCst);
    WATCHED.store(0, Ordering::SeqCst);
}
