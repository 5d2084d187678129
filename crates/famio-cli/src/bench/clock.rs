//! A clock that all processes of a measurement share.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// The time in nanoseconds of the monotonic clock, which is the same in all processes.
pub fn now() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

/// Nanoseconds of processor time of this thread.
pub fn cpu() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

/// Sleeps until that time.
pub fn sleep_until(time: u64) {
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(now())));
}

/// Seconds since 1970.
pub fn seconds_since_1970() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
