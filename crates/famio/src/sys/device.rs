//! What is known of the device that a file lies on.

use core::sync::atomic::{AtomicU64, Ordering};

/// The answer to a question about the device that was asked about last: most processes use one.
pub struct OfDevice(AtomicU64);

const KNOWN: u64 = 1 << 63;

impl OfDevice {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The answer for a device (`st_dev`), which `ask` finds out.
    pub fn get(&self, device: u64, ask: impl FnOnce() -> bool) -> bool {
        let key = KNOWN | device << 1;
        let last = self.0.load(Ordering::Relaxed);
        if last | 1 == key | 1 {
            return last & 1 != 0;
        }
        let answer = ask();
        self.0.store(key | u64::from(answer), Ordering::Relaxed);
        answer
    }
}

/// The folder of a block device in sysfs.
pub fn sysfs_of(device: u64) -> String {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_asked_about_once() {
        let known = OfDevice::new();
        let asked = core::cell::Cell::new(0);
        let get = |device, answer| {
            known.get(device, || {
                asked.set(asked.get() + 1);
                answer
            })
        };
        assert!([get(0, true), get(0, false), !get(7, false), !get(7, true)].iter().all(|is_right| *is_right));
        assert_eq!(asked.get(), 2);
    }
}
