//! The verdict on a file.

use super::shared::File;

/// The kind of a file, those that gain most from being atomic first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SYNCed and rewritten in place, or of a known format.
    Database,
    /// SYNCed and only appended.
    Log,
    /// Rewritten in place and never SYNCed.
    Unsynced,
    /// A database's own journal or lock table.
    Companion,
    /// Created under another name and renamed to this one.
    Replaced,
    /// Only appended and never SYNCed, or not written at all.
    Plain,
    /// No longer exists.
    Temporary,
}

impl Kind {
    /// The word in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Database => "database",
            Kind::Log => "log",
            Kind::Unsynced => "unsynced",
            Kind::Companion => "companion",
            Kind::Replaced => "replaced",
            Kind::Plain => "plain",
            Kind::Temporary => "temporary",
        }
    }
}

/// A file with its verdict.
pub struct Judged<'a> {
    /// The counts.
    pub file: &'a File,
    /// Its kind.
    pub kind: Kind,
    /// The reason, for people.
    pub why: String,
    /// Its size now; `None`: it does not exist.
    pub size: Option<u64>,
    /// Whether it should be atomic.
    pub suggested: bool,
}
