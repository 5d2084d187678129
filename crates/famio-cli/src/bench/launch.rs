//! A program plain, or under `famio run` with the options that the bench was given.

use crate::settings::{Options, PolicyName};
use clap::ValueEnum;
use std::ffi::OsStr;
use std::process::Command;

/// How the Famio side of a bench runs.
pub struct Under<'a> {
    pub options: &'a Options,
    /// `None`: what Famio chooses.
    pub policy: Option<PolicyName>,
}

impl Under<'_> {
    /// Runs `program` with these files or globs as atomic files.
    pub fn famio(&self, atomic: &[impl AsRef<OsStr>], program: &OsStr) -> Result<Command, String> {
        let mut command = Command::new(me()?);
        command.arg("run");
        atomic.iter().for_each(|glob| {
            command.arg("--atomic").arg(glob);
        });
        if let Some(pool) = &self.options.pool {
            command.arg("--pool").arg(pool);
        }
        if let Some(shm) = &self.options.shm {
            command.arg("--shm").arg(shm);
        }
        command.args(self.options.config().options());
        let mut word = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        };
        word("--durability", self.options.durability.map(name));
        word("--domain", self.options.domain.map(name));
        word("--policy", self.policy.map(name));
        command.arg("--").arg(program);
        Ok(command)
    }
}

/// The path of this command.
pub fn me() -> Result<std::path::PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))
}

/// The command-line word for a value.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
