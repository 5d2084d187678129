//! What a server does, and with how many files.

use serde::{Deserialize, Serialize};

/// What the server does, with Filebench's numbers of files, its mean sizes, and appends of 16 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Personality {
    /// Files of 128 KiB: one is made, one appended to, one read, one removed, one looked at.
    FileServer,
    /// Files of 16 KiB: ten are read, and a log is appended to.
    WebServer,
    /// Files of 16 KiB: one is removed, one made; five are read, and a log is appended to.
    WebProxy,
    /// Mails of 16 KiB: one is removed, one made and synced, one read, appended to and synced, one read.
    VarMail,
    /// Files of 64 KiB, and FFSB's operations, each as often as any other: read, read at random, append, overwrite at
    /// random, make and sync, remove.
    Ffsb,
}

/// Bytes of a piece of a file: of an append, and of an overwrite.
pub const PIECE: u64 = 16 << 10;

/// Of Filebench's threads, what two processors can use.
const WORKERS: u32 = 2;

impl Personality {
    pub const FILEBENCH: [Personality; 4] =
        [Personality::FileServer, Personality::WebServer, Personality::WebProxy, Personality::VarMail];

    pub fn title(self) -> &'static str {
        match self {
            Personality::FileServer => "fileserver",
            Personality::WebServer => "webserver",
            Personality::WebProxy => "webproxy",
            Personality::VarMail => "varmail",
            Personality::Ffsb => "FFSB's operations",
        }
    }

    pub fn data(self) -> String {
        format!("folder-{}", self.title().replace([' ', '\''], "-"))
    }

    pub fn workers(self) -> u32 {
        WORKERS
    }

    /// Files of each process at first. A tenth of Filebench's: each process has its own, and a measurement is short.
    pub fn files(self) -> u64 {
        match self {
            Personality::FileServer | Personality::WebProxy => 500,
            _ => 100,
        }
    }

    /// Pieces of a new file.
    pub fn pieces(self) -> u64 {
        match self {
            Personality::FileServer => 8,
            Personality::Ffsb => 4,
            _ => 1,
        }
    }
}
