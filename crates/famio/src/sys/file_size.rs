//! The process's limit on file sizes.

use super::internal::undisturbed;
use crate::kernel::{block_signals, restore_signals, signal_bit, syscall};
use rustix::process::{Resource, getrlimit};

const UNLIMITED: u64 = i64::MAX as u64;
const SIGNAL: u64 = signal_bit(libc::SIGXFSZ);

/// The process's limit on file sizes. The library makes no file longer, so that its own work raises no SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    static KNOWN: undisturbed::Number = undisturbed::Number::new();
    KNOWN.get(|| getrlimit(Resource::Fsize).current.unwrap_or(UNLIMITED))
}

/// Calls `work`, which writes to files that may be longer than the limit: beyond it, its writes fail with `EFBIG`, and
/// raise no SIGXFSZ.
pub(crate) fn without_signal_at_limit<T>(work: impl FnOnce() -> T) -> T {
    if file_size_limit() >= UNLIMITED {
        return work();
    }
    let before = block_signals(SIGNAL);
    let was_pending = is_pending();
    let done = work();
    if !was_pending && is_pending() {
        take();
    }
    restore_signals(before);
    done
}

fn is_pending() -> bool {
    let mut pending = 0u64;
    // SAFETY: the call fills in the word.
    unsafe { syscall(libc::SYS_rt_sigpending, [&raw mut pending as usize, size_of::<u64>(), 0, 0, 0, 0]) };
    pending & SIGNAL != 0
}

/// Takes the pending signal away.
fn take() {
    let (mask, now) = (SIGNAL, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    let arguments = [&raw const mask as usize, 0, &raw const now as usize, size_of::<u64>(), 0, 0];
    // SAFETY: mask and time are alive during the call; nothing is written.
    unsafe { syscall(libc::SYS_rt_sigtimedwait, arguments) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::signal_this_thread;

    #[test]
    fn a_pending_signal_is_taken() {
        let before = block_signals(SIGNAL);
        assert!(!is_pending());
        signal_this_thread(libc::SIGXFSZ).unwrap();
        assert!(is_pending());
        take();
        assert!(!is_pending());
        restore_signals(before);
    }
}
