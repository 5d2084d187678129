//! What is written, and where in the virtual machine.

use famio::pmem::Domain;
use famio::{PolicyChoice, Settings, TierChoice};
use std::path::PathBuf;

/// Files of stamped epochs.
pub const STAMPED: [&str; 5] = ["pmem-undo", "pmem-redo", "pmem-alternate", "disk-records", "disk-tier"];
/// SQLite databases.
pub const SQLITE: [&str; 3] = ["pmem-sqlite", "disk-sqlite", "disk-tier-sqlite"];

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
    Settings { policy, pool: pool(name), tier: TierChoice::Auto, ..Settings::default() }
}
