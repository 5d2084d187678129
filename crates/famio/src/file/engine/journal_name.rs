//! Whether a recovery would find a session's journal: an outsider may have removed, moved or replaced it while the
//! file is open (rule 21).

use super::context::Context;
use crate::journal::live::Live;
use crate::journal::path_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Whether the journal is where a recovery looks for it. `thorough`: also checks where the file is.
pub(in crate::file) fn is_found(journal: &Live, cx: Context<'_>, thorough: bool) -> bool {
    let path = || cx.fds.with(false, path_of).ok();
    let names = || cx.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_nlink as u64)).unwrap_or(0);
    journal.is_named(thorough, path, names)
}

/// When a journal was last looked for. A look takes a few system calls, longer than a small SYNC, so only the first
/// SYNC after about a millisecond looks. Commits in between are lost with the journal, as are those just before its
/// removal.
#[derive(Default)]
pub(in crate::file) struct Named(AtomicU64);

impl Named {
    /// Whether it is time to look.
    #[inline]
    pub fn is_due(&self) -> bool {
        let now = ticks();
        // Also if another processor's counter is behind.
        let due = now.wrapping_sub(self.0.load(Ordering::Relaxed)) > INTERVAL;
        if due {
            self.0.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// In units of [`ticks`]: 0.5 to 2 milliseconds at 4 to 1 GHz.
#[cfg(target_arch = "x86_64")]
const INTERVAL: u64 = 1 << 21;
/// In units of [`ticks`], which are 1 to 40 nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
const INTERVAL: u64 = 1 << 15;

/// A counter that is read without a system call; its rate does not matter much.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads a counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}
