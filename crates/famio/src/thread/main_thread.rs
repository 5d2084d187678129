//! The end of the main thread. If a program's `main` calls `pthread_exit`, libc ends the process with its last thread. The
//! library's threads never end: so one of them ends the process when the program has no other.

use super::count::{has_ours, is_programs_only};
use crate::kernel::{block_signals, restore_signals};
use core::ffi::c_void;
use core::ptr::without_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::thread::gettid;
use rustix::time::Timespec;
use std::sync::OnceLock;

/// The key whose destructor libc calls as the main thread ends; not if the process ends by `exit`. `None`: there is none.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
/// libc calls destructors again, up to four times in all, if one sets its value. The program's come first.
const LAST_ROUND: usize = 3;
/// Between two looks at the program's threads.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The signals that the main thread had blocked.
static MASK: AtomicU64 = AtomicU64::new(0);
/// The main thread has ended.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// A thread of the library is to end the process.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Starts a thread of the library that runs [`end_process_when_alone`].
type Start = fn() -> bool;
static START: OnceLock<Start> = OnceLock::new();

/// On the main thread: from now on its end is seen. On another one nothing. `start`: for that thread.
pub(crate) fn watch(start: Start) {
    let _ = START.set(start);
    if rustix::process::getpid() != gettid() {
        return;
    }
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is ours; the library stays loaded.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) } == 0).then_some(key)
    });
    key.iter().for_each(|&key| set(key, 1));
}

fn set(key: libc::pthread_key_t, round: usize) {
    // SAFETY: a key of ours; the value is only compared.
    unsafe { libc::pthread_setspecific(key, without_provenance_mut::<c_void>(round)) };
}

unsafe extern "C" fn at_end(round: *mut c_void) {
    if round.addr() < LAST_ROUND {
        KEY.get().copied().flatten().into_iter().for_each(|key| set(key, round.addr() + 1));
        return;
    }
    MASK.store(block_signals(0), Ordering::Relaxed);
    HAS_ENDED.store(true, Ordering::SeqCst);
    // A thread that waits for this one (`pthread_join`) goes on, unless no other can end the process.
    if has_ours() && !end_with_the_programs_threads() {
        end_process_when_alone();
    }
}

/// The library has one more thread, or looks again.
pub(crate) fn has_started() {
    if HAS_ENDED.load(Ordering::SeqCst) {
        end_with_the_programs_threads();
    }
}

/// A thread of the library ends the process with the last of the program's. False: it cannot be started.
fn end_with_the_programs_threads() -> bool {
    if IS_WATCHED.swap(true, Ordering::SeqCst) {
        return true;
    }
    let is_started = START.get().is_some_and(|start| start());
    if !is_started {
        IS_WATCHED.store(false, Ordering::SeqCst);
    }
    is_started
}

/// Ends the process when it has no thread of the program's but a main thread that has ended. Without /proc, the threads
/// cannot be counted.
pub(super) fn end_process_when_alone() {
    while rustix::fs::stat(c"/proc/self/task").is_ok() {
        let _ = rustix::thread::nanosleep(&PAUSE); // first: the main thread may have other destructors to run
        if is_programs_only() {
            restore_signals(MASK.load(Ordering::Relaxed));
            // SAFETY: as libc does when the last thread ends.
            unsafe { libc::exit(0) };
        }
    }
}

/// In a forked child: its only thread is its main thread.
pub(crate) fn begin_child() {
    HAS_ENDED.store(false, Ordering::SeqCst);
    IS_WATCHED.store(false, Ordering::SeqCst);
}
