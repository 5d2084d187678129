//! The machine that was measured.

use famio::pmem::cpu;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a reader has to know about it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    /// How lines are written back.
    pub features: String,
    pub memory: u64,
    pub kernel: String,
}

impl Machine {
    pub fn look() -> Self {
        let system = rustix::system::uname();
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            processor: processor(&read("/proc/cpuinfo")).unwrap_or("unknown").into(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            features: cpu::features().to_string(),
            memory: rustix::system::sysinfo().totalram as u64 * u64::from(rustix::system::sysinfo().mem_unit),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        }
    }
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The type of the file system that a folder is on: the last mount above it.
pub fn file_system(folder: &Path) -> String {
    let Ok(folder) = folder.canonicalize() else { return "unknown".into() };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let known = mount(&mounts, &folder).unwrap_or("unknown");
    match statvfs(&folder) {
        Ok(found) => format!("{known}, blocks of {}", found.f_bsize),
        Err(_) => known.into(),
    }
}

/// The type of the longest mount point above the folder; if there are several at one place, the last.
fn mount<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|fields| fields.len() > 2 && folder.starts_with(fields[1].replace("\\040", " ")));
    above.max_by_key(|fields| fields[1].len()).map(|fields| fields[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "a / ext4 rw\nb /dev devtmpfs rw\nc /dev/shm ramfs rw\nd /dev/shm tmpfs rw\n";
        assert_eq!(mount(mounts, Path::new("/dev/shm/x")), Some("tmpfs"));
        assert_eq!(mount(mounts, Path::new("/devices")), Some("ext4"));
    }

    #[test]
    fn the_processor_has_a_name() {
        assert_eq!(processor("a : 1\nmodel name\t: Some CPU\n"), Some("Some CPU"));
    }
}
