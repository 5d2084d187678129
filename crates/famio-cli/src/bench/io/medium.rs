//! Counts what is done to the disk of a folder.

use rustix::fs::{major, minor, stat};
use std::path::{Path, PathBuf};

/// A disk's counters. They cover all programs; on a quiet machine, only the bench. The kernel's count for a single
/// process (/proc/self/io) is useless here: it counts a whole large folio when one byte of it is changed.
pub struct Disk {
    /// Of the partition, if it is one.
    counts: PathBuf,
    /// Flushes are counted for the whole disk only.
    whole: PathBuf,
}

const SECTOR: u64 = 512;

/// Fields of a `stat` file in sysfs (Linux, Documentation/block/stat.rst).
const SECTORS_WRITTEN: usize = 6;
const FLUSHES: usize = 15;

impl Disk {
    /// `None`: the folder is not on a disk, or the kernel does not show which.
    pub fn of(folder: &Path) -> Option<Self> {
        let device = stat(folder).ok()?.st_dev;
        let entry = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        let whole =
            if entry.join("partition").exists() { entry.canonicalize().ok()?.join("..") } else { entry.clone() };
        let disk = Self { counts: entry.join("stat"), whole: whole.join("stat") };
        disk.written().is_some().then_some(disk)
    }

    /// Bytes written until now.
    pub fn written(&self) -> Option<u64> {
        field(&std::fs::read_to_string(&self.counts).ok()?, SECTORS_WRITTEN).map(|sectors| sectors * SECTOR)
    }

    /// Flushes of its cache that were completed until now. `None`: the kernel does not count them, or there were none,
    /// as with a disk that needs none.
    pub fn flushes(&self) -> Option<u64> {
        field(&std::fs::read_to_string(&self.whole).ok()?, FLUSHES).filter(|&count| count > 0)
    }
}

fn field(stat: &str, number: usize) -> Option<u64> {
    stat.split_whitespace().nth(number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert!(Disk::of(Path::new("/dev/shm")).is_none());
        let stat = "  10 1 80 4  20 2 160 9 0 3 3 0 0 0 0 7 2\n";
        assert_eq!((field(stat, SECTORS_WRITTEN), field(stat, FLUSHES)), (Some(160), Some(7)));
        assert_eq!(field("  10 1 80 4  20 2 160 9 0 3 3\n", FLUSHES), None);
    }
}
