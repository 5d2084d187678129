//! Start of the library in a program that uses it directly.

use super::process;
use crate::error::{Error, Result};
use crate::posix::runtime::message;
use crate::posix::runtime::message::caught;
use crate::posix::selection::config;
use core::sync::atomic::{AtomicBool, Ordering};

/// One of the two has taken charge of the end of the process and of forks.
static HOOKED: AtomicBool = AtomicBool::new(false);

/// Whether the caller is to handle the end of the process and its forks: the first caller is.
pub fn claim_hooks() -> bool {
    !HOOKED.swap(true, Ordering::AcqRel)
}

/// Starts the library, unless it has started.
///
/// # Errors
/// `EINVAL`: a bad setting in the environment. `ESHUTDOWN`: the process is ending.
pub(in crate::posix) fn start() -> Result<()> {
    message::keep_messages();
    if process::config().is_some() {
        return Ok(());
    }
    let config = config::for_programs().map_err(|what| Error::with(libc::EINVAL, what))?;
    process::start_with(config);
    if process::config().is_none() {
        return Err(Error::with(libc::ESHUTDOWN, "the process is ending: no more files are opened"));
    }
    if claim_hooks() {
        unsafe extern "C" {
            fn at_quick_exit(function: extern "C" fn()) -> i32;
        }
        // SAFETY: the functions stay loaded: both libraries are linked with -z nodelete.
        unsafe {
            libc::atexit(end);
            at_quick_exit(end);
            libc::pthread_atfork(Some(before), Some(parent), Some(child));
        }
    }
    Ok(())
}

extern "C" fn end() {
    caught(|| {
        process::end();
        0
    });
}

extern "C" fn before() {
    caught(|| {
        process::before_fork();
        0
    });
}

extern "C" fn parent() {
    caught(|| {
        process::after_fork_in_parent();
        0
    });
}

extern "C" fn child() {
    caught(|| {
        process::after_fork_in_child();
        0
    });
}
