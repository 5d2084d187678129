//! The thread that takes leases and answers their breaks. It sleeps in the kernel until a signal comes, which is sent to
//! this thread alone and no handler sees. It ends when no file has had a lease for a while.

use crate::file::base::background_wakeup::start_if_wanted;
use crate::file::base::lease_wakeup::{EVENTS, PROCESS, SIGNAL, TID, WATCHED, pid};
use crate::file::registry::files;
use crate::sys::{signal_bit, syscall};
use core::ptr::null;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

/// How long it stays without a lease.
static LINGER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The thread.
pub(in crate::file) fn work() {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let me = pid();
    TID.store(tid as u32, Ordering::SeqCst);
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        start_if_wanted();
        let all: Vec<_> = files().values().cloned().collect();
        let busy = all.iter().fold(false, |busy, file| file.serve_lease(tid) | busy);
        drop(all);
        let busy = busy || WATCHED.load(Ordering::SeqCst) != 0;
        if wait(busy) || busy {
            continue;
        }
        PROCESS.store(0, Ordering::SeqCst);
        // A thread that made a request after the look above may have seen this thread as still running.
        let requests_seen = EVENTS.load(Ordering::SeqCst) == seen && WATCHED.load(Ordering::SeqCst) == 0;
        if requests_seen || PROCESS.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        TID.store(tid as u32, Ordering::SeqCst);
    }
}

/// Sleeps until the signal comes, or, if there is no lease to watch, for a while. Returns whether it came.
fn wait(watching: bool) -> bool {
    let mask = signal_bit(SIGNAL);
    let time = if watching { null() } else { &raw const LINGER };
    let arguments = [&raw const mask as usize, 0, time as usize, size_of::<u64>(), 0, 0];
    // SAFETY: mask and time are alive during the call; nothing is written.
    unsafe { syscall(libc::SYS_rt_sigtimedwait, arguments) >= 0 }
}
