//! The options of the mode.

use famio_test_support::arguments::duration;
use std::time::Duration;

/// Kill processes in containers that share a nearly full pool, and check files, shares and the time of commits
///
/// Exit status: 0 if all is right; 77 if there can be no containers here; without Famio, 0 if something is torn.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long
    #[arg(long = "for", value_parser = duration, default_value = "10s")]
    pub time: Duration,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Size of the pool in MiB
    #[arg(long, default_value_t = 48)]
    pub size: u64,
    /// Size of each file in MiB
    #[arg(long, default_value_t = 48)]
    pub file: u64,
    /// Kills in a second
    #[arg(long, default_value_t = 1)]
    pub kills: u32,
    /// Longest time of a commit, from its first write on, not counting what the machine took
    #[arg(long, value_parser = duration, default_value = "1s")]
    pub limit: Duration,
    /// Longest pause of a process between two epochs, in microseconds
    #[arg(long, default_value_t = 100)]
    pub pause: u64,
    /// As for famio run; its own default leaves more of the pool free
    #[arg(long, default_value = "90:80")]
    pub write_back: String,
    /// Plain files; torn epochs are expected
    #[arg(long)]
    pub without_famio: bool,
    /// More options for famio run
    #[arg(last = true)]
    pub options: Vec<String>,
}
