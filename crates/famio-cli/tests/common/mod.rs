//! Shared by the tests of the command.
#![allow(dead_code)] // each test uses a part

pub mod running;
pub mod traced;

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The command, without settings from this environment.
pub fn famio() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAMIO_")) {
        command.env_remove(name);
    }
    command
}
