//! Counts the bytes written to the disk of a folder.

use rustix::fs::{major, minor, stat};
use std::path::{Path, PathBuf};

/// A disk's counters. They cover all programs; on a quiet machine, only the bench. The kernel's count for a single
/// process (/proc/self/io) is useless here: it counts a whole large folio when one byte of it is changed.
pub struct Disk(PathBuf);

const SECTOR: u64 = 512;

impl Disk {
    /// `None`: the folder is not on a disk, or the kernel does not show which.
    pub fn of(folder: &Path) -> Option<Self> {
        let device = stat(folder).ok()?.st_dev;
        let disk = Self(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)).into());
        disk.written().is_some().then_some(disk)
    }

    /// Bytes written until now.
    pub fn written(&self) -> Option<u64> {
        sectors(&std::fs::read_to_string(&self.0).ok()?).map(|sectors| sectors * SECTOR)
    }
}

fn sectors(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert!(Disk::of(Path::new("/dev/shm")).is_none());
        assert_eq!(sectors("  10 1 80 4  20 2 160 9 0 3 3\n"), Some(160));
    }
}
