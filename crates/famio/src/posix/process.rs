//! The life of the process as the hooks see it: start, fork, exec, exit.

use super::config::{self, Config};
use super::{inherit, raw, report, run_record, table};
use crate::edges::Edges;
use crate::file;
use crate::near::NEAR;
use crate::sys;
use crate::sys::log::Level;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::ffi::CStr;

const UNINIT: u8 = 0;
const STARTING: u8 = 1;
/// Files that match the configuration are atomic.
const ON: u8 = 2;
/// Nothing is atomic: no configuration.
const OFF: u8 = 3;
/// Nothing is atomic any more: the process is ending.
const OVER: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(UNINIT);
static STARTER: AtomicUsize = AtomicUsize::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
/// The latest fork generation of this process or its ancestors.
static LATEST: AtomicU32 = AtomicU32::new(1);
/// Used instead of [`GENERATION`] before the start, and on kernels that cannot wipe pages at fork.
static PLAIN_GENERATION: AtomicU32 = AtomicU32::new(1);
/// A word on a page that the kernel zeroes in a forked child, however it was forked.
static GENERATION: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const PLAIN_GENERATION).cast_mut());

/// The fork generation; zero in a child that the library has not noticed yet.
#[inline]
pub(super) fn generation() -> u32 {
    // SAFETY: the pointer is to a static or to a page that is never unmapped.
    unsafe { &*GENERATION.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
}

pub(super) fn pid() -> u32 {
    // SAFETY: no arguments.
    (unsafe { raw!(SYS_getpid) }) as u32
}

/// The configuration, while the library is on. Starts the library at the first call.
#[inline]
pub(super) fn config() -> Option<&'static Config> {
    if STATE.load(Ordering::Acquire) == ON && generation() == 0 {
        enter_child();
    }
    config_to_look()
}

/// As [`config`], without checking for a forked child that the library has not noticed yet: for calls that change
/// nothing.
#[inline]
pub(super) fn config_to_look() -> Option<&'static Config> {
    match STATE.load(Ordering::Acquire) {
        ON => config_nearby(),
        OFF | OVER => None,
        _ => start_late(),
    }
}

/// As [`config_to_look`], without starting the library.
#[inline]
pub(super) fn config_nearby() -> Option<&'static Config> {
    // SAFETY: null, or put there by `put_nearby`, which never frees one.
    unsafe { NEAR.config.load(Ordering::Acquire).cast::<Config>().as_ref() }
}

/// Publishes a configuration. A reader may still use the previous one, so that is never freed. `edges`: its name
/// prefilter.
fn put_nearby(config: &'static Config, edges: &Edges) {
    NEAR.edges.set(edges);
    NEAR.config.store(ptr::from_ref(config).cast_mut().cast(), Ordering::Release);
}

/// From now on, nothing is atomic.
fn put_away() {
    STATE.store(OVER, Ordering::Release);
    NEAR.config.store(ptr::null_mut(), Ordering::Release);
}

#[cold]
fn start_late() -> Option<&'static Config> {
    // Before libc has set itself up there is no environment, and files are not opened by the program yet.
    if !config::environment_is_there() {
        return None;
    }
    start();
    match STATE.load(Ordering::Acquire) {
        ON => config_nearby(),
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
        Err(ON) => put_nearby(Box::leak(Box::new(config)), &Edges::any()),
        Err(_) => {}
    }
}

fn begin(config: Config) {
    PID.store(pid(), Ordering::Relaxed);
    sys::find_standard_error();
    watch_forks();
    super::limits::read();
    crate::file::background::do_also(super::spare::sweep);
    let config = Box::leak(Box::new(config));
    put_nearby(config, &config.globs.edges);
    STATE.store(ON, Ordering::Release);
}

fn watch_forks() {
    const SIZE: usize = 4096;
    // SAFETY: a new anonymous mapping of our own; its first word is then used as an atomic.
    unsafe {
        let page = raw!(
            SYS_mmap,
            0,
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            usize::MAX,
            0
        );
        if (-4095..0).contains(&page) {
            return;
        }
        if raw!(SYS_madvise, page, SIZE, libc::MADV_WIPEONFORK) != 0 {
            raw!(SYS_munmap, page, SIZE);
            return;
        }
        let word = page as *mut AtomicU32;
        (*word).store(LATEST.load(Ordering::Relaxed), Ordering::Relaxed);
        GENERATION.store(word, Ordering::Release);
    }
}

/// For `pthread_atfork`, before the fork. A child shares the open descriptions, and so leases and positions.
pub fn before_fork() {
    tell_of_standard_error();
    if may_share() {
        inherit::hand_back_out_of_reach("a fork after");
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
        file::regain_places();
        file::bar_leases();
        inherit::share_all();
    }
}

/// Not in a `vfork` child, which sets up standard error for the next program.
pub(super) fn tell_of_standard_error() {
    if STATE.load(Ordering::Acquire) == ON && !in_vfork_child() {
        sys::tell_of_standard_error();
    }
}

