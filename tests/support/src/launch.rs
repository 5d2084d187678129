//! How sqlite3 is started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts sqlite3 on one database, with or without Famio.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The sqlite3 program.
    pub sqlite: PathBuf,
    /// `famio` and the options of `famio run`; `None`: without Famio.
    pub famio: Option<Famio>,
}

/// The famio command and its options.
#[derive(Clone, Debug)]
pub struct Famio {
    /// The command.
    pub binary: PathBuf,
    /// Options of `famio run`, besides `--atomic`.
    pub options: Vec<OsString>,
}

impl Famio {
    /// The famio command beside this program.
    pub fn beside_me(options: &[&str]) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        let binary = me.with_file_name("famio");
        if !binary.exists() {
            return Err(format!("{}: not built; run 'make' first", binary.display()));
        }
        Ok(Self { binary, options: options.iter().map(OsString::from).collect() })
    }

    /// `famio run` with these globs, up to the `--`: the program and its arguments must be added.
    pub fn run(&self, globs: &[OsString]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("run");
        for glob in globs {
            command.arg("--atomic").arg(glob);
        }
        command.args(&self.options).arg("--");
        command
    }
}

impl Launcher {
    /// Uses the first sqlite3 in `PATH`.
    pub fn new(famio: Option<Famio>) -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join("sqlite3")).find(|file| file.is_file());
        Ok(Self { sqlite: found.ok_or("sqlite3 is not installed (apt-get install sqlite3)")?, famio })
    }

    /// The command that runs sqlite3 on `database`, reading statements and stopping at the first error.
    pub fn command(&self, database: &Path) -> Command {
        let mut command = match &self.famio {
            None => Command::new(&self.sqlite),
            Some(famio) => {
                let mut command = famio.run(&[literal(database)]);
                command.arg(&self.sqlite);
                command
            }
        };
        command.args(["-batch", "-bail", "-init", "/dev/null"]).arg(database);
        command
    }
}

/// A glob that matches only this path.
pub fn literal(path: &Path) -> OsString {
    let mut text = OsString::new();
    for character in path.to_string_lossy().chars() {
        match character {
            '*' | '?' | '[' | ']' => text.push(OsStr::new(&format!("[{character}]"))),
            _ => text.push(OsStr::new(character.encode_utf8(&mut [0; 4]))),
        }
    }
    text
}
