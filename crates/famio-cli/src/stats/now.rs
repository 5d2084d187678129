//! All files in use at some moment, each once, with the counts of its processes.

use super::runs::{self, Run};
use super::times::Quantiles;
use crate::failure::{FAILED, Failure};
use crate::ps::growing::SeenGrowing;
use crate::ps::{self, Seen};
use famio::recovery::Found;
use serde::Serialize;

/// The fields that come from counting a file's calls.
const COUNTED: [&str; 13] = [
    "epoch",
    "open_writes",
    "syncs",
    "failed_syncs",
    "writes",
    "reads",
    "written_bytes",
    "journal_bytes",
    "file_bytes",
    "write_backs",
    "hand_overs",
    "sync_nanoseconds",
    "write_nanoseconds",
];

/// The state at some moment.
#[derive(Clone, Debug, Serialize)]
pub struct Now {
    /// The files.
    pub files: Vec<File>,
    /// Runs of `famio run`.
    pub runs: Vec<Run>,
}

/// A file, as JSON shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct File {
    /// Its path in the first of its processes.
    pub file: Option<String>,
    /// Identifies the file: device and inode of the control file, or of a growing file.
    pub id: String,
    /// The processes that have it open.
    pub processes: Vec<u32>,
    /// How many of the processes wait for another process's lock.
    pub waiting: usize,
    /// `in place` or `records`; `growing`: it has no journal; `null` before the first write.
    pub kind: Option<&'static str>,
    /// For a growing file.
    pub committed_bytes: Option<u64>,
    /// Size of the journal's file.
    pub journal_size: u64,
    /// `undo`, `redo` or `alternate`.
    pub policy: Option<&'static str>,
    /// The write lease is held.
    pub lease: bool,
    /// The last commit.
    pub epoch: u64,
    /// Writes since the last SYNC.
    pub open_writes: u64,
    /// Their bytes.
    pub open_bytes: u64,
    /// SYNCs that committed something.
    pub syncs: u64,
    /// SYNCs that failed.
    pub failed_syncs: u64,
    /// Writes up to the last SYNC.
    pub writes: u64,
    /// Reads up to the last SYNC, other than through maps.
    pub reads: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Bytes that went to the journal.
    pub journal_bytes: u64,
    /// Bytes that went to the file.
    pub file_bytes: u64,
    /// Blocks copied from the journal to the file.
    pub write_backs: u64,
    /// Changes of ownership.
    pub hand_overs: u32,
    /// How long SYNCs took.
    pub sync_nanoseconds: Quantiles,
    /// How long writes took.
    pub write_nanoseconds: Quantiles,
}

impl Now {
    /// Examines every process.
    pub fn look() -> Self {
        let processes = ps::processes();
        let mut files: Vec<(u64, u64, File)> = Vec::new();
        for seen in ps::all(&processes) {
            let (device, inode) = seen.found.control;
            match files.iter_mut().find(|file| (file.0, file.1) == (device, inode)) {
                Some((.., file)) => file.add(&seen),
                None => files.push((device, inode, File::of(&seen))),
            }
        }
        let mut files: Vec<File> = files.into_iter().map(|(.., file)| file).collect();
        files.extend(ps::growing::all(&processes).iter().map(File::of_growing));
        files.sort_by(|a, b| (&a.file, &a.id).cmp(&(&b.file, &b.id)));
        Self { files, runs: runs::all(&processes) }
    }

    /// As docs/json.md describes it: fields that are not counted are null.
    pub fn json(&self) -> Result<serde_json::Value, Failure> {
        let mut all = serde_json::to_value(self).map_err(|error| Failure::new(FAILED, error))?;
        for (at, _) in self.files.iter().enumerate().filter(|(_, file)| !file.is_counted()) {
            COUNTED.iter().for_each(|&field| all["files"][at][field] = serde_json::Value::Null);
        }
        Ok(all)
    }
}

impl File {
    fn of(seen: &Seen) -> Self {
        let found = &seen.found;
        let (device, inode) = found.control;
        let mut file = Self {
            id: format!("{device:x}:{inode:x}"),
            kind: found.kind,
            journal_size: found.journal_bytes,
            hand_overs: found.hand_overs,
            ..Self::default()
        };
        if let Some(session) = &found.session {
            let totals = &session.totals;
            file = Self {
                policy: session.policy,
                lease: session.has_lease,
                epoch: session.epoch,
                open_writes: session.writes,
                open_bytes: session.bytes,
                syncs: totals.syncs,
                failed_syncs: totals.failed_syncs,
                writes: totals.writes,
                reads: totals.reads,
                written_bytes: totals.written_bytes,
                journal_bytes: totals.journal_bytes,
                file_bytes: totals.file_bytes,
                write_backs: totals.write_backs,
                sync_nanoseconds: (&totals.sync_times).into(),
                write_nanoseconds: (&totals.write_times).into(),
                ..file
            };
        }
        file.add(seen);
        file
    }

    /// A growing file has no journal, and its process's calls are not counted.
    fn of_growing(seen: &SeenGrowing) -> Self {
        let (device, inode) = seen.id;
        Self {
            file: Some(seen.path.display().to_string()),
            id: format!("{device:x}:{inode:x}"),
            processes: vec![seen.pid],
            kind: Some(Found::GROWING),
            committed_bytes: Some(seen.growing.committed),
            lease: true,
            open_bytes: seen.open_bytes(),
            ..Self::default()
        }
    }

    /// Whether its calls are counted: not those of a growing file.
    pub fn is_counted(&self) -> bool {
        self.kind != Some(Found::GROWING)
    }

    fn add(&mut self, seen: &Seen) {
        self.file = self.file.take().or_else(|| seen.file.clone());
        self.processes.push(seen.pid);
        self.waiting += usize::from(!seen.waits_for.is_empty());
    }
}
