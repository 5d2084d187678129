//! Settings from the command line, the environment and `famio.toml`, in this order of precedence. Globs accumulate.

mod by_glob;
mod environment;
pub mod file;
mod globs;
mod layer;
mod log;
pub mod matches;
mod names;
mod options;
mod origins;
mod size;
mod sources;
mod trust;
mod weight;
mod write_back;

pub use by_glob::ByGlob;
pub use environment::APPLICATION;
pub use globs::{absolute, alternatives, folder_of};
pub use layer::Layer;
pub use log::{LogLevelName, LogTarget};
pub use names::{
    AsyncIoName, DeferCloseName, DomainName, DurabilityName, JournalName, LocksName, OnCloseName, PolicyName, TierName,
};
pub use options::{ConfigChoice, Options};
pub use origins::{Glob, Origins, Setting, Source};
pub use size::Size;
pub use sources::{layers, merge};
pub use weight::Weight;
pub use write_back::WriteBack;
