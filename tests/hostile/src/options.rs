//! What is wanted.

use clap::Args;
use famio_test_support::arguments::duration;
use std::path::PathBuf;
use std::time::Duration;

/// The options of a campaign.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// So long (`90s`, `60m`)
    #[arg(long = "for", value_parser = duration, default_value = "30s")]
    pub time: Duration,
    /// So many cases instead; one: that of the seed itself
    #[arg(long)]
    pub cases: Option<u64>,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// On which file systems
    #[arg(long, default_value = "both", value_parser = ["tmpfs", "disk", "both"])]
    pub on: String,
    /// Without these classes of steps (`--without list` names them)
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<String>,
    /// With these, which are left out otherwise
    #[arg(long, value_delimiter = ',')]
    pub with: Vec<String>,
    /// With these classes and no others
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Without Famio: nothing may be found then, but what kills do
    #[arg(long)]
    pub without_famio: bool,
    /// Folder of famio and libfamio_preload.so [default: that of this program]
    #[arg(long)]
    pub famio: Option<PathBuf>,
    /// Steps of a program
    #[arg(long, default_value_t = 120)]
    pub steps: u32,
    /// Stop after this many different findings
    #[arg(long, default_value_t = 30)]
    pub most: usize,
    /// Where what was found is kept [default: /tmp/famio-hostile-evidence-PID]
    #[arg(long)]
    pub keep: Option<PathBuf>,
}
