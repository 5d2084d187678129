//! A row of the list: one process and one file.

use super::growing::SeenGrowing;
use super::seen::{Seen, command};
use famio::recovery::{self, Owner};
use serde::Serialize;

/// One process and one file, as JSON shows it.
#[derive(Serialize)]
pub struct Entry {
    pub pid: u32,
    pub command: String,
    /// `null`: the process has closed it just now.
    pub file: Option<String>,
    pub journal: Option<String>,
    pub kind: Option<&'static str>,
    pub journal_bytes: u64,
    pub epoch: Option<u64>,
    pub open_writes: Option<u64>,
    pub open_bytes: Option<u64>,
    pub policy: Option<&'static str>,
    pub lease: Option<bool>,
    pub owner: bool,
    pub hand_overs: u32,
    pub waits_for: Vec<u32>,
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

impl From<SeenGrowing> for Entry {
    fn from(seen: SeenGrowing) -> Self {
        let open_bytes = Some(seen.open_bytes());
        let SeenGrowing { pid, path, .. } = seen;
        Self {
            pid,
            command: command(pid),
            file: Some(path.display().to_string()),
            journal: None,
            kind: Some(recovery::Found::GROWING),
            journal_bytes: 0,
            epoch: None,
            open_writes: None,
            open_bytes,
            policy: None,
            lease: Some(true),
            owner: true,
            hand_overs: 0,
            waits_for: Vec::new(),
        }
    }
}
