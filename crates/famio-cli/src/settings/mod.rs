//! Settings from the command line, the environment and `famio.toml`, in this order of precedence. Globs accumulate.

mod by_glob;
mod environment;
pub mod file;
mod globs;
mod log;
mod origins;
mod size;
mod trust;
mod write_back;

use clap::{Args, ValueEnum};
use famio::{Atomicity, Durability, JournalChoice, LocksChoice, OnClose, OnKill, PolicyChoice, Settings, TierChoice};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use by_glob::ByGlob;
pub use globs::{absolute, alternatives, folder_of};
pub use log::{LogLevelName, LogTarget};
pub use origins::{Glob, Origins, Setting, Source};
pub use size::Size;
pub use write_back::WriteBack;

/// What a SYNC must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityName {
    /// Power loss, if the file system permits
    Power,
    /// The end of the process, however it ends; faster, and gone at a power cut
    Process,
}

/// A domain that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainName {
    /// Treat ordinary memory as persistent memory, to measure and to test
    Emulated,
}

/// Which home a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Chosen per file at each SYNC
    Auto,
    /// Old bytes to the journal, new bytes to the file
    Undo,
    /// New bytes to the journal, copied to the file later
    Redo,
    /// To the file or the journal, whichever does not hold the committed copy
    Alternate,
}

/// Where a program's locks on a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocksName {
    /// In memory while no other process can have the file open
    Auto,
    /// In the kernel
    Kernel,
}

/// Whether a pool in memory forms a tier above files on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierName {
    /// It is
    Auto,
    /// It is used as one on a disk
    Off,
}

/// Which files have a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalName {
    /// Files that need one: not those that are new or only grow
    Auto,
    /// All that are changed
    Always,
}

/// What the last close of a file does with what no SYNC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCloseName {
    /// Commit: the close waits for the disk
    Commit,
    /// Leave a new file that was never synced to the kernel
    Leave,
}

/// Whether a program may set up io_uring or kernel AIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AsyncIoName {
    /// ENOSYS, so that programs fall back to calls that Famio handles
    Refuse,
    /// Their requests on atomic files are not protected
    Allow,
}

/// The options that every command has.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Folder that holds the journals [default: .famio/ beside each file]
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
    /// Folder on tmpfs in which processes share memory, the same for all processes that have a file open, also in
    /// containers [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub shm: Option<PathBuf>,
    /// What a SYNC must survive [default: power]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "power|process")]
    pub durability: Option<DurabilityName>,
    /// Treat ordinary memory as persistent memory, to measure and to test
    #[arg(long, value_enum, hide_possible_values = true, value_name = "emulated")]
    pub domain: Option<DomainName>,
    /// Whether a pool on persistent memory (or in memory, with --durability process) takes the SYNCs of files on a disk, and the
    /// disk is written later [default: auto]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|off")]
    pub tier: Option<TierName>,
    /// Read settings from FILE [default: famio.toml here or in a folder above]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read no famio.toml
    #[arg(long, conflicts_with = "config")]
    pub no_config: bool,
}

/// Which `famio.toml` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigChoice<'a> {
    /// The one found here or in a folder above.
    Search,
    File(&'a Path),
    None,
}

impl ConfigChoice<'_> {
    /// The command-line options for this choice.
    pub fn options(self) -> Vec<OsString> {
        match self {
            ConfigChoice::Search => Vec::new(),
            ConfigChoice::File(path) => vec!["--config".into(), path.into()],
            ConfigChoice::None => vec!["--no-config".into()],
        }
    }
}

