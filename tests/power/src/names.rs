//! What is written, and where in the virtual machine.

use famio::pmem::Domain;
use famio::{PolicyChoice, Settings, TierChoice, WriteBackRange};
use std::path::PathBuf;

/// What a campaign writes.
#[derive(Clone, Copy)]
pub struct Names {
    /// Files of stamped epochs.
    pub stamped: &'static [&'static str],
    /// SQLite databases.
    pub sqlite: &'static [&'static str],
}

/// One of each kind.
const EACH: Names = Names {
    stamped: &["pmem-undo", "pmem-redo", "pmem-alternate", "disk-records", "disk-tier"],
    sqlite: &["pmem-sqlite", "disk-sqlite", "disk-tier-sqlite"],
};

/// Only files on the disk with their journals on persistent memory.
const TIERED: Names =
    Names { stamped: &["disk-tier", "disk-tier-tight"], sqlite: &["disk-tier-sqlite", "disk-tier-tight-sqlite"] };

/// A write cache that is always too small, so that blocks go to the disk all the time.
const TIGHT: (u64, WriteBackRange) = (16 << 20, WriteBackRange { from: 1, to: 0 });
/// The same as options of `famio run`.
pub const TIGHT_OPTIONS: [&str; 4] = ["--journal-limit", "16MiB", "--write-back", "1:0"];

impl Names {
    pub fn of(tiered: bool) -> Self {
        if tiered { TIERED } else { EACH }
    }

    pub fn all(self) -> impl Iterator<Item = &'static str> {
        self.stamped.iter().chain(self.sqlite).copied()
    }
}

/// Each has a folder of its own.
pub fn folder(name: &str) -> PathBuf {
    let mount = if on_disk(name) { "/mnt/disk" } else { "/mnt/pmem" };
    PathBuf::from(mount).join(name)
}

/// The file in it.
pub fn file(name: &str) -> PathBuf {
    folder(name).join("file")
}

/// The folder of its journals if not beside it: on persistent memory, for the disk.
pub fn pool(name: &str) -> Option<PathBuf> {
    name.starts_with("disk-tier").then(|| PathBuf::from("/mnt/pmem").join(format!("pool-{name}")))
}

/// The domain of its journal, for a medium that loses what is not certain there.
pub fn domain(name: &str) -> Domain {
    if on_disk(name) && pool(name).is_none() { Domain::PageCache } else { Domain::Pmem }
}

/// Whether its write cache is always too small.
pub fn is_tight(name: &str) -> bool {
    name.contains("-tight")
}

/// Whether it is on the ordinary disk.
pub fn on_disk(name: &str) -> bool {
    name.starts_with("disk")
}

/// The settings of a program that wants to survive power loss.
pub fn settings(name: &str) -> Settings {
    let policy = match name {
        "pmem-undo" => PolicyChoice::Undo,
        "pmem-redo" => PolicyChoice::Redo,
        "pmem-alternate" => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    let mut settings = Settings { policy, pool: pool(name), tier: TierChoice::Auto, ..Settings::default() };
    if is_tight(name) {
        (settings.journal_limit, settings.write_back) = TIGHT;
    }
    settings
}
