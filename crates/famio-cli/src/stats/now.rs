//! All files that are in use at some moment, each once, with what its processes have counted.

use super::times::Quantiles;
use super::{Run, runs};
use crate::ps::{self, Seen};
use serde::Serialize;

/// What there is at some moment.
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
    /// By its path in the first of its processes.
    pub file: Option<String>,
    /// Tells files apart: device and inode of the control file.
    pub id: String,
    /// The processes that have it open.
    pub processes: Vec<u32>,
    /// Of the processes, those that wait for a lock of another one.
    pub waiting: usize,
    /// `in place` or `records`; `null` before the first write.
    pub kind: Option<&'static str>,
    /// Of the journal's file.
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
    /// Blocks that went from the journal to the file.
    pub write_backs: u64,
    /// Changes of the owner.
    pub hand_overs: u32,
    /// How long SYNCs took.
    pub sync_nanoseconds: Quantiles,
    /// How long writes took.
    pub write_nanoseconds: Quantiles,
}

impl Now {
    /// Looks at every process.
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
        files.sort_by(|a, b| (&a.file, &a.id).cmp(&(&b.file, &b.id)));
        Self { files, runs: runs::all(&processes) }
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

    fn add(&mut self, seen: &Seen) {
        self.file = self.file.take().or_else(|| seen.file.clone());
        self.processes.push(seen.pid);
        self.waiting += usize::from(!seen.waits_for.is_empty());
    }
}
