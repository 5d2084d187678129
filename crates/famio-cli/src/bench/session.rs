//! A run of the bench: its folder, its progress bar, and the signal that ends it early.

use crate::interrupt::Interrupts;
use crate::progress;
use indicatif::ProgressBar;
use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};

/// What all measurements of a run share. Its folders go with it.
pub struct Session {
    folder: PathBuf,
    /// On a disk, once one is needed.
    disk: OnceCell<PathBuf>,
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
        Ok(Self {
            folder,
            disk: OnceCell::new(),
            interrupts,
            signal: Cell::new(None),
            bar: progress::measurements(steps),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder below `parent`, for what is measured on a disk.
    pub fn on_disk(&self, parent: &Path) -> Result<&Path, String> {
        if self.disk.get().is_none() {
            let folder = parent.join(format!("famio-bench-disk-{}", std::process::id()));
            std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let _ = self.disk.set(folder);
        }
        Ok(self.disk.get().unwrap_or(&self.folder))
    }

    /// Shows what is measured now.
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

/// A folder in memory for journals, the same for all measurements of this command. It goes with the session.
pub fn pool() -> Result<PathBuf, String> {
    let folder = pool_path();
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn pool_path() -> PathBuf {
    Path::new("/dev/shm").join(format!("famio-bench-pool-{}", std::process::id()))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_dir_all(pool_path());
        self.disk.get().into_iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
    }
}
