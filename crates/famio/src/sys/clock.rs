//! Clocks, from the vDSO.

/// The time of day with which the kernel stamps files, a few milliseconds coarse. From the vDSO: no system call.
pub fn coarse_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing; the clock exists on every Linux since 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now
}

/// The same, precise. The kernel stamps a file with this if somebody has looked at its times since the last change
/// (Linux 6.13); on a machine that is short of processors the coarse one falls back by more than 20 ms.
pub(crate) fn precise_now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now
}

/// A time with which the kernel stamps a file may be so many nanoseconds older than the moment.
const TICK: i64 = 20_000_000;
/// Some file systems keep whole seconds (ext4 with inodes of 128 bytes), or every other one (FAT).
const WHOLE_SECONDS: i64 = 2_000_000_000;

/// Whether a change from now on may be stamped with this very time, too. To be asked before the look whose result is
/// to hold as long as the time does not change.
pub(crate) fn may_be_stamped_again(seconds: i64, nanoseconds: u64) -> bool {
    let now = coarse_now();
    let age = (now.tv_sec - seconds).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec - nanoseconds as i64);
    age < if nanoseconds == 0 { WHOLE_SECONDS + TICK } else { TICK }
}

/// The monotonic clock, in nanoseconds. From the vDSO.
pub(crate) fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_whole_seconds_may_come_again_for_two_seconds() {
        let now = coarse_now();
        let again = |before: i64, nanoseconds| may_be_stamped_again(now.tv_sec - before, nanoseconds);
        assert!(again(0, 0) && again(1, 0) && !again(4, 0));
        assert!(again(0, now.tv_nsec as u64) && again(-5, 1) && !again(2, 1));
    }
}
