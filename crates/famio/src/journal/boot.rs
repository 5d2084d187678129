//! Identifies the boot: what was only in caches is gone in the next one.

use super::bytes::hex;
use super::stamp::Stamp;
use crate::error::{Error, Result};
use crate::pmem::TestHooks;
use core::fmt;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's random number of a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// This boot's.
    pub fn current() -> Result<BootId> {
        if let Some(id) = TestHooks::current().boot {
            return Ok(BootId(id));
        }
        // The id is constant while the process lives.
        static CURRENT: OnceLock<BootId> = OnceLock::new();
        if let Some(id) = CURRENT.get() {
            return Ok(*id);
        }
        let failed = |e: Error| e.context(format_args!("cannot tell this boot from another: {BOOT_ID}"));
        let fd = crate::sys::openat(CWD, BOOT_ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed(e.into()))?;
        let mut text = [0; 64];
        let length = rustix::io::read(&fd, &mut text).map_err(|e| failed(e.into()))?;
        let id = Self::parse(&text[..length]).ok_or_else(|| failed(Error::new(libc::EINVAL)))?;
        Ok(*CURRENT.get_or_init(|| id))
    }

    /// 32 hexadecimal digits, with hyphens anywhere.
    fn parse(text: &[u8]) -> Option<BootId> {
        let mut digits = text.trim_ascii().iter().filter(|&&c| c != b'-').map(|&c| (c as char).to_digit(16));
        let mut id = [0; 16];
        for byte in &mut id {
            *byte = (digits.next()?? * 16 + digits.next()??) as u8;
        }
        digits.next().is_none().then_some(BootId(id))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// How many seconds too early a boot may seem to begin: the kernel takes the time from the hardware clock, in whole
/// seconds.
const SLACK: i64 = 1;

/// This boot, in the time of the clock that stamps files: (seconds, nanoseconds).
#[derive(Clone, Copy, Debug)]
pub struct BootClock {
    /// Its beginning. Moves when the clock is set.
    pub started: (i64, u32),
    /// The current time.
    pub now: (i64, u32),
}

impl BootClock {
    /// Of this boot, at this moment.
    pub fn read() -> Self {
        if TestHooks::current().boot.is_some() {
            return Self { started: (i64::MAX, 0), now: (i64::MAX, 0) };
        }
        let now = clock_gettime(ClockId::Realtime);
        let up = clock_gettime(ClockId::Boottime);
        let nanos = i128::from(now.tv_sec - up.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec - up.tv_nsec);
        Self {
            started: (nanos.div_euclid(1_000_000_000) as i64, nanos.rem_euclid(1_000_000_000) as u32),
            now: (now.tv_sec, now.tv_nsec as u32),
        }
    }

    /// Whether a file's contents were changed in this boot, according to its times. `before`: the times of a file
    /// that was changed only in earlier boots; they show if the clock of this boot is behind (a machine without a
    /// hardware clock starts in the past).
    pub fn has_seen_change(&self, file: Stamp, before: Stamp) -> bool {
        let (seconds, nanos) = self.started.max(before.changed());
        file.changed() >= (seconds.saturating_add(SLACK), nanos) && file.changed() <= self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_boot_has_an_id_and_a_beginning() {
        let id = BootId::current().unwrap();
        assert_eq!(id, BootId::current().unwrap());
        assert_ne!(id, BootId::default());
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let clock = BootClock::read();
        assert!(clock.started <= clock.now && clock.started.1 < 1_000_000_000);
        assert!((now..now + 100).contains(&clock.now.0));
    }

    /// A boot whose clock began within a second of the end of the last boot took the last boot's changes for its own.
    /// So did every boot with a clock that was behind.
    #[test]
    fn a_change_of_this_boot_is_told_from_one_before() {
        let at = |mtime: i64, ctime: i64| Stamp { size: 1, mtime: (mtime, 500), ctime: (ctime, 500) };
        let clock = BootClock { started: (100, 0), now: (200, 0) };
        let journal = at(90, 90);
        for (file, is_seen) in [(at(99, 99), false), (at(100, 100), false), (at(101, 101), true), (at(199, 199), true)]
        {
            assert_eq!(clock.has_seen_change(file, journal), is_seen, "{file:?}");
        }
        // A time set by a program; another name or mode; the clock was set back.
        for file in [at(150, 99), at(99, 150), at(i64::MAX, 99), at(201, 201)] {
            assert!(!clock.has_seen_change(file, journal), "{file:?}");
        }
        assert!(
            !clock.has_seen_change(at(150, 150), at(150, 150)) && clock.has_seen_change(at(152, 152), at(150, 150))
        );
    }

    #[test]
    fn only_an_id_parses() {
        assert_eq!(BootId::parse(b"00000000-0000-0000-0000-0000000000fF\n").map(|b| b.0[15]), Some(255));
        for bad in ["", "00", "00000000-0000-0000-0000-0000000000fg", "00000000-0000-0000-0000-0000000000ff0"] {
            assert_eq!(BootId::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
