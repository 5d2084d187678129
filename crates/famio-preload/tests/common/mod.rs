//! Builds small C programs, and runs programs under the interposer.
#![allow(dead_code, reason = "this crate uses a part of the file")]

pub mod agent;
pub mod counted;
pub mod deferred;
pub mod torture;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The interposer that cargo has built beside this test.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libfamio_preload.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Whether system calls can be seen; says if not.
pub fn has_strace() -> bool {
    let is_there = Command::new("strace").arg("-V").stdout(std::process::Stdio::null()).status().is_ok();
    if !is_there {
        println!("SKIPPED: no strace");
    }
    is_there
}

/// A folder on tmpfs or on disk, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// On tmpfs.
    pub fn new(name: &str) -> Self {
        Self::below("/dev/shm", name)
    }

    /// On the file system of the build folder.
    pub fn on_disk(name: &str) -> Self {
        Self::below(env!("CARGO_TARGET_TMPDIR"), name)
    }

    fn below(parent: &str, name: &str) -> Self {
        // Two tests at the same time may use one name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(parent).join(format!("famio-test-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds `tests/programs/<name>.c`.
pub fn build(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let unique = format!("program-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let program = std::env::current_exe().unwrap().with_file_name(unique);
    let done = Command::new("cc")
        .args(["-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result"])
        // Bad pointers and counts are under test.
        .args(["-Wno-stringop-overflow", "-Wno-stringop-overread", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-ldl")
        .output()
        .expect("cc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// A command under the interposer, in `folder`; files named `atomic*` are atomic.
pub fn under(folder: &Folder, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder.path()).env("LD_PRELOAD", library()).env("FAMIO_ATOMIC", "atomic*");
    command
}

/// As [`under`], in a domain; empty: the one that is found.
pub fn under_domain(folder: &Folder, program: impl AsRef<OsStr>, domain: &str) -> Command {
    let mut command = under(folder, program);
    if !domain.is_empty() {
        command.env("FAMIO_DOMAIN", domain);
    }
    command
}

/// Runs a command, which must succeed; returns stdout and stderr.
pub fn succeed(command: &mut Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{out}\n{err}");
    (out, err)
}

/// Builds a program and runs it twice: on a plain file without the interposer, which shows that the program is right,
/// and on an atomic one. Returns the stderr of the second run.
pub fn same(name: &str) -> String {
    let program = build(name);
    let folder = Folder::new(name);
    succeed(Command::new(&program).arg("plain").current_dir(folder.path()).env_remove("LD_PRELOAD"));
    let (_, said) = succeed(under(&folder, &program).arg("atomic"));
    let _ = std::fs::remove_file(&program);
    let left = folder.names();
    assert!(left.iter().all(|name| !name.contains("famio")), "left behind: {left:?}");
    said
}

/// As [`same`], but only under the interposer.
pub fn only(name: &str) -> (Folder, String) {
    let program = build(name);
    let folder = Folder::new(name);
    let (_, said) = succeed(under(&folder, &program).arg("atomic"));
    let _ = std::fs::remove_file(&program);
    (folder, said)
}
