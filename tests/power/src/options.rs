//! What a campaign is told.

use crate::names::{self, Names};
use clap::{Args, ValueEnum};
use famio::pmem::Domain;
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
    /// Only files on the disk with their journals on persistent memory; some are written back all the time
    #[arg(long)]
    pub tiered: bool,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// A Famio whose commit or write-back lacks something, in the stamped writers: damage is expected
    #[arg(long, value_enum)]
    pub broken: Option<Broken>,
    /// Keep the disks in this folder [default: a new one, which goes at the end]
    #[arg(long)]
    pub state: Option<PathBuf>,
}

impl Options {
    /// # Errors
    /// What is broken is a part of no file's commit.
    pub fn check(&self) -> Result<(), String> {
        let stamped = Names::of(self.tiered).stamped;
        match self.broken.filter(|broken| !stamped.iter().any(|name| broken.concerns(name))) {
            Some(broken) => Err(format!("--broken {} concerns none of {}", broken.word(), stamped.join(", "))),
            None => Ok(()),
        }
    }
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
    /// Of a tiered file (--tiered): the fdatasync of the file before its part of the journal is free
    WriteBack,
}

impl Broken {
    /// Whether what is left out is a part of this file's commit or write-back.
    pub fn concerns(self, name: &str) -> bool {
        match self {
            Broken::Fence | Broken::Flush => names::domain(name) == Domain::Pmem,
            Broken::Fdatasync => names::domain(name) == Domain::PageCache,
            Broken::WriteBack => names::is_tight(name),
        }
    }

    /// Its name on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }
}
