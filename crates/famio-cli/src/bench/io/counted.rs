//! What the library counts of its work on files: bytes to journal and file, for the bytes of the writes.

use crate::ps;
use std::path::PathBuf;

/// Bytes up to the last SYNC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub written: u64,
    pub to_medium: u64,
}

impl Counted {
    pub fn since(self, before: Self) -> Self {
        let of = |after: u64, before: u64| after.saturating_sub(before);
        Self { written: of(self.written, before.written), to_medium: of(self.to_medium, before.to_medium) }
    }
}

/// Of all these files, while processes have them open. `None`: it counts none of them, as of files that only grow.
pub fn counted(files: &[PathBuf]) -> Option<Counted> {
    // As the kernel names them.
    let files: Vec<_> = files.iter().filter_map(|file| file.canonicalize().ok()).collect();
    let mut seen = Vec::new();
    let mut sum = Counted::default();
    for one in ps::all(&ps::processes()) {
        let is_ours = one.file.as_ref().is_some_and(|file| files.iter().any(|ours| ours.as_os_str() == file.as_str()));
        // Its processes share what is counted.
        if is_ours && !seen.contains(&one.found.control) {
            seen.push(one.found.control);
            let totals = &one.found.session.as_ref()?.totals;
            sum.written += totals.written_bytes;
            sum.to_medium += totals.journal_bytes + totals.file_bytes;
        }
    }
    (!seen.is_empty()).then_some(sum)
}
