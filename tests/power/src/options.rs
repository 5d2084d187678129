//! What a campaign is told.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The options of a campaign.
#[derive(Args)]
pub struct Options {
    /// Power cuts
    #[arg(long, default_value_t = 3)]
    pub cuts: u64,
    /// File system of the persistent memory
    #[arg(long, default_value = "ext4", value_parser = ["ext4", "xfs"])]
    pub fs: String,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// A Famio whose commit lacks something, in the stamped writers: damage is expected
    #[arg(long, value_enum)]
    pub broken: Option<Broken>,
    /// Keep the disks in this folder [default: a new one, which goes at the end]
    #[arg(long)]
    pub state: Option<PathBuf>,
}

/// What is left out of each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Broken {
    /// On persistent memory: the fence behind the commit slot
    Fence,
    /// On persistent memory: the write-back of the commit slot
    Flush,
    /// On the disk: the fdatasync of the journal
    Fdatasync,
}
