//! A run of the bench: its folder, its progress bar, and the signal that ends it early.

use crate::interrupt::Interrupts;
use crate::progress;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// What all measurements of a run share. Dropping it removes the folder.
pub struct Session {
    folder: PathBuf,
    interrupts: Interrupts,
    signal: Cell<Option<i32>>,
    bar: ProgressBar,
}

impl Session {
    /// Makes a folder in `parent`, since measured files have other files beside them.
    pub fn new(parent: &Path, steps: u64) -> Result<Self, String> {
        let interrupts = Interrupts::catch()?;
        let folder = parent.join(format!("famio-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, interrupts, signal: Cell::new(None), bar: progress::measurements(steps) })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows what is being measured.
    pub fn show(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    /// Counts a measurement as done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints text above the bar.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    /// Leaves out measurements.
    pub fn skip(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Whether Ctrl-C or SIGTERM has come.
    pub fn interrupted(&self) -> bool {
        if self.signal.get().is_none() {
            self.signal.set(self.interrupts.pending());
        }
        self.signal.get().is_some()
    }

    /// The exit status for the signal, as a shell shows it.
    pub fn status(&self) -> i32 {
        self.signal.get().map_or(0, |signal| 128 + signal)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
