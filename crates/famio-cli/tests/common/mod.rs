//! What the tests of the command share.

use std::path::{Path, PathBuf};

/// A library that cargo has built with this test (`--workspace`) or beside the command.
pub fn built(name: &str) -> Option<PathBuf> {
    let beside = |path: &Path| path.with_file_name(name);
    let tests = std::env::current_exe().unwrap();
    let found = [beside(&tests), beside(Path::new(env!("CARGO_BIN_EXE_famio")))].into_iter().find(|path| path.exists());
    if found.is_none() {
        eprintln!("{name} is not built: skipped");
    }
    found
}
