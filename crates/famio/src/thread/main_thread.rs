//! The end of the main thread. If a program's `main` calls `pthread_exit`, libc ends the process with its last thread. The
//! library's threads never end: so the main thread stays, as its last step, and ends the process when all others are the
//! library's.

use super::count::is_programs_only;
use core::ffi::c_void;
use core::ptr::without_provenance_mut;
use rustix::thread::gettid;
use rustix::time::Timespec;
use std::sync::OnceLock;

/// The key whose destructor libc calls as the main thread ends; not if the process ends by `exit`. `None`: there is none.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
/// libc calls destructors again, up to four times in all, if one sets its value. The program's come first.
const LAST_ROUND: usize = 3;
/// Between two looks at the program's other threads.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// On the main thread: from now on its end is seen. On another one nothing.
pub(crate) fn watch() {
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
    // Without /proc, the threads cannot be counted.
    while rustix::fs::stat(c"/proc/self/task").is_ok() {
        if is_programs_only() {
            // SAFETY: as libc does when the last thread ends.
            unsafe { libc::exit(0) };
        }
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
}
