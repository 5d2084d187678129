//! What processes have open, as the kernel lists it.

use famio::journal::Identity;
use famio::recovery::{self, InUse};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process and an atomic file that it has open.
pub struct Seen {
    /// The process.
    pub pid: u32,
    /// Its program.
    pub command: String,
    /// The file's path. `None`: the process has just closed it.
    pub file: Option<String>,
    /// The processes' shared state of the file.
    pub found: InUse,
    /// Processes with locks on the file that this one waits for.
    pub waits_for: Vec<u32>,
}

/// What these processes have open.
pub fn all(processes: &[u32]) -> Vec<Seen> {
    let waiting = waiting(&locks());
    processes.iter().flat_map(|&pid| of_process(pid, &waiting)).collect()
}

/// The kernel's list of locks and leases; empty if it is not readable.
pub fn locks() -> String {
    String::from_utf8_lossy(&recovery::kernel_locks()).into_owned()
}

/// The process's descriptors, and their targets.
pub fn descriptors(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    all.filter_map(|entry| Some((entry.path(), std::fs::read_link(entry.path()).ok()?))).collect()
}

/// The name of a process's program.
pub fn command(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().into()
}

/// All processes that the kernel lists.
pub fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The files whose control files the process has open.
fn of_process(pid: u32, waiting: &[Waiting]) -> Vec<Seen> {
    let descriptors = descriptors(pid);
    let is_control = |path: &Path| path.file_name().and_then(OsStr::to_str).is_some_and(recovery::is_control_name);
    let mut controls: Vec<&(PathBuf, PathBuf)> = descriptors.iter().filter(|(_, path)| is_control(path)).collect();
    controls.sort_by(|a, b| a.1.cmp(&b.1));
    controls.dedup_by(|a, b| a.1 == b.1);
    if controls.is_empty() {
        return Vec::new();
    }
    let files = files(&descriptors);
    let command = command(pid);
    let entry = |(fd, control): &(PathBuf, PathBuf)| {
        let found = recovery::in_use(control).ok()?;
        // In another mount namespace, that path may lead to another file.
        let stat = std::fs::metadata(fd).ok()?;
        if found.control != (stat.dev(), stat.ino()) {
            return None;
        }
        let file = files.get(control.file_stem()?.to_str()?);
        let waits = |waiting: &&Waiting| waiting.pid == pid && file.is_some_and(|(_, inode)| waiting.inode == *inode);
        let mut waits_for: Vec<u32> = waiting.iter().filter(waits).map(|waiting| waiting.holder).collect();
        waits_for.sort_unstable();
        waits_for.dedup();
        let file = file.map(|(path, _)| path.display().to_string());
        Some(Seen { pid, command: command.clone(), file, found, waits_for })
    };
    controls.into_iter().filter_map(entry).collect()
}

/// The regular files that the process has open, by the names of their journals: path and inode. Opens them with
/// `O_PATH` only.
fn files(descriptors: &[(PathBuf, PathBuf)]) -> HashMap<String, (PathBuf, u64)> {
    let one = |(fd, path): &(PathBuf, PathBuf)| {
        let stat = std::fs::metadata(fd).ok().filter(std::fs::Metadata::is_file)?;
        let identity = Identity::of_path(fd).ok()?;
        Some((format!("{:032x}", identity.hash128()), (path.clone(), stat.ino())))
    };
    descriptors.iter().filter_map(one).collect()
}

/// A process that waits for another one's lock.
struct Waiting {
    pid: u32,
    holder: u32,
    inode: u64,
}

/// Parses the text of `/proc/locks`: a waiting process is listed below the lock's holder, with an arrow.
fn waiting(locks: &str) -> Vec<Waiting> {
    let mut all = Vec::new();
    let mut holder = None;
    for line in locks.lines() {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "->").collect();
        let [_, _, _, _, pid, place, ..] = words[..] else { continue };
        let Ok(pid) = pid.parse::<u32>() else { continue };
        let inode = place.rsplit(':').next().and_then(|inode| inode.parse().ok()).unwrap_or(0);
        if !line.contains("->") {
            holder = Some(pid);
        } else if let Some(holder) = holder {
            all.push(Waiting { pid, holder, inode });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_stand_below_who_holds() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 08:01:77 0 EOF\n1: -> POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: LEASE  ACTIVE    WRITE 12 08:01:78 0 EOF\n";
        let all = waiting(locks);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].pid, all[0].holder, all[0].inode), (11, 10, 77));
    }
}
