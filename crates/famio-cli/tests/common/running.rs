//! Python programs under `famio run` that run until the test ends them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

/// Runs the command in that folder.
pub fn famio(folder: &Path, args: &[&str]) -> Output {
    super::famio().current_dir(folder).args(args).output().unwrap()
}

/// Everything it has printed.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program that runs until it is killed, also if the test fails. It may wait for the end of its input.
pub struct Running(pub Child);

impl Running {
    /// May be called again.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `program` in the folder with these options of `famio run`, and waits until it has printed `ready`. `None`:
/// the library is not built.
pub fn start(folder: &Path, options: &[&str], program: &str) -> Option<Running> {
    let library = super::built("libfamio_preload.so")?;
    let mut child = super::famio()
        .current_dir(folder)
        .args(["run", "--no-config"])
        .args(options)
        .args(["--", "python3", "-c", program])
        .env("FAMIO_PRELOAD", library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(Running(child))
}
