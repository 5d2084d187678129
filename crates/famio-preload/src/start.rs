//! The library's constructor and destructor.

use crate::entry::{FCNTL, FORK, VFORK};
use crate::first_exit_handler::on_exit;
use crate::hooks::NEXT_NAMES;
use crate::next::find;
use crate::programs::FEXECVE;
use crate::signals::SIGACTION;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use famio::posix::{self, handlers, process};

/// libc's functions behind the fronts; null until the constructor has run; until then the kernel is called directly.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static famio_next: [AtomicPtr<c_void>; NEXT_NAMES.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; NEXT_NAMES.len()];

/// libc's `pthread_setcanceltype`, for the C shim. Looked up beforehand, since a thread may be cancelled in any
/// function that would look it up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static famio_setcanceltype: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = end;

/// For fronts that are called before the constructor. Returns a function that fails with `ENOSYS` if libc has none.
#[unsafe(no_mangle)]
extern "C" fn famio_find_next(index: usize) -> *const c_void {
    extern "C" fn none() -> isize {
        crate::outcome::set_errno(-(libc::ENOSYS as isize));
        -1
    }
    let found = find(NEXT_NAMES[index]);
    if found.is_null() { none as *const c_void } else { found }
}

unsafe extern "C" {
    fn at_quick_exit(function: extern "C" fn()) -> i32;
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn constructor() {
    for (name, next) in NEXT_NAMES.iter().zip(&famio_next) {
        next.store(find(name), Ordering::Relaxed);
    }
    for next in [&SIGACTION, &FCNTL, &VFORK, &FORK, &FEXECVE] {
        next.find();
    }
    famio_setcanceltype.store(find(c"pthread_setcanceltype"), Ordering::Relaxed);
    posix::allow_twins(); // before anything is opened
    posix::all_calls_are_seen();
    process::start();
    if process::is_on() && famio::posix::nv::claim_hooks() {
        handlers::begin();
        famio::posix::begin_limits();
        process::watch_main_thread();
        crate::outcome::note(process::receive_descriptors);
        let is_in_run = famio::posix::run_record::is_joined();
        crate::entry::famio_in_run.store(is_in_run, Ordering::Relaxed);
        crate::first_exit_handler::begin(is_in_run);
        // SAFETY: the functions stay loaded: the library is linked with -z nodelete.
        unsafe {
            on_exit(end_with, ptr::null_mut());
            at_quick_exit(end_quickly);
            pthread_atfork(Some(fork), Some(parent), Some(child));
        }
    }
}

extern "C" fn end() {
    // Buffered data of streams must go through the library while it works.
    crate::outcome::plain(crate::stdio::flush_all);
    end_quickly();
}

extern "C" fn end_with(status: i32, _: *mut c_void) {
    end();
    let instead = process::end_status(status);
    if instead != status {
        // In glibc, the remaining exit handlers run, and the last status counts.
        // SAFETY: ends the process.
        unsafe { libc::exit(instead) };
    }
}

extern "C" fn end_quickly() {
    crate::outcome::note(process::end);
}

extern "C" fn fork() {
    crate::outcome::note(process::before_fork);
}

extern "C" fn parent() {
    crate::outcome::note(process::after_fork_in_parent);
}

extern "C" fn child() {
    crate::outcome::note(process::after_fork_in_child);
    if process::is_on() {
        process::watch_main_thread();
    }
}
