//! Runs the program with the tracing library, until it and everything that it started have ended.

use crate::failure::{Failure, REFUSED};
use crate::run::execute;
use rustix::io::Errno;
use rustix::process::{self, Pid, Signal, WaitOptions, WaitStatus};
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// The variable with the path of the shared file.
const VARIABLE: &str = "FAMIO_TRACE";

/// The program's process id, for the signal handler.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Set by a signal that comes when the program itself has ended.
static ENOUGH: AtomicI32 = AtomicI32::new(0);

/// Signals that are passed on to the program.
const TAKEN: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];

/// Returns the exit status, as a shell shows it.
pub fn run(
    path: &Path,
    command: &[OsString],
    shared: &Path,
    library: &Path,
    before: impl FnOnce() -> Result<(), String>,
) -> Result<i32, Failure> {
    // Processes that outlive the program become children of this process, so that it can wait for them.
    let reaper = process::set_child_subreaper(Some(process::getpid()));
    reaper.map_err(|error| Failure::refused(format!("subreaper: {error}")))?;
    // If SIGCHLD were ignored (which is inherited), the kernel would discard the statuses.
    // SAFETY: no handler is installed.
    let for_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let mask = hold();
    // SAFETY: this process has one thread.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(Failure::refused(format!("fork: {}", std::io::Error::last_os_error()))),
        0 => {
            // SAFETY: restores the former action.
            unsafe { libc::signal(libc::SIGCHLD, for_children) };
            let_through(&mask);
            let failure = match before() {
                Ok(()) => {
                    let variables = [(VARIABLE, shared.as_os_str().to_os_string())];
                    execute::become_program(path, command, &variables, library)
                }
                Err(message) => Failure::new(REFUSED, message),
            };
            eprintln!("famio: {}", failure.message);
            // SAFETY: ends the process, without the parent's exit handlers.
            unsafe { libc::_exit(failure.status) }
        }
        pid => pid,
    };
    PROGRAM.store(pid, Ordering::Relaxed);
    for signal in TAKEN {
        take(signal);
    }
    let_through(&mask);
    let status = wait_for(Pid::from_raw(pid).ok_or_else(|| Failure::refused("fork: no process"))?)?;
    PROGRAM.store(0, Ordering::Relaxed);
    wait_for_others();
    Ok(match status.exit_status() {
        Some(status) => status,
        None => 128 + status.terminating_signal().unwrap_or(0),
    })
}

/// The terminal sends its signals to the program, too. A signal sent only to this process is passed on.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program == 0 {
        ENOUGH.store(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the kernel gives a valid one; kill is async-signal-safe.
    unsafe {
        if (*info).si_code <= 0 {
            libc::kill(program, signal);
        }
    }
}

/// Blocks these signals until there is a handler: one may arrive before the program's id is known. Returns the former
/// mask.
fn hold() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is used, and all pointers are valid during their calls.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in TAKEN {
            libc::sigaddset(&mut set, signal.as_raw());
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before);
        before
    }
}

/// After [`hold`].
fn let_through(mask: &libc::sigset_t) {
    // SAFETY: the mask is valid.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

fn take(signal: Signal) {
    // SAFETY: a zeroed action has an empty mask; the handler only does what a handler may. Without SA_RESTART: a wait
    // ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal.as_raw(), &action, std::ptr::null_mut());
    }
}

fn wait_for(program: Pid) -> Result<WaitStatus, Failure> {
    loop {
        match process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => return Ok(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::refused(format!("wait: {error}"))),
        }
    }
}

/// Waits for processes that the program left running, such as a server in the background.
fn wait_for_others() {
    let mut said = false;
    while ENOUGH.load(Ordering::Relaxed) == 0 {
        let options = if said { WaitOptions::empty() } else { WaitOptions::NOHANG };
        match process::wait(options) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                said = true;
                eprintln!(
                    "famio: the program has ended, processes that it started run on; waiting for them (Ctrl-C: report what \
                     was seen so far)"
                );
            }
            Err(_) => return,
        }
    }
}