fn may_share() -> bool {
    STATE.load(Ordering::Acquire) == ON && table::any() && super::lock::not_reentered().is_ok() && !in_vfork_child()
}

/// After the start: descriptors that were inherited through `exec` become atomic files'.
pub fn receive_descriptors() {
    if STATE.load(Ordering::Acquire) == ON {
        inherit::receive_all();
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

/// Whether this process was forked after the library had started, so that its memory has its parent's files.
pub(super) fn is_forked() -> bool {
    generation() != 1
}

/// In a forked child: takes a new identity; what the parent opened stays the parent's.
#[cold]
pub(super) fn enter_child() {
    let next = LATEST.load(Ordering::Relaxed) + 1;
    // SAFETY: as in `generation`.
    let word = unsafe { &*GENERATION.load(Ordering::Relaxed) };
    if word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        LATEST.store(next, Ordering::Relaxed);
        PID.store(pid(), Ordering::Relaxed);
        SAID.store(0, Ordering::Relaxed);
        crate::thread::current().posix_locks.set(0);
        crate::thread::current().locks_held.set(0);
        crate::thread::handlers::forget_postponed();
        super::handlers::forget();
        super::spare::forget();
        super::nv::enter_child();
        inherit::forget();
        super::rights::forget();
        file::disown_all();
        run_record::enter();
    }
}

/// Whether this is a `vfork` child. Its memory is the parent's, so the library's state must not change.
pub(super) fn in_vfork_child() -> bool {
    if STATE.load(Ordering::Acquire) != ON {
        return false;
    }
    if generation() == 0 {
        enter_child();
    }
    pid() != PID.load(Ordering::Relaxed)
}

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// At a normal exit, `_exit` or `quick_exit`: commits, checkpoints and closes every file clean, and demotes it for threads
/// that still run. Then reports what the run has left unprotected.
pub fn end() {
    if STATE.load(Ordering::Acquire) != ON || in_vfork_child() {
        return;
    }
    let config = config_nearby();
    end_files();
    if config.is_some_and(report::at_end) {
        HAS_FAILED.store(true, Ordering::Relaxed);
    }
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

fn end_files() {
    if !table::any() {
        super::rights::tidy();
        return put_away();
    }
    if super::lock::not_reentered().is_err() {
        // `_exit` in a signal handler that interrupted a locked section has the effect of a kill: back to the last
        // SYNC.
        error_notice("the process ends inside a call on an atomic file; what was written since its last SYNC is gone");
        return;
    }
    put_away();
    close_all();
    // Threads that still run find their files demoted. What they wrote in between is committed by the second round.
    table::for_each(0, u32::MAX, |fd, handle| {
        if handle.is_ours() {
            handle.hand_back_at_end(fd);
        }
    });
    close_all();
    file::release_all();
    super::rights::tidy();
}

pub(super) fn close_all() {
    if let Err(error) = file::close_all() {
        error_notice(&format!("{error}; what was written since its last SYNC may be gone"));
    }
}

/// Messages that are printed once per process.
#[derive(Clone, Copy)]
pub(super) enum Once {
    Forked = 1,
    Exec = 2,
    WriteOnly = 4,
    Ring = 8,
    Reentered = 16,
    Weakened = 32,
    Twins = 64,
}

static SAID: AtomicU8 = AtomicU8::new(0);

/// Whether this message is to be printed now.
pub(super) fn say_once(what: Once) -> bool {
    SAID.fetch_or(what as u8, Ordering::Relaxed) & what as u8 == 0
}

/// Prints a message at a higher level than a notice.
fn error_notice(what: &str) {
    sys::log::say(Level::Error, &[what.as_bytes()]);
}

/// Prints a notice about a file. Allocates nothing, since it may be called in a signal handler.
pub(super) fn say(path: &CStr, what: &str) {
    sys::notice_parts(&[path.to_bytes(), b": ", what.as_bytes()]);
}

/// Prints an error's message, unless it is the one printed last, so that a loop prints it once.
pub(super) fn say_error(path: &CStr, error: &crate::Error) {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let Some(detail) = error.detail() else { return };
    let named = detail.contains(&*path.to_string_lossy());
    let kept =
        if named { super::nv::keep(detail) } else { super::nv::keep(&format!("{}: {detail}", path.to_string_lossy())) };
    if kept {
        return;
    }
    let hash = detail.bytes().fold(1usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte as usize)).max(1);
    if LAST.swap(hash, Ordering::Relaxed) == hash {
        return;
    }
    if named {
        sys::log::say(Level::Error, &[detail.as_bytes()]);
    } else {
        sys::log::say(Level::Error, &[path.to_bytes(), b": ", detail.as_bytes()]);
    }
}

/// Whether the library is on, or may still be switched on.
pub(super) fn may_be_on() -> bool {
    ![OFF, OVER].contains(&STATE.load(Ordering::Acquire))
}

/// Whether the library is on.
pub fn is_on() -> bool {
    STATE.load(Ordering::Acquire) == ON
}
