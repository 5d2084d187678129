//! Checks that the program can be protected.

use super::protect::Protect;
use crate::failure::Failure;
use crate::program::{self, elf, preload, search};
use crate::settings::{self, ByGlob, Layer, LogLevelName, LogTarget, Origins};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A program that may be run: no reason to refuse it was found.
pub struct Checked {
    /// The settings of all sources.
    pub layer: Layer,
    /// The sources of the settings.
    pub origins: Origins,
    /// The preload library.
    pub library: PathBuf,
    /// The program; `None`: there is no command.
    pub path: Option<PathBuf>,
}

/// Gathers the settings, and refuses a program that would run without protection. Without a command, checks only the
/// settings.
pub fn check(protect: &Protect, command: &[OsString]) -> Result<Checked, Failure> {
    let layers = gather(protect).map_err(Failure::refused)?;
    let (layer, origins) = (settings::merge(&layers), Origins::of(&layers));
    if layer.atomic.is_empty() {
        return Err(Failure::refused(
            "nothing to protect: give --atomic GLOB, or set FAMIO_ATOMIC, or 'atomic' in famio.toml",
        ));
    }
    if let Some(pool) = &layer.pool {
        crate::pool::check(pool).map_err(Failure::refused)?;
    }
    if let Some(shm) = &layer.shm {
        famio::sys::shm::check(shm).map_err(|error| Failure::refused(error.to_string()))?;
    }
    if let Some(log) = &layer.log {
        log.check().map_err(Failure::refused)?;
    }
    let library = preload::find().map_err(Failure::refused)?;
    let Some(name) = command.first() else { return Ok(Checked { layer, origins, library, path: None }) };
    let path = search::find(name).map_err(|failure| expanded(protect, name, failure))?;
    let main = program::check(&path)?;
    if crate::look::open(&main).is_ok_and(|file| elf::is_go(&file)) {
        eprintln!(
            "famio: {}: a Go program, which makes its system calls itself: only files that C libraries in it use are \
             protected; famio doctor says more",
            path.display()
        );
    }
    Ok(Checked { layer, origins, library, path: Some(path) })
}

/// Adds a hint to the failure if the shell has expanded a glob without quotes: the second file is then taken for the
/// program.
fn expanded(protect: &Protect, name: &OsStr, failure: Failure) -> Failure {
    let Some(last) = protect.atomic.last().map(Path::new) else { return failure };
    let name = Path::new(name);
    if !last.is_file() || !name.is_file() || last.parent() != name.parent() || last == name {
        return failure;
    }
    let message = format!(
        "{}; it looks as if the shell had expanded a glob: {} went to --atomic, and the next file was taken for the program: \
         put the glob in quotes, and -- before the program",
        failure.message,
        last.display()
    );
    Failure::new(failure.status, message)
}

/// The settings of all sources, the strongest first.
fn gather(protect: &Protect) -> Result<Vec<(settings::Source, Layer)>, String> {
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    let mut top = protect.options.layer()?;
    for glob in &protect.atomic {
        top.atomic.push(settings::absolute(glob, &here).map_err(|error| format!("--atomic: {error}"))?);
        top.given.push(glob.to_string_lossy().into_owned());
    }
    top.policy = protect.policy;
    top.locks = protect.locks;
    top.journal = protect.journal;
    top.on_close = protect.on_close;
    top.defer_close = protect.defer_close;
    top.journal_limit = protect.journal_limit;
    top.map_memory = protect.map_memory;
    top.write_back = protect.write_back;
    top.application = protect.application.clone().filter(|name| !name.is_empty());
    top.pool_weight = protect.pool_weight;
    top.on_kill = ByGlob::all(&protect.on_kill)?;
    top.atomicity = ByGlob::all(&protect.atomicity)?;
    top.async_io = protect.async_io;
    top.require = protect.require.then_some(true);
    let log = protect.log.as_ref().map(|log| LogTarget::of(log, &here));
    top.log = log.transpose().map_err(|error| format!("--log: {error}"))?;
    top.log_level = protect.log_level.or(protect.quiet.then_some(LogLevelName::Error));
    settings::layers(top, protect.options.config())
}
