//! The size of the measured file: a file that fits the CPU's caches shows unrealistic ratios.

use rustix::fs::statvfs;
use std::path::Path;

/// Well above the caches of today's machines.
const ENOUGH: u64 = 512;

/// The default size in MiB: `ENOUGH`, or half of the folder's free space if that is less, so that the journal has
/// room beside the file.
pub fn default(folder: &Path) -> Result<u64, String> {
    let found = statvfs(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(fitting(found.f_bavail.saturating_mul(found.f_frsize)))
}

fn fitting(free: u64) -> u64 {
    // Half of it, in MiB.
    (free >> 21).clamp(1, ENOUGH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_free_up_to_a_bound() {
        assert_eq!(fitting(1 << 40), ENOUGH);
        assert_eq!(fitting(100 << 20), 50);
        assert_eq!(fitting(0), 1);
    }
}
