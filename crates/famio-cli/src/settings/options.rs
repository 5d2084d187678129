//! The options that every command has.

use super::layer::Layer;
use super::names::{DomainName, DurabilityName, TierName};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The options that every command has.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Folder that holds the journals; it must exist [default: .famio/ beside each file]
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
    /// Whether a pool on persistent memory (or on tmpfs, with --durability process) takes the SYNCs of files on a
    /// disk, and the disk is written later [default: auto]
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
}
