//! Starts programs, with and without Famio, and recovers what they leave.

use famio_test_support::launch::{Famio, literal};
use famio_test_support::session::{self, Ended, Kill};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder, and how programs are started in it.
pub struct Under<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// The user of the programs, if not this process's.
    user: Option<u32>,
    /// Whether root recovers next.
    by_root: Cell<bool>,
    famio: Famio,
}

/// An ordinary user of every machine: nobody.
const ORDINARY: u32 = 65534;

/// The first program of this name in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The build folder, which contains this program's folder.
pub fn target() -> Option<PathBuf> {
    std::env::current_exe().ok()?.ancestors().nth(2).map(PathBuf::from)
}

/// A python3 that has this module: from `PATH`, or from the environment that `scripts/need` makes beside the build.
pub fn python_with(module: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = target().map(|target| target.join("programs/python/bin"));
    let mut all =
        std::env::split_paths(&path).chain(own).map(|folder| folder.join("python3")).filter(|file| file.is_file());
    let has = |file: &PathBuf| {
        Command::new(file).args(["-c", &format!("import {module}")]).output().is_ok_and(|done| done.status.success())
    };
    all.find(has)
}

impl<'a> Under<'a> {
    /// In this folder, with additional options for `famio run`.
    pub fn new(folder: &'a Path, options: &[&str]) -> Result<Self, String> {
        Ok(Self { folder, user: None, by_root: Cell::new(true), famio: Famio::beside_me(options)? })
    }

    /// If this process is root's, programs are started as an ordinary user from now on, who gets the folder;
    /// otherwise they are this user's. Returns the reason if that user cannot start Famio.
    pub fn as_ordinary_user(&mut self) -> Result<Option<String>, String> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } == 0 {
            self.user = Some(ORDINARY);
            self.give()?;
        }
        let mut look = self.plain(self.binary());
        look.arg("--version");
        let may = run(look).is_ok_and(|ended| ended.is_ok());
        Ok((!may).then(|| "it is to run as an ordinary user, who may not read the build folder".into()))
    }

    /// The same in another folder, which becomes the user's with its contents.
    pub fn within<'b>(&self, folder: &'b Path) -> Result<Under<'b>, String> {
        let under = Under { folder, user: self.user, by_root: Cell::new(true), famio: self.famio.clone() };
        under.give()?;
        Ok(under)
    }

    /// Gives the folder and its contents to the user of the programs.
    pub fn give(&self) -> Result<(), String> {
        let Some(user) = self.user else { return Ok(()) };
        for path in files(self.folder)?.iter().map(PathBuf::as_path).chain([self.folder]) {
            std::os::unix::fs::lchown(path, Some(user), Some(user))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Whether `famio run` has this option.
    pub fn offers(&self, option: &str) -> Result<bool, String> {
        let mut help = self.plain(self.binary());
        help.args(["run", "--help"]);
        Ok(succeed(help)?.split_whitespace().any(|word| word == option))
    }

    /// Adds options for `famio run`.
    pub fn add_options(&mut self, options: &[&str]) {
        self.famio.options.extend(options.iter().map(OsString::from));
    }

    /// The famio command.
    pub fn binary(&self) -> &Path {
        &self.famio.binary
    }

    /// A program under Famio. Globs are relative to the folder.
    pub fn famio(&self, globs: &[&str], program: impl AsRef<OsStr>) -> Command {
        let folder = literal(self.folder);
        let absolute = |glob: &&str| {
            let mut text = OsString::from(&folder);
            text.push("/");
            text.push(glob);
            text
        };
        let mut command = self.famio.run(&globs.iter().map(absolute).collect::<Vec<_>>());
        command.arg(program.as_ref());
        self.prepare(&mut command);
        command
    }

    /// A program without Famio.
    pub fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(self.folder).env("LC_ALL", "C.UTF-8");
        if let Some(user) = self.user {
            command.uid(user).gid(user).env("HOME", self.folder);
        }
        // SAFETY: one system call, which is allowed after a fork.
        unsafe {
            command.pre_exec(|| {
                // Servers must not outlive this program.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
    }

    /// Runs `famio recover` on the folder, as its user and as root alternately; then no journal and no mark may be
    /// left in it.
    pub fn recover(&self) -> Result<(), String> {
        let by_root = self.by_root.replace(!self.by_root.get());
        let mut command = if by_root { Command::new(self.binary()) } else { self.plain(self.binary()) };
        command.arg("recover").arg(self.folder);
        let ended = run(command)?;
        if !ended.is_ok() {
            return Err(format!("famio recover: {}\n{}{}", ended.status, ended.text().join("\n"), ended.messages));
        }
        let left = leftovers(self.folder)?;
        if left.is_empty() { Ok(()) } else { Err(format!("left after famio recover: {}", left.join(", "))) }
    }
}

/// Runs to the end.
pub fn run(command: Command) -> Result<Ended, String> {
    session::drive(command, std::iter::empty(), Kill::Never)
}

/// Runs a command, which must succeed; returns its output.
pub fn succeed(command: Command) -> Result<String, String> {
    let text = format!("{command:?}");
    let ended = run(command)?;
    if !ended.is_ok() {
        let hung = if ended.hung { "hung" } else { "" };
        return Err(format!("{text}: {} {hung}\n{}\n{}", ended.status, ended.text().join("\n"), ended.messages));
    }
    Ok(ended.text().join("\n"))
}

/// All files below, sorted.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files(&entry.path())?),
            _ => all.push(entry.path()),
        }
    }
    all.sort();
    Ok(all)
}

/// Journals and marks below a folder.
pub fn leftovers(folder: &Path) -> Result<Vec<String>, String> {
    let mut left = Vec::new();
    for path in files(folder)? {
        if path.components().any(|part| part.as_os_str() == ".famio") {
            left.push(path.display().to_string());
        } else if !path.is_symlink() && famio_kill::harness::has_mark(&path) {
            left.push(format!("the attribute user.famio of {}", path.display()));
        }
    }
    Ok(left)
}

/// Empties a folder.
pub fn clear(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
            .map_err(failed)?;
    }
    Ok(())
}
