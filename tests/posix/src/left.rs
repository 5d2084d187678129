//! What must not be left: journals, marks, and Famio's files in `/dev/shm`.

#[path = "../../../crates/famio/tests/common/shared_memory.rs"]
mod shared_memory;

use famio_kill::harness::has_mark;
use std::path::Path;

/// Checks these files, and their folder.
pub fn of(folder: &Path, files: &[&Path]) -> Result<(), String> {
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