/// The settings of one source; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// Globs of atomic files: names, or absolute paths.
    pub atomic: Vec<OsString>,
    /// The same as the user wrote them.
    pub given: Vec<String>,
    /// The pool, absolute.
    pub pool: Option<PathBuf>,
    /// The folder of shared memory, absolute.
    pub shm: Option<PathBuf>,
    /// What a SYNC must survive.
    pub durability: Option<DurabilityName>,
    /// A domain that was asked for.
    pub domain: Option<DomainName>,
    /// The policy.
    pub policy: Option<PolicyName>,
    /// Where locks are kept.
    pub locks: Option<LocksName>,
    /// Which files have a journal.
    pub journal: Option<JournalName>,
    /// What the last close of a file does.
    pub on_close: Option<OnCloseName>,
    /// The size to which a journal may grow.
    pub journal_limit: Option<Size>,
    /// Whether a pool in memory is a tier.
    pub tier: Option<TierName>,
    /// How much of the tier is a write cache.
    pub write_back: Option<WriteBack>,
    /// The size up to which a mapped file is copied to memory.
    pub map_memory: Option<Size>,
    /// Whether io_uring and kernel AIO may be set up.
    pub async_io: Option<AsyncIoName>,
    /// Whether a file that can't be protected is an error.
    pub require: Option<bool>,
    /// What happens to writes that no SYNC covers if their process is killed.
    pub on_kill: Option<ByGlob<OnKill>>,
    /// What is atomic by itself.
    pub atomicity: Option<ByGlob<Atomicity>>,
    /// Where the library's messages go.
    pub log: Option<LogTarget>,
    /// Which messages there are.
    pub log_level: Option<LogLevelName>,
}

impl Layer {
    /// This layer, with another one below that fills in what it leaves open.
    pub fn over(mut self, below: Layer) -> Layer {
        for (glob, given) in below.atomic.into_iter().zip(below.given) {
            if !self.atomic.contains(&glob) {
                self.atomic.push(glob);
                self.given.push(given);
            }
        }
        Layer {
            atomic: self.atomic,
            given: self.given,
            pool: self.pool.or(below.pool),
            shm: self.shm.or(below.shm),
            durability: self.durability.or(below.durability),
            domain: self.domain.or(below.domain),
            policy: self.policy.or(below.policy),
            locks: self.locks.or(below.locks),
            journal: self.journal.or(below.journal),
            on_close: self.on_close.or(below.on_close),
            journal_limit: self.journal_limit.or(below.journal_limit),
            tier: self.tier.or(below.tier),
            write_back: self.write_back.or(below.write_back),
            map_memory: self.map_memory.or(below.map_memory),
            async_io: self.async_io.or(below.async_io),
            require: self.require.or(below.require),
            on_kill: self.on_kill.or(below.on_kill),
            atomicity: self.atomicity.or(below.atomicity),
            log: self.log.or(below.log),
            log_level: self.log_level.or(below.log_level),
        }
    }

    /// The library's settings.
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            pool: self.pool.clone(),
            shm: self.shm.clone(),
            durability: match self.durability {
                Some(DurabilityName::Process) => Durability::Process,
                Some(DurabilityName::Power) | None => Durability::Power,
            },
            emulated: self.domain == Some(DomainName::Emulated),
            policy: match self.policy {
                Some(PolicyName::Undo) => PolicyChoice::Undo,
                Some(PolicyName::Redo) => PolicyChoice::Redo,
                Some(PolicyName::Alternate) => PolicyChoice::Alternate,
                Some(PolicyName::Auto) | None => PolicyChoice::Auto,
            },
            locks: match self.locks {
                Some(LocksName::Kernel) => LocksChoice::Kernel,
                Some(LocksName::Auto) | None => LocksChoice::Auto,
            },
            journal: match self.journal {
                Some(JournalName::Always) => JournalChoice::Always,
                Some(JournalName::Auto) | None => JournalChoice::Auto,
            },
            on_close: match self.on_close {
                Some(OnCloseName::Leave) => OnClose::Leave,
                Some(OnCloseName::Commit) | None => OnClose::Commit,
            },
            journal_limit: self.journal_limit.map_or(default.journal_limit, |Size(bytes)| bytes),
            tier: match self.tier {
                Some(TierName::Auto) | None => TierChoice::Auto,
                Some(TierName::Off) => TierChoice::Off,
            },
            write_back: self.write_back.map_or(default.write_back, |WriteBack(range)| range),
            map_memory: self.map_memory.map(|Size(bytes)| bytes),
            require: self.require.unwrap_or(default.require),
            on_kill: self.on_kill.as_ref().map_or(default.on_kill, ByGlob::of_all),
            atomicity: self.atomicity.as_ref().map_or(default.atomicity, ByGlob::of_all),
        }
    }

    /// The environment variables for the preload library.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut list = vec![(environment::ATOMIC, self.atomic.join("\n".as_ref()))];
        let mut add = |name, value: Option<OsString>| list.extend(value.map(|value| (name, value)));
        add(environment::POOL, self.pool.clone().map(Into::into));
        add(environment::SHM, self.shm.clone().map(Into::into));
        add(environment::DURABILITY, self.durability.map(name_of));
        add(environment::DOMAIN, self.domain.map(name_of));
        add(environment::POLICY, self.policy.map(name_of));
        add(environment::LOCKS, self.locks.map(name_of));
        add(environment::JOURNAL, self.journal.map(name_of));
        add(environment::ON_CLOSE, self.on_close.map(name_of));
        add(environment::JOURNAL_LIMIT, self.journal_limit.map(|Size(bytes)| bytes.to_string().into()));
        add(environment::TIER, self.tier.map(name_of));
        add(environment::WRITE_BACK, self.write_back.map(|range| range.to_string().into()));
        add(environment::MAP_MEMORY, self.map_memory.map(|Size(bytes)| bytes.to_string().into()));
        add(environment::ASYNC_IO, self.async_io.map(name_of));
        add(environment::REQUIRE, self.require.map(|require| if require { "1" } else { "0" }.into()));
        add(environment::ON_KILL, self.on_kill.as_ref().map(ByGlob::variable));
        add(environment::ATOMICITY, self.atomicity.as_ref().map(ByGlob::variable));
        add(environment::LOG, self.log.as_ref().map(LogTarget::text));
        add(environment::LOG_LEVEL, self.log_level.map(name_of));
        list
    }
}

