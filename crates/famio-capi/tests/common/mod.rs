//! Links the library as it is installed, and builds programs with it.
#![allow(dead_code, reason = "each test uses a part")]

pub mod memory;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The root of the source.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A file that cargo has built beside this test.
pub fn beside(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    for folder in [&deps, deps.parent().unwrap()] {
        let file = folder.join(name);
        if file.exists() {
            return file;
        }
    }
    panic!("{name} is missing: cargo build --release --workspace --examples makes it");
}

/// The archive that cargo has built of this crate; its name contains a hash.
fn archive() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libfamio_c") && name.ends_with(".a")
    };
    let all = [&deps, deps.parent().unwrap()].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let all = all.map(|entry| entry.unwrap().path()).filter(is_it);
    let newest = all.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("libfamio_c.a is missing: cargo build --release --workspace makes it")
}

/// The folder with `libfamio.so` and `libfamio.a`, made once per process.
pub fn libraries() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libfamio-{}", std::process::id()));
        succeed(Command::new(root().join("scripts/link-libfamio")).arg(archive()).arg(&folder));
        folder
    })
}

/// Which of the two libraries a program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// Builds a program of one C or C++ file, relative to the source's root; it must cause no warning.
pub fn build(source: &str, linked: Linked) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let libraries = libraries();
    let source = root().join(source);
    let program = libraries.join(format!(
        "{}-{}",
        source.file_stem().unwrap().to_string_lossy(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    let cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let mut command = Command::new(if cpp { "c++" } else { "cc" });
    command.arg(if cpp { "-std=c++17" } else { "-std=c99" });
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-O1", "-pthread", "-I"]);
    command.arg(root().join("include")).arg(&source).arg("-o").arg(&program);
    match linked {
        Linked::Shared => {
            command.arg("-L").arg(libraries).arg("-lfamio");
            command.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        Linked::Static => {
            command.arg(libraries.join("libfamio.a")).args(["-ldl", "-lm"]);
        }
    }
    succeed(&mut command);
    program
}

/// A command without Famio's settings in its environment.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in [
        "ATOMIC",
        "POOL",
        "DURABILITY",
        "DOMAIN",
        "POLICY",
        "LOCKS",
        "JOURNAL",
        "JOURNAL_LIMIT",
        "MAP_MEMORY",
        "ON_CLOSE",
        "DEFER_CLOSE",
        "ON_KILL",
        "ATOMICITY",
        "ASYNC_IO",
    ] {
        command.env_remove(format!("FAMIO_{name}"));
    }
    command.env_remove("LD_PRELOAD");
    command
}

/// Runs it under valgrind's memcheck, whose errors give exit status 99; `None`, with a loud message, if valgrind is
/// not installed.
pub fn under_valgrind(program: &Path) -> Option<Command> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed (make test installs it)");
        return None;
    }
    let mut command = command("valgrind");
    command.args(["-q", "--error-exitcode=99", "--leak-check=no"]).arg(program);
    Some(command)
}

/// Runs a command, which must succeed; returns its stdout.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{out}\n{err}");
    out
}

/// A folder on tmpfs or on disk, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// On tmpfs.
    pub fn new(name: &str) -> Self {
        Self::below(Path::new("/dev/shm"), name)
    }

    /// On the file system of the build folder.
    pub fn on_disk(name: &str) -> Self {
        Self::below(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    fn below(parent: &Path, name: &str) -> Self {
        // Two tests at the same time may use one name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("famio-test-capi-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small file system, mounted only for this thread and its children, until dropped.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// `None`, with a loud message, if this process may not mount.
    pub fn new(folder: &Path, kind: &str) -> Option<Self> {
        let point = folder.join(kind);
        std::fs::create_dir(&point).unwrap();
        let run = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).output();
            done.is_ok_and(|done| done.status.success())
        };
        // SAFETY: numbers.
        let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0 && run("mount", &["--make-rprivate", "/"]);
        let to = point.to_str().unwrap();
        let mounted = alone
            && if kind == "tmpfs" {
                run("mount", &["-t", "tmpfs", "-o", "size=16m", "famio-test", to])
            } else {
                let image = folder.join("image");
                std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
                let image = image.to_str().unwrap();
                run("mkfs.ext4", &["-q", "-F", "-m", "0", image]) && run("mount", &["-o", "loop", image, to])
            };
        if !mounted {
            eprintln!("SKIPPED: it takes root, and a {kind}, for a small file system of its own");
        }
        mounted.then_some(Self(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Runs `program FILE work...` on one file repeatedly; each run is killed after it has printed some lines, at a
/// moment that depends on the number of the kill. The next run checks what it finds, and prints the round that it has
/// found: not older than the last one printed, and at most one newer.
pub fn kills(program: &Path, file: &Path, work: &[&str], checks: Option<&[&str]>, count: u32) {
    let mut said = 0u64;
    let number = |line: &str| -> u64 { line.split_whitespace().last().unwrap().parse().unwrap() };
    for kill in 0..count {
        if let Some(check) = checks {
            let found = number(succeed(command(program).arg(file).args(check)).trim());
            assert!((said..=said + 1).contains(&found), "{found} was found, {said} was said");
            said = found;
        }
        let mut child = command(program).arg(file).args(work).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = number(&lines.next().unwrap().unwrap());
        if checks.is_none() {
            assert!((said..=said + 1).contains(&first), "{first} was found, {said} was said");
        }
        said = said.max(first);
        for line in lines.by_ref().take(kill as usize % 7 * 5) {
            said = number(&line.unwrap());
        }
        // Somewhere in the following rounds.
        for _ in 0..kill % 5 * 300 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it printed until then.
        for line in lines.map_while(Result::ok) {
            said = number(&line);
        }
    }
}
