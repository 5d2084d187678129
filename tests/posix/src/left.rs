//! What must not be left: journals, marks, and files of ours in `/dev/shm`.

use famio_kill::harness::has_mark;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Of these files, and in their folder.
pub fn of(folder: &Path, files: &[&Path]) -> Result<(), String> {
    let mut left = Vec::new();
    if folder.join(".famio").exists() {
        left.push(".famio".to_owned());
    }
    for file in files {
        if has_mark(file) {
            left.push(format!("the attribute user.famio of {}", file.display()));
        }
        let stat = std::fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let arena = format!("famio-{:x}-{:x}.", stat.dev(), stat.ino());
        let shared = std::fs::read_dir("/dev/shm").map_err(|error| format!("/dev/shm: {error}"))?;
        left.extend(
            shared
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok().filter(|name| name.starts_with(&arena))),
        );
    }
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
}
