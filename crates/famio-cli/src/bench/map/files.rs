//! The files to read: written completely, so that they are in memory, and removed at the end.

use rustix::fs::statvfs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A folder of files of one size.
pub struct Files {
    folder: PathBuf,
    count: u64,
}

impl Files {
    /// Creates them by writes of `written` bytes.
    pub fn new(parent: &Path, count: u64, size: u64, written: u64) -> Result<Self, String> {
        let folder = parent.join(format!("famio-bench-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(failed)?;
        let made = Self { folder: folder.clone(), count };
        let bytes = vec![0x5a; written.min(size) as usize];
        for number in 0..count {
            let mut file = File::create(path(&folder, number)).map_err(failed)?;
            let mut left = size;
            while left != 0 {
                let now = left.min(bytes.len() as u64);
                file.write_all(&bytes[..now as usize]).map_err(failed)?;
                left -= now;
            }
        }
        // Dirty data is written back now, not during a measurement.
        rustix::fs::sync();
        Ok(made)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Bytes that fit: a third of the free space in the folder and in memory, so that the page cache keeps everything.
pub fn room(folder: &Path) -> Result<u64, String> {
    let found = statvfs(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let space = found.f_bavail.saturating_mul(found.f_frsize);
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    Ok(space.min(available(&text).unwrap_or(0)) / 3)
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// The name of file `number` in the folder of a run.
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_be_had() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available(""), None);
    }

    #[test]
    fn files_are_whole_and_go() {
        let parent = tempfile::tempdir().unwrap();
        let files = Files::new(parent.path(), 3, 10_000, 4096).unwrap();
        let sizes: Vec<u64> = (0..3).map(|i| path(files.folder(), i).metadata().unwrap().len()).collect();
        assert_eq!(sizes, [10_000; 3]);
        drop(files);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
