//! Settings for which a test is repeated, each with a name and a folder.

use super::common::{Scratch, tiered_settings};
use famio::{JournalChoice, OnKill, PolicyChoice, Settings};

/// The settings with these names, and a folder for each: `records` and `tiered` are on a disk, the others in memory.
pub fn everywhere<const N: usize>(name: &str, all: [&'static str; N]) -> [(&'static str, Settings, Scratch); N] {
    all.map(|which| {
        let name = format!("{name}-{which}");
        let dir = if which == "records" || which.starts_with("tiered") {
            Scratch::on_disk(&name)
        } else {
            Scratch::on_tmpfs(&name)
        };
        (which, settings_of(which), dir)
    })
}

/// `tiered`, `tiered-tight`: with the journals in memory. `undo`, `redo` or `alternate`, with the suffix `-emulated`
/// for flushes and fences; `keep`: with `on-kill = keep`; otherwise the default.
pub fn settings_of(which: &str) -> Settings {
    if which.starts_with("tiered") {
        return tiered_settings(which.ends_with("tight"));
    }
    let policy = match which.split('-').next() {
        Some("undo") => PolicyChoice::Undo,
        Some("redo") => PolicyChoice::Redo,
        Some("alternate") => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    let on_kill = if which == "keep" { OnKill::Keep } else { OnKill::Rollback };
    let journal = JournalChoice::Always; // its policy is what is tested
    Settings { policy, on_kill, journal, emulated: which.ends_with("emulated"), ..Settings::default() }
}