/// The command-line word for a value.
fn name_of(value: impl ValueEnum) -> OsString {
    value.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

/// All sources together: `top` is the command line's layer, already absolute.
pub fn gather(top: Layer, config: ConfigChoice<'_>) -> Result<Layer, String> {
    Ok(merge(&layers(top, config)?))
}

/// All sources one by one, the strongest first.
pub fn layers(top: Layer, config: ConfigChoice<'_>) -> Result<Vec<(Source, Layer)>, String> {
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    // The command line counts even if the variable is wrong; globs accumulate.
    let said: Vec<&str> =
        top.variables().into_iter().map(|(name, _)| name).filter(|name| *name != environment::ATOMIC).collect();
    let environment = environment::read(|name| std::env::var_os(name).filter(|_| !said.contains(&name)), &here)?;
    let mut all = vec![(Source::CommandLine, top), (Source::Environment, environment)];
    let path = match config {
        ConfigChoice::None => None,
        ConfigChoice::File(path) => Some(path.to_path_buf()),
        ConfigChoice::Search => file::search(&here, std::env::var_os("HOME").as_deref().map(Path::new)),
    };
    if let Some(path) = path {
        let layer = file::read(&path)?;
        all.push((Source::File(path), layer));
    }
    all.iter().try_for_each(|(source, layer)| check_limit(source, layer))?;
    Ok(all)
}

/// The least useful size of a journal.
const LEAST_JOURNAL: u64 = 1 << 20;

fn check_limit(source: &Source, layer: &Layer) -> Result<(), String> {
    match layer.journal_limit {
        Some(Size(bytes)) if bytes < LEAST_JOURNAL => {
            let (source, given, least) =
                (source.names("journal-limit"), crate::text::bytes(bytes), crate::text::bytes(LEAST_JOURNAL));
            Err(format!(
                "{source}: {given} is too small: a journal needs {least} at least; write a unit, for example 64MiB"
            ))
        }
        _ => Ok(()),
    }
}

/// Combines several sources, the strongest first.
pub fn merge(layers: &[(Source, Layer)]) -> Layer {
    layers.iter().fold(Layer::default(), |above, (_, layer)| above.over(layer.clone()))
}

impl Options {
    /// These options as a layer; the caller adds globs, policy and limit.
    pub fn layer(&self) -> Result<Layer, String> {
        let absolute = |option: &str, path: &Option<PathBuf>| match path {
            Some(path) => std::path::absolute(path).map(Some).map_err(|error| format!("{option}: {error}")),
            None => Ok(None),
        };
        let (pool, shm) = (absolute("--pool", &self.pool)?, absolute("--shm", &self.shm)?);
        Ok(Layer { pool, shm, durability: self.durability, domain: self.domain, tier: self.tier, ..Layer::default() })
    }

    /// Which `famio.toml` counts.
    pub fn config(&self) -> ConfigChoice<'_> {
        match &self.config {
            _ if self.no_config => ConfigChoice::None,
            Some(path) => ConfigChoice::File(path),
            None => ConfigChoice::Search,
        }
    }

    /// The settings of a command that has only these options.
    pub fn gather(&self) -> Result<Settings, String> {
        Ok(gather(self.layer()?, self.config())?.settings())
    }

    /// The same, with the globs and the origins of everything.
    pub fn gather_with_origins(&self) -> Result<(Settings, Origins), String> {
        let layers = layers(self.layer()?, self.config())?;
        Ok((merge(&layers).settings(), Origins::of(&layers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layers_win_and_globs_add_up() {
        let top = Layer {
            atomic: vec!["/a".into()],
            given: vec!["a".into()],
            policy: Some(PolicyName::Undo),
            ..Layer::default()
        };
        let below = Layer {
            atomic: vec!["/b".into(), "/a".into()],
            given: vec!["b".into(), "a".into()],
            policy: Some(PolicyName::Redo),
            journal_limit: Some(Size(1 << 20)),
            ..Layer::default()
        };
        let both = top.over(below);
        assert_eq!(
            (both.atomic.clone(), both.given.clone()),
            (vec!["/a".into(), "/b".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(both.settings().policy, PolicyChoice::Undo);
        assert_eq!(both.settings().journal_limit, 1 << 20);
    }

    #[test]
    fn the_preload_library_is_told_everything_that_was_said() {
        let layer = Layer {
            atomic: vec!["/a".into(), "/b*".into()],
            given: vec!["a".into(), "b*".into()],
            pool: Some("/pool".into()),
            shm: Some("/shm".into()),
            durability: Some(DurabilityName::Process),
            domain: Some(DomainName::Emulated),
            policy: Some(PolicyName::Alternate),
            locks: Some(LocksName::Kernel),
            journal: Some(JournalName::Always),
            on_close: Some(OnCloseName::Leave),
            journal_limit: Some(Size(5)),
            tier: Some(TierName::Off),
            write_back: Some("50:20".parse().unwrap()),
            map_memory: Some(Size(6)),
            async_io: Some(AsyncIoName::Allow),
            require: Some(true),
            on_kill: Some(ByGlob::Globs(vec!["/b*".into(), "*.ibd".into()])),
            atomicity: Some(ByGlob::All(Atomicity::Write)),
            log: Some(LogTarget::of("a.log".as_ref(), Path::new("/x")).unwrap()),
            log_level: Some(LogLevelName::Info),
        };
        let expected = [
            ("FAMIO_ATOMIC", "/a\n/b*"),
            ("FAMIO_POOL", "/pool"),
            ("FAMIO_SHM", "/shm"),
            ("FAMIO_DURABILITY", "process"),
            ("FAMIO_DOMAIN", "emulated"),
            ("FAMIO_POLICY", "alternate"),
            ("FAMIO_LOCKS", "kernel"),
            ("FAMIO_JOURNAL", "always"),
            ("FAMIO_ON_CLOSE", "leave"),
            ("FAMIO_JOURNAL_LIMIT", "5"),
            ("FAMIO_TIER", "off"),
            ("FAMIO_WRITE_BACK", "50:20"),
            ("FAMIO_MAP_MEMORY", "6"),
            ("FAMIO_ASYNC_IO", "allow"),
            ("FAMIO_REQUIRE", "1"),
            ("FAMIO_ON_KILL", "/b*\n*.ibd"),
            ("FAMIO_ATOMICITY", "write"),
            ("FAMIO_LOG", "/x/a.log"),
            ("FAMIO_LOG_LEVEL", "info"),
        ];
        assert_eq!(layer.variables(), expected.map(|(name, value)| (name, OsString::from(value))));
    }
}
