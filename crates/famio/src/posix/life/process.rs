//! The life of the process as the hooks see it: start, fork, exec, exit.

use crate::file;
use crate::name_prefilter::NamePrefilter;
use crate::posix::descriptors::verify::is_still;
use crate::posix::descriptors::{inherit, table};
use crate::posix::run::{report, run_record};
use crate::posix::runtime::say::error_notice;
pub use crate::posix::runtime::state::is_on;
use crate::posix::runtime::state::{
    GENERATION, OFF, ON, OVER, PID, PLAIN_GENERATION, STARTING, STATE, UNINIT, do_in_child, enter_child, generation,
    in_vfork_child, pid, watch_forks,
};
use crate::posix::selection::config;
use crate::posix::selection::config::Config;
use crate::posix::selection::current::{publish_config, published_config};
use crate::posix::selection::{current, environment};
use crate::posix::{Ret, raw};
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::os::fd::RawFd;

static STARTER: AtomicUsize = AtomicUsize::new(0);

/// The configuration, while the library is on. Starts the library at the first call.
#[inline]
pub(in crate::posix) fn config() -> Option<&'static Config> {
    if STATE.load(Ordering::Acquire) == ON && generation() == 0 {
        enter_child();
    }
    config_to_look()
}

/// As `config`, without checking for a forked child that the library has not noticed yet: for calls that change
/// nothing.
#[inline]
pub(in crate::posix) fn config_to_look() -> Option<&'static Config> {
    match STATE.load(Ordering::Acquire) {
        ON => published_config(),
        OFF | OVER => None,
        _ => start_late(),
    }
}

#[cold]
fn start_late() -> Option<&'static Config> {
    // Before libc has set itself up there is no environment, and files are not opened by the program yet.
    if !environment::is_there() {
        return None;
    }
    start();
    match STATE.load(Ordering::Acquire) {
        ON => published_config(),
        _ => None,
    }
}

/// Reads the configuration from the environment, once: from the constructor, or from the first call that needs it. A
/// mistake in the configuration ends the process with status 125, since the program would run unprotected.
pub fn start() {
    // SAFETY: no arguments.
    let me = unsafe { raw!(SYS_gettid) } as usize;
    if STATE.compare_exchange(UNINIT, STARTING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // If another thread is reading it, wait. If this thread is, its allocator has opened a file: do not wait for
        // ourselves.
        while STATE.load(Ordering::Acquire) == STARTING && STARTER.load(Ordering::Acquire) != me {
            // SAFETY: no arguments.
            unsafe { raw!(SYS_sched_yield) };
        }
        return;
    }
    STARTER.store(me, Ordering::Release);
    sys::find_standard_error(); // before any message
    match config::from_environment() {
        Ok(Some(config)) => {
            PID.store(pid(), Ordering::Relaxed);
            sys::internal::enlarge_table();
            run_record::join();
            begin(config);
        }
        Ok(None) => STATE.store(OFF, Ordering::Release),
        Err(message) => {
            sys::notice(&message);
            // SAFETY: ends the process.
            unsafe { raw!(SYS_exit_group, 125) };
        }
    }
}

/// Starts with this configuration instead of the environment's, or switches to it: for a program that calls this
/// module itself. Files that are already open keep their settings.
pub fn start_with(config: Config) {
    let begins = |from: u8| STATE.compare_exchange(from, STARTING, Ordering::AcqRel, Ordering::Acquire);
    match begins(UNINIT).or_else(|_| begins(OFF)) {
        Ok(_) => {
            // SAFETY: no arguments.
            STARTER.store(unsafe { raw!(SYS_gettid) } as usize, Ordering::Release);
            begin(config);
        }
        // A concurrent reader may combine the old prefilter with the new globs, so the prefilter must accept every
        // name.
        Err(ON) => publish_config(Box::leak(Box::new(config)), &NamePrefilter::any()),
        Err(_) => {}
    }
}

fn begin(config: Config) {
    PID.store(pid(), Ordering::Relaxed);
    sys::find_standard_error();
    watch_forks();
    do_in_child(forget_parent);
    table::adopt_by(inherit::adopt);
    crate::posix::runtime::file_size::read();
    crate::file::background_wakeup::run_every_round(crate::posix::descriptors::spare::sweep);
    let config = Box::leak(Box::new(config));
    publish_config(config, &config.globs.name_prefilter);
    STATE.store(ON, Ordering::Release);
}

/// For `pthread_atfork`, before the fork. A child shares the open descriptions, and so leases and positions.
pub fn before_fork() {
    tell_of_standard_error();
    if may_share() {
        inherit::demote_out_of_reach("a fork after");
        file::shadow::before_fork();
        before_spawn();
        file::remember_for_child();
    }
}

/// For `pthread_atfork`, in the parent.
pub fn after_fork_in_parent() {
    if crate::thread::current().inheritance.get() != 0 {
        file::forget_for_child();
    }
}

/// Before `vfork` or `posix_spawn` starts another program: as [`before_fork`], except for maps, which such a child
/// does not have.
pub fn before_spawn() {
    tell_of_standard_error();
    if may_share() {
        file::end_deferred_closes(None);
        file::replace_nameless_control_files();
        file::bar_leases();
        inherit::share_all();
    }
}

/// Before the program lists or removes a folder: nothing of the library's is to lie there beside a file that the program
/// has closed.
pub fn make_deferred_closes() {
    if file::any_deferred_close() && may_share() {
        file::end_deferred_closes(None);
    }
}

