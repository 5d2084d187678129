//! The records of `famio run` in which living processes take part. A path in another user's environment is untrusted:
//! only a file that belongs to that user, and that no other user can write, is opened, without waiting.

use famio::posix::run_record::{RUN_RECORD, VARIABLE, run_counts};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use serde::Serialize;
use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A run of `famio run`, as JSON shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The process that was `famio run`.
    pub pid: u32,
    /// Files that were demoted.
    pub demotions: u64,
    /// Opens that failed because file and journal contradict each other.
    pub conflicts: u64,
}

/// All records that this process may read.
pub fn all(processes: &[u32]) -> Vec<Run> {
    let mut seen = HashSet::new();
    let mut runs: Vec<Run> = processes.iter().filter_map(|&pid| of_process(pid, &mut seen)).collect();
    runs.sort_by_key(|run| run.pid);
    runs
}

fn of_process(pid: u32, seen: &mut HashSet<(u64, u64)>) -> Option<Run> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = format!("{VARIABLE}=");
    let path = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(variable.as_bytes()))?;
    let path = std::str::from_utf8(path).ok().filter(|path| path.starts_with('/'))?;
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let looked = openat(
        CWD,
        format!("/proc/{pid}/root{path}"),
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let stat = fstat(&looked).ok()?;
    let is_theirs = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == uid
        && stat.st_mode & 0o077 == 0
        && stat.st_nlink == 1;
    if !is_theirs || !seen.insert((stat.st_dev, stat.st_ino)) {
        return None;
    }
    let link = format!("/proc/self/fd/{}", looked.as_raw_fd());
    let file =
        openat(CWD, link, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut record = vec![0; RUN_RECORD];
    let length = rustix::io::pread(&file, &mut record, 0).ok()?;
    let counts = run_counts(&record[..length])?;
    Some(Run { pid: counts.top, demotions: counts.demotions, conflicts: counts.conflicts })
}
