//! What the library says of a file: on stderr, or to the program that asks for it.

use super::message::keep;
use crate::sys;
use crate::sys::log::Level;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::ffi::CStr;

/// Messages that are printed once per process.
#[derive(Clone, Copy)]
pub(in crate::posix) enum Once {
    Forked = 1,
    Exec = 2,
    WriteOnly = 4,
    Ring = 8,
    Reentered = 16,
    Weakened = 32,
    Twins = 64,
}

static SAID: AtomicU8 = AtomicU8::new(0);

/// In a forked child: nothing was said yet.
pub(in crate::posix) fn forget() {
    SAID.store(0, Ordering::Relaxed);
}

/// Whether this message is to be printed now.
pub(in crate::posix) fn say_once(what: Once) -> bool {
    SAID.fetch_or(what as u8, Ordering::Relaxed) & what as u8 == 0
}

/// Prints a message at a higher level than a notice.
pub(in crate::posix) fn error_notice(what: &str) {
    sys::log::say(Level::Error, &[what.as_bytes()]);
}

/// Prints a notice about a file. Allocates nothing, since it may be called in a signal handler.
pub(in crate::posix) fn say(path: &CStr, what: &str) {
    sys::notice_parts(&[path.to_bytes(), b": ", what.as_bytes()]);
}

/// Prints an error's message, unless it is the one printed last, so that a loop prints it once.
pub(in crate::posix) fn say_error(path: &CStr, error: &crate::Error) {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let Some(detail) = error.detail() else { return };
    let named = detail.contains(&*path.to_string_lossy());
    let kept = if named { keep(detail) } else { keep(&format!("{}: {detail}", path.to_string_lossy())) };
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
