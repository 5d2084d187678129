//! The thread that takes leases and answers their breaks. It sleeps in the kernel until a signal comes, which only
//! this thread gets and no handler sees. It ends when no file has had a lease for a while.

use crate::file::registry::files;
use crate::sys::{signal_bit, syscall};
use core::ptr::null;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::time::Timespec;

/// 0: no thread. Otherwise the process id of its process: a forked child has none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The thread's id; 0: it has not begun yet.
static TID: AtomicU32 = AtomicU32::new(0);
/// Counts requests, so that the thread does not end with one unheard.
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// The number of growing files: the thread does not end while there are any.
static WATCHED: AtomicU32 = AtomicU32::new(0);
/// The sleep between two looks of a thread that waits for the lease thread to begin, and the number of looks.
const COMING: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
const LOOKS: u32 = 500;

/// How long it stays without a lease.
static LINGER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

fn pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Tells the thread to look; starts it if there is none. Returns whether there is one now.
pub(in crate::file) fn wake() -> bool {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    let me = pid();
    let seen = OWNER.load(Ordering::SeqCst);
    if seen == me {
        let tid = TID.load(Ordering::SeqCst);
        if tid != 0 {
            // SAFETY: no memory is involved. The kernel refuses an id of a thread that has ended, or of another
            // process.
            unsafe { syscall(libc::SYS_tgkill, [me as usize, tid as usize, libc::SIGIO as usize, 0, 0, 0]) };
        }
        return true; // a thread that has not begun yet looks at everything first
    }
    if !crate::thread::may_start() {
        return false;
    }
    if OWNER.compare_exchange(seen, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return true;
    }
    TID.store(0, Ordering::SeqCst);
    let started = crate::thread::start("famio-lease", work);
    if !started {
        OWNER.store(0, Ordering::SeqCst);
    }
    started
}

/// The thread has one more file to watch, and runs. Its id; `None`: it cannot be started.
pub(super) fn watch() -> Option<i32> {
    WATCHED.fetch_add(1, Ordering::SeqCst);
    let there = || {
        let is_ours = OWNER.load(Ordering::SeqCst) == pid();
        Some(TID.load(Ordering::SeqCst) as i32).filter(|&tid| is_ours && tid != 0)
    };
    if let Some(tid) = there() {
        return Some(tid);
    }
    if wake() {
        for _ in 0..LOOKS {
            if let Some(tid) = there() {
                return Some(tid);
            }
            let _ = rustix::thread::nanosleep(&COMING);
        }
    }
    unwatch();
    None
}

/// Whether this is the watching thread now.
pub(super) fn is_there(tid: i32) -> bool {
    TID.load(Ordering::SeqCst) as i32 == tid && OWNER.load(Ordering::SeqCst) == pid()
}

/// The thread has one file less to watch.
pub(super) fn unwatch() {
    let _ = WATCHED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |watched| watched.checked_sub(1));
}

/// In a forked child: the thread is the parent's.
pub(in crate::file) fn forget_parents() {
    OWNER.store(0, Ordering::SeqCst);
    TID.store(0, Ordering::SeqCst);
    WATCHED.store(0, Ordering::SeqCst);
}

fn work() {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let me = pid();
    TID.store(tid as u32, Ordering::SeqCst);
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        crate::file::background::start_if_wanted();
        let all: Vec<_> = files().values().cloned().collect();
        let busy = all.iter().fold(false, |busy, file| file.serve_lease(tid) | busy);
        drop(all);
        let busy = busy || WATCHED.load(Ordering::SeqCst) != 0;
        if wait(busy) || busy {
            continue;
        }
        OWNER.store(0, Ordering::SeqCst);
        // A thread that made a request after the look above may have found this one still there.
        let heard = EVENTS.load(Ordering::SeqCst) == seen && WATCHED.load(Ordering::SeqCst) == 0;
        if heard || OWNER.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        TID.store(tid as u32, Ordering::SeqCst);
    }
}

/// Sleeps until the signal comes, or, if there is no lease to watch, for a while. Returns whether it came.
fn wait(watching: bool) -> bool {
    let mask = signal_bit(libc::SIGIO);
    let time = if watching { null() } else { &raw const LINGER };
    let arguments = [&raw const mask as usize, 0, time as usize, size_of::<u64>(), 0, 0];
    // SAFETY: mask and time are alive during the call; nothing is written.
    unsafe { syscall(libc::SYS_rt_sigtimedwait, arguments) >= 0 }
}
