//! Lists growing files. A growing file has no control file: the write leases in `/proc/locks` say which process has it
//! open.

use super::seen::{descriptors, locks};
use famio::recovery::{self, Growing};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A process and a growing file that it has open.
pub struct SeenGrowing {
    /// The process.
    pub pid: u32,
    /// The file's path.
    pub path: PathBuf,
    /// Its device and inode.
    pub id: (u64, u64),
    /// How far it has grown.
    pub growing: Growing,
}

/// The growing files of these processes: each has the mark of one, and the process has the write lease on it.
pub fn all(processes: &[u32]) -> Vec<SeenGrowing> {
    let leases = leases(&locks());
    let of_process = |&pid: &u32| {
        let is_under_lease =
            |stat: &std::fs::Metadata| stat.is_file() && leases.iter().any(|&lease| lease == (pid, stat.ino()));
        let has_any = leases.iter().any(|lease| lease.0 == pid);
        let mut files: Vec<SeenGrowing> = if has_any { descriptors(pid) } else { Vec::new() }
            .into_iter()
            .filter_map(|(fd, path)| {
                let stat = std::fs::metadata(&fd).ok().filter(is_under_lease)?;
                Some(SeenGrowing { pid, path, id: (stat.dev(), stat.ino()), growing: recovery::growing_at(&fd)? })
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        files
    };
    processes.iter().flat_map(of_process).collect()
}

/// The write leases in the text of `/proc/locks`: the process ID and the inode number of each.
fn leases(locks: &str) -> Vec<(u32, u64)> {
    let lease = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "LEASE", _, "WRITE", pid, place, ..] = words[..] else { return None };
        Some((pid.parse().ok()?, place.rsplit(':').next()?.parse().ok()?))
    };
    locks.lines().filter_map(lease).collect()
}

impl SeenGrowing {
    /// Bytes that no SYNC covers yet.
    pub fn open_bytes(&self) -> u64 {
        self.growing.size.saturating_sub(self.growing.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_told_from_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 08:01:77 0 EOF\n2: LEASE  ACTIVE    WRITE 12 08:01:78 0 EOF\n\
                     3: LEASE  ACTIVE    READ 13 08:01:79 0 EOF\n";
        assert_eq!(leases(locks), [(12, 78)]);
    }
}
