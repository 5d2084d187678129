//! Which boot this is: what only lived in caches is gone in the next one.

use super::bytes::hex;
use crate::error::{Error, Result};
use crate::pmem::Lab;
use core::fmt;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's random number of a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// This boot's.
    pub fn current() -> Result<BootId> {
        if let Some(id) = Lab::current().boot {
            return Ok(BootId(id));
        }
        let failed = |e: Error| e.context(format_args!("cannot tell this boot from another: {BOOT_ID}"));
        let fd = crate::sys::openat(CWD, BOOT_ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed(e.into()))?;
        let mut text = [0; 64];
        let length = rustix::io::read(&fd, &mut text).map_err(|e| failed(e.into()))?;
        Self::parse(&text[..length]).ok_or_else(|| failed(Error::new(libc::EINVAL)))
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

/// When this boot began, by the clock that files are stamped with: (seconds, nanoseconds). It moves when that clock is
/// set.
pub fn started() -> (i64, u32) {
    if Lab::current().boot.is_some() {
        return (i64::MAX, 0);
    }
    let now = clock_gettime(ClockId::Realtime);
    let up = clock_gettime(ClockId::Boottime);
    let nanos = i128::from(now.tv_sec - up.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec - up.tv_nsec);
    (nanos.div_euclid(1_000_000_000) as i64, nanos.rem_euclid(1_000_000_000) as u32)
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
        assert!(started().0 <= now && started().1 < 1_000_000_000);
    }

    #[test]
    fn only_an_id_parses() {
        assert_eq!(BootId::parse(b"00000000-0000-0000-0000-0000000000fF\n").map(|b| b.0[15]), Some(255));
        for bad in ["", "00", "00000000-0000-0000-0000-0000000000fg", "00000000-0000-0000-0000-0000000000ff0"] {
            assert_eq!(BootId::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