/// Not in a `vfork` child, which sets up standard error for the next program.
pub(in crate::posix) fn tell_of_standard_error() {
    if STATE.load(Ordering::Acquire) == ON && !in_vfork_child() {
        sys::tell_of_standard_error();
    }
}

fn may_share() -> bool {
    STATE.load(Ordering::Acquire) == ON
        && table::any()
        && crate::posix::call::lock::not_reentered().is_ok()
        && !in_vfork_child()
}

/// On the main thread: the process ends with the last thread of the program.
pub fn watch_main_thread() {
    crate::thread::main_thread::watch(crate::thread::end_with_the_programs_threads);
}

/// After the start: descriptors that were inherited through `exec` become atomic files'.
pub fn receive_descriptors() {
    if STATE.load(Ordering::Acquire) == ON
        && let Some(config) = config()
    {
        inherit::receive_all(config);
    }
}

/// After a descriptor was received through a socket. A descriptor of an atomic file that cannot be opened as one here
/// is closed.
pub fn receive_descriptor(fd: std::os::fd::RawFd) {
    if fd >= 0 && crate::posix::call::lock::not_reentered().is_ok() && !in_vfork_child() {
        table::fresh(fd as isize);
        if let Some(config) = config() {
            let _ = inherit::receive(config, fd); // reported, and closed
        }
    }
}

/// For `pthread_atfork`, in the child.
pub fn after_fork_in_child() {
    if STATE.load(Ordering::Acquire) == ON {
        if pid() != PID.load(Ordering::Relaxed) && ptr::eq(GENERATION.load(Ordering::Relaxed), &PLAIN_GENERATION) {
            PLAIN_GENERATION.store(0, Ordering::Relaxed);
        }
        if generation() == 0 {
            enter_child();
        }
    }
}

/// A forked child takes its own identity: what the parent opened stays the parent's.
fn forget_parent() {
    crate::posix::runtime::say::forget();
    crate::thread::current().posix_locks.set(0);
    crate::thread::current().locks_held.set(0);
    crate::thread::handlers::forget_postponed();
    crate::posix::runtime::handlers::forget();
    crate::posix::descriptors::spare::forget();
    crate::posix::runtime::texts::enter_child();
    inherit::forget();
    crate::posix::descriptors::rights::forget();
    file::disown_all();
    [&IS_EXITING, &HAS_REPORTED].iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
    run_record::enter();
}

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// At a normal exit, `_exit` or `quick_exit`: commits, checkpoints and closes every file clean, and demotes it for
/// threads that still run. Then reports what the run has left unprotected.
pub fn end() {
    if STATE.load(Ordering::Acquire) != ON || in_vfork_child() {
        return;
    }
    let config = published_config();
    end_files();
    report(config);
}

/// Whether the program's exit handlers run.
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// In the first exit handler.
pub fn begin_exit() {
    IS_EXITING.store(true, Ordering::Relaxed);
}

/// The program is about to close standard error. If it does so in an exit handler, as coreutils do, the report comes
/// now.
pub fn report_before_close() {
    let is_exiting = IS_EXITING.load(Ordering::Relaxed) && STATE.load(Ordering::Acquire) == ON && !in_vfork_child();
    if is_exiting && report(published_config()) && run_record::may_say() {
        sys::notice("--require: an exit status of 0 becomes 125");
    }
}

/// `close(2)`, called by the program.
pub fn close(fd: RawFd) -> Ret {
    if fd == libc::STDERR_FILENO {
        report_before_close();
    }
    crate::posix::close(fd)
}

/// The report, once. Returns whether it makes the run fail.
fn report(config: Option<&Config>) -> bool {
    let fails = !HAS_REPORTED.swap(true, Ordering::Relaxed) && config.is_some_and(report::at_end);
    HAS_FAILED.fetch_or(fails, Ordering::Relaxed);
    fails
}

/// The exit status to use instead of `status`: with `require`, a run that was not fully protected does not succeed.
pub fn end_status(status: i32) -> i32 {
    if status & 0xFF == 0 && HAS_FAILED.load(Ordering::Relaxed) {
        if run_record::may_say() {
            sys::notice("--require: exit status 125 instead of 0");
        }
        return 125;
    }
    status
}

/// From now on, nothing is atomic.
fn withdraw_config() {
    STATE.store(OVER, Ordering::Release);
    current::withdraw_config();
}

fn end_files() {
    if !table::any() {
        crate::posix::descriptors::rights::tidy();
        return withdraw_config();
    }
    if crate::posix::call::lock::not_reentered().is_err() {
        // `_exit` in a signal handler that interrupted a locked section has the effect of a kill: back to the last
        // SYNC.
        error_notice("the process ends inside a call on an atomic file; what was written since its last SYNC is gone");
        return;
    }
    withdraw_config();
    close_all();
    // Threads that still run find their files demoted. What they wrote in between is committed by the second round.
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_ours() && is_still(fd, handle) {
            handle.demote_at_end(fd);
        } else if handle.is_ours() {
            handle.note_demoted(); // the program has given the number to another file, unseen
        }
    });
    close_all();
    file::remove_demotion_notes();
    file::release_all();
    crate::posix::descriptors::rights::tidy();
}

pub(in crate::posix) fn close_all() {
    if let Err(error) = file::close_all() {
        error_notice(&format!("{error}; what was written since its last SYNC may be gone"));
    }
}
