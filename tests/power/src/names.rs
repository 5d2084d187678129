//! What is written, and where in the virtual machine.

use famio::{PolicyChoice, Settings};
use std::path::PathBuf;

/// Files of stamped epochs.
pub const STAMPED: [&str; 4] = ["pmem-undo", "pmem-redo", "pmem-alternate", "disk-records"];
/// SQLite databases.
pub const SQLITE: [&str; 2] = ["pmem-sqlite", "disk-sqlite"];

/// Each has a folder of its own.
pub fn folder(name: &str) -> PathBuf {
    let mount = if on_disk(name) { "/mnt/disk" } else { "/mnt/pmem" };
    PathBuf::from(mount).join(name)
}

/// The file in it.
pub fn file(name: &str) -> PathBuf {
    folder(name).join("file")
}

/// Whether it is on the ordinary disk.
pub fn on_disk(name: &str) -> bool {
    name.starts_with("disk")
}

/// As a program has them that wants to survive power loss.
pub fn settings(name: &str) -> Settings {
    let policy = match name {
        "pmem-undo" => PolicyChoice::Undo,
        "pmem-redo" => PolicyChoice::Redo,
        "pmem-alternate" => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    Settings { policy, ..Settings::default() }
}
