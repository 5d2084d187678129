//! What a process under Famio takes of memory.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Memory of a process and its journals, in bytes: private copies and heap; what its memory files have, mapped or not;
/// page tables; the files in a folder of journals.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    pub own: u64,
    pub shared: u64,
    pub tables: u64,
    pub journals: u64,
}

impl Memory {
    /// `None`: the process has ended.
    pub fn of(pid: u32, journals: &Path) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0) << 10
        };
        let mut files = std::collections::BTreeMap::new();
        for fd in std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
            let name = std::fs::read_link(fd.path()).unwrap_or_default();
            if name.starts_with("/dev/shm") || name.to_string_lossy().starts_with("/memfd:") {
                let info = std::fs::metadata(fd.path()).ok()?;
                files.insert(info.ino(), info.blocks() * 512);
            }
        }
        let shared = files.values().sum::<u64>().max(kib("RssShmem"));
        let journals = std::fs::read_dir(journals).into_iter().flatten().flatten();
        let journals = journals.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum();
        Some(Self { own: kib("RssAnon"), shared, tables: kib("VmPTE"), journals })
    }

    /// The larger one of each.
    pub fn most(self, other: Self) -> Self {
        Self {
            own: self.own.max(other.own),
            shared: self.shared.max(other.shared),
            tables: self.tables.max(other.tables),
            journals: self.journals.max(other.journals),
        }
    }

    pub fn all(&self) -> u64 {
        self.own + self.shared + self.tables + self.journals
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { own, shared, tables, journals } = self;
        let [own, shared, tables, journals] = [own, shared, tables, journals].map(|bytes| bytes >> 20);
        write!(f, "{own} MiB own, {shared} in shared memory, {tables} page tables, {journals} journal")
    }
}
