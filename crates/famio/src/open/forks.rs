//! A forked child has its parent's files in its memory, and must not use them.

use std::sync::Once;

/// Ensures, once, that forked children are detected.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    // SAFETY: the functions are there as long as the process.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(parent), Some(child));
    });
}

extern "C" fn before() {
    let thread = crate::thread::current();
    if thread.locks_held.get() != 0 || thread.posix_locks.get() != 0 {
        return; // from a signal handler that interrupted the library
    }
    crate::file::end_deferred_closes(None);
    crate::file::replace_nameless_control_files();
    crate::file::bar_leases();
    crate::file::shadow::before_fork();
    crate::file::remember_for_child();
}

extern "C" fn parent() {
    crate::file::forget_for_child();
}

extern "C" fn child() {
    let thread = crate::thread::current();
    thread.locks_held.set(0);
    thread.posix_locks.set(0);
    crate::file::disown_all();
}
