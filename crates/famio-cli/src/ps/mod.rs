//! `famio ps`: the processes that use atomic files, and what they do with them. Disturbs none of them: reads their
//! shared state from outside, and opens only the control file and the journal.

pub mod growing;

use crate::failure::Failure;
use crate::text::{bytes, printable, table};
use famio::journal::Identity;
use famio::recovery::{self, InUse, Owner};
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// List the processes that use atomic files
///
/// For each process and file: the last epoch, bytes written since the last SYNC, the size of the journal, whether the
/// process holds the write lease, the policy, which process owns the file, and for which process's lock it waits. The
/// command takes no lock and ends no lease. Root sees the processes of all users, others their own.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
OPEN is the number of bytes that all processes have written to the file since its last SYNC. OWNER marks the process that \
owns the file now and may change it; ownership passes to the next process that writes. WAITS FOR is about locks that the \
kernel knows. KIND is the kind of the journal, or \"growing\": the file has none, since it only grows.

Examples:
  famio ps
  watch famio ps";

/// One process and one file, as JSON shows it.
#[derive(Serialize)]
struct Entry {
    pid: u32,
    command: String,
    /// `null`: the process has closed it just now.
    file: Option<String>,
    journal: Option<String>,
    kind: Option<&'static str>,
    journal_bytes: u64,
    epoch: Option<u64>,
    open_writes: Option<u64>,
    open_bytes: Option<u64>,
    policy: Option<&'static str>,
    lease: Option<bool>,
    owner: bool,
    hand_overs: u32,
    waits_for: Vec<u32>,
}

/// Examines every process.
pub fn main(args: Args) -> Result<i32, Failure> {
    let processes = processes();
    let mut entries: Vec<Entry> = all(&processes).into_iter().map(Entry::from).collect();
    entries.extend(growing::all(&processes).into_iter().map(Entry::from));
    entries.sort_by(|a, b| (a.pid, &a.file).cmp(&(b.pid, &b.file)));
    if args.json {
        crate::out::json(&entries)?;
    } else if entries.is_empty() {
        println!("no process uses atomic files");
    } else {
        print!("{}", table(&rows(&entries)));
    }
    Ok(0)
}

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
fn locks() -> String {
    std::fs::read_to_string("/proc/locks").unwrap_or_default()
}

/// The process's descriptors, and their targets.
fn descriptors(pid: u32) -> Vec<(PathBuf, PathBuf)> {
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

impl From<Seen> for Entry {
    fn from(Seen { pid, command, file, found, waits_for }: Seen) -> Self {
        let session = found.session.as_ref();
        Self {
            pid,
            command,
            file,
            journal: found.journal.as_ref().map(|journal| journal.display().to_string()),
            kind: found.kind,
            journal_bytes: found.journal_bytes,
            epoch: session.map(|session| session.epoch),
            open_writes: session.map(|session| session.writes),
            open_bytes: session.map(|session| session.bytes),
            policy: session.and_then(|session| session.policy),
            lease: session.map(|session| session.has_lease),
            owner: found.owner.and_then(Owner::pid_here) == Some(pid),
            hand_overs: found.hand_overs,
            waits_for,
        }
    }
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

fn rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let head = ["PID", "COMMAND", "FILE", "OWNER", "EPOCH", "OPEN", "JOURNAL", "KIND", "POLICY", "LEASE", "WAITS FOR"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    for entry in entries {
        let waits: Vec<String> = entry.waits_for.iter().map(ToString::to_string).collect();
        rows.push(vec![
            entry.pid.to_string(),
            printable(&entry.command).into(),
            entry.file.as_deref().map_or("-".into(), |file| printable(file).into()),
            if entry.owner { "yes" } else { "no" }.into(),
            number(entry.epoch),
            entry.open_bytes.map_or("-".into(), bytes),
            if entry.journal.is_some() { bytes(entry.journal_bytes) } else { "-".into() },
            entry.kind.unwrap_or("-").into(),
            entry.policy.unwrap_or("-").into(),
            entry.lease.map_or("-", |lease| if lease { "yes" } else { "no" }).into(),
            if waits.is_empty() { "-".into() } else { waits.join(",") },
        ]);
    }
    rows
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
