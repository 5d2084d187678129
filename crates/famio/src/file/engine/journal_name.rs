//! Whether a recovery would find a session's journal: an outsider may have removed, moved or replaced it while the
//! file is open.

use super::context::Context;
use crate::journal::live::Live;
use crate::journal::path_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Whether the journal is where a recovery looks for it. `thorough`: also checks where the file is.
pub(in crate::file) fn is_found(journal: &Live, cx: Context<'_>, thorough: bool) -> bool {
    let path = || cx.fds.with(false, path_of).ok();
    // Whether there are several; the type of the count depends on the processor.
    let names = || cx.fds.stat().map_or(0, |stat| if stat.st_nlink > 1 { 2 } else { u64::from(stat.st_nlink == 1) });
    journal.is_named(thorough, path, names)
}

/// When a journal was last looked for. Even one system call takes longer than a small SYNC, so only the first SYNC
/// after about a millisecond looks whether the journal has its name, and only the first after ten also where the file
/// is, which takes six more calls. Commits in between are lost with the journal, as are those just before its removal.
#[derive(Default)]
pub(in crate::file) struct Named {
    name: AtomicU64,
    place: AtomicU64,
}

/// What it is time to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Due {
    Nothing,
    /// Whether the journal has its name.
    Name,
    /// Also whether the file was moved away from it.
    Place,
}

impl Named {
    /// What it is time to look at; it counts as looked at.
    #[inline]
    pub fn due(&self) -> Due {
        self.due_at(ticks())
    }

    #[inline]
    fn due_at(&self, now: u64) -> Due {
        // Also if another processor's counter is behind.
        if now.wrapping_sub(self.name.load(Ordering::Relaxed)) <= INTERVAL {
            return Due::Nothing;
        }
        self.name.store(now, Ordering::Relaxed);
        if now.wrapping_sub(self.place.load(Ordering::Relaxed)) <= INTERVAL * PLACE_EVERY {
            return Due::Name;
        }
        self.place.store(now, Ordering::Relaxed);
        Due::Place
    }
}

/// The number of [`INTERVAL`]s from one look at the file's place to the next.
const PLACE_EVERY: u64 = 10;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_looked_at_less_often_than_the_name_but_not_by_slow_writers() {
        let (named, begin) = (Named::default(), 1 << 40);
        let looks = |step: u64, from: u64| (0..40).map(|n| named.due_at(from + n * step)).collect::<Vec<_>>();
        let quick = looks(INTERVAL / 2 + 1, begin);
        let count = |looks: &[Due], due| looks.iter().filter(|&&look| look == due).count();
        assert_eq!(quick[..3], [Due::Place, Due::Nothing, Due::Name]);
        assert_eq!([Due::Nothing, Due::Name, Due::Place].map(|due| count(&quick, due)), [20, 18, 2]);
        assert!(looks(INTERVAL * PLACE_EVERY + 1, begin << 1).iter().all(|&look| look == Due::Place));
        assert_eq!(named.due_at(begin), Due::Place, "another processor's counter is behind");
    }
}
