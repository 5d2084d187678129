//! What must not be left: journals, marks, and Famio's files in `/dev/shm`.

#[path = "../../../crates/famio/tests/common/shared_memory.rs"]
mod shared_memory;

use famio_kill::harness::has_mark;
use std::path::Path;
use std::time::{Duration, Instant};

/// Far longer than the close of a file may be deferred.
const DEFERRED: Duration = Duration::from_secs(20);

/// Checks these files, and their folder; waits for a close that is deferred.
pub fn of(folder: &Path, files: &[&Path]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match now(folder, files) {
            Err(_) if begun.elapsed() < DEFERRED => std::thread::yield_now(),
            left => return left,
        }
    }
}

/// As [`of`], without waiting.
pub fn now(folder: &Path, files: &[&Path]) -> Result<(), String> {
    let mut left = Vec::new();
    if folder.join(".famio").exists() {
        left.push(".famio".to_owned());
    }
    for file in files {
        if has_mark(file) {
            left.push(format!("the attribute user.famio of {}", file.display()));
        }
    }
    left.extend(shared_memory::of_folder(folder).iter().map(|path| path.display().to_string()));
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
}
