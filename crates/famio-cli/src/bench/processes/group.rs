//! The patterns that are shown in one table.

use clap::ValueEnum;

/// Patterns shown in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Readers and writers of blocks, by file calls without locks
    Files,
    /// Readers and writers of a database
    Sqlite,
    /// One process with a database
    SqliteAlone,
    /// Processes that open a database for each request
    Requests,
    /// Two processes that write in turn
    HandOver,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Files => "File calls: pread of 4 KiB; pwrite of 4 KiB and fsync; no locks",
            Group::Sqlite => "SQLite: a SELECT of one row; an UPDATE of one row, synchronous=FULL",
            Group::SqliteAlone => "SQLite, one process: a row in each transaction, synchronous=FULL",
            Group::Requests => {
                "SQLite, a connection for each request: five SELECTs, in one of ten an UPDATE, synchronous=FULL"
            }
            Group::HandOver => "Two processes alternately: pwrite of 4 KiB, for which ownership changes",
        }
    }

    pub fn is_sqlite(self) -> bool {
        matches!(self, Group::Sqlite | Group::SqliteAlone | Group::Requests)
    }

    /// What those do that write.
    pub fn writes(self) -> &'static str {
        if self == Group::Requests { "REQUESTS" } else { "WRITES" }
    }
}
