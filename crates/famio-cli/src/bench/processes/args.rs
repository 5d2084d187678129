//! The options of the command.

use super::group::Group;
use crate::bench::arguments::positive;
use crate::bench::output::Json;
use crate::settings::{Options, PolicyName};
use std::path::PathBuf;

/// Several processes that read and write one file, plain and under Famio
///
/// Readers and writers of blocks by file calls, and of rows by SQLite; SQLite in one process; processes that open a
/// database for each request; and two processes that write alternately. Each reader and writer is a process that times
/// its own calls. All setups run in each round: plain file calls and Famio; SQLite with its journal modes DELETE and
/// WAL, and with MEMORY under Famio. A read is one pread of a random block, or one SELECT of a random row; a write is
/// one pwrite with its fsync, or one transaction. Readers check that a block or row is of one write, and at the end
/// each database is checked for lost updates; the command fails if a check fails.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench processes --folder /dev/shm --domain emulated
  famio bench processes --folder /mnt/data --only sqlite
  famio bench processes --only files --readers 4 --writers 1 --rate 100
  famio bench processes --short                          # whether it works; the figures say little")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Measure this alone
    #[arg(long, value_enum, hide_possible_values = true, value_name = "files|sqlite|sqlite-alone|requests|hand-over")]
    pub only: Option<Group>,
    /// So many readers, in place of the usual patterns of files and sqlite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=48))]
    pub readers: Option<u32>,
    /// So many writers, in place of the usual patterns of files and sqlite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=12))]
    pub writers: Option<u32>,
    /// Writes a second of each of these writers [default: as many as it can]
    #[arg(long, value_name = "N", requires = "writers", value_parser = positive)]
    pub rate: Option<f64>,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seconds of each measurement, after a fifth of that to warm up
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    pub seconds: f64,
    /// One round of a tenth of a second each
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub short: bool,
    /// Size of the file in MiB, for file calls
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub size: u64,
    /// Rows of the database
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    pub policy: Option<PolicyName>,
    #[command(flatten)]
    pub output: Json,
    #[command(flatten)]
    pub options: Options,
}

impl Args {
    /// Rounds, and seconds per measurement.
    pub fn extent(&self) -> (u32, f64) {
        if self.short { (1, 0.1) } else { (self.rounds, self.seconds) }
    }
}
