//! Raw system calls that rustix has no safe form for, and the clock.

mod raw;
mod signal;

pub use raw::{check, syscall};

use crate::error::{Error, Result};
pub use signal::{
    SignalAction, block_signals, restore_signals, signal_action, signal_bit, signal_this_thread, unblock_signals,
};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Writes one line to stderr by a bare system call: nothing of ours is re-entered, errors are ignored.
pub fn notice(line: &str) {
    let mut text = String::with_capacity(line.len() + 8);
    text.push_str("famio: ");
    text.push_str(line);
    text.push('\n');
    // SAFETY: the buffer is alive during the call.
    unsafe { syscall(libc::SYS_write, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// The time of day as the kernel stamps files with, a few milliseconds coarse. From the vDSO: no system call.
pub fn coarse_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing; the clock exists on every Linux since 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now
}

/// Descriptors of ours go up here, out of the way of programs that count on low numbers.
const HIGH: RawFd = 700;

/// A duplicate with a high number, closed on exec.
pub(crate) fn high_duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, HIGH).or_else(|_| rustix::io::fcntl_dupfd_cloexec(fd, 0)).map_err(Error::from)
}
