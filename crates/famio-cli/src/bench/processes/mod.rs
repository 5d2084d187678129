//! `famio bench processes`: several processes that read and write one file, plain and under Famio.

mod blocks;
mod crew;
mod database;
mod library;
mod modes;
mod patterns;
mod rows;
mod table;
mod token;
mod window;
mod worker;

pub use modes::{figure as modes, is_there as sqlite_is_there, steps as modes_steps};
pub use worker::Args as WorkArgs;
pub use worker::main as work_main;

use super::launch::{Under, me, name};
use super::output::Json;
use super::results::Method;
use crate::settings::{Options, PolicyName};
use clap::ValueEnum;
use crew::Outcome;
use famio::Settings;
use patterns::{Group, Pattern, Setup};
use rows::Row;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use token::Token;

/// Several processes that read and write one file, plain and under Famio
///
/// Readers and writers of blocks by file calls, and of rows by SQLite; SQLite in one process; and two processes that
/// write alternately. Each reader and writer is a process that times its own calls. All setups run in each round:
/// plain file calls and Famio; SQLite with its journal modes DELETE and WAL, and with MEMORY under Famio. A read is
/// one pread of a random block, or one SELECT of a random row; a write is one pwrite with its fsync, or one
/// transaction. Readers check that a block or row is of one write, and at the end each database is checked for lost
/// updates; the command fails if a check fails.
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
    folder: PathBuf,
    /// Measure this alone
    #[arg(long, value_enum, hide_possible_values = true, value_name = "files|sqlite|sqlite-alone|hand-over")]
    only: Option<Group>,
    /// So many readers, in place of the usual patterns of files and sqlite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=48))]
    readers: Option<u32>,
    /// So many writers, in place of the usual patterns of files and sqlite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=12))]
    writers: Option<u32>,
    /// Writes a second of each of these writers [default: as many as it can]
    #[arg(long, value_name = "N", requires = "writers", value_parser = positive)]
    rate: Option<f64>,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement, after a fifth of that to warm up
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    seconds: f64,
    /// One round of a tenth of a second each
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    short: bool,
    /// Size of the file in MiB, for file calls
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Rows of the database
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    #[command(flatten)]
    output: Json,
    #[command(flatten)]
    options: Options,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= 86_400.0 => Ok(number),
        _ => Err("not a number above 0 and up to 86400".into()),
    }
}

impl Args {
    /// Rounds, and seconds per measurement.
    fn extent(&self) -> (u32, f64) {
        if self.short { (1, 0.1) } else { (self.rounds, self.seconds) }
    }
}

#[derive(Serialize)]
struct Extent {
    /// Per measurement.
    seconds: f64,
    /// Size of the file, for file calls.
    file_bytes: u64,
    /// Of the database.
    rows: u64,
    /// Under Famio. `None`: Famio's choice.
    policy: Option<String>,
}

/// Measures, and shows the rows: a table for each group when it is done.
pub fn main(args: &Args) -> Result<(), String> {
    if args.readers.unwrap_or(0) + args.writers.unwrap_or(0) == 0 && (args.readers, args.writers) != (None, None) {
        return Err("--readers and --writers: neither is above 0".into());
    }
    let (rounds, seconds) = args.extent();
    let policy = args.policy.map(name);
    let extent = Extent { seconds, file_bytes: args.size << 20, rows: args.rows, policy: policy.clone() };
    let method = Method::new(&args.folder, rounds, extent).under(&args.options);
    let text = |_: &[Row]| {
        format!(
            "{rounds} rounds of {seconds} s, all setups in turn; medians, but LONGEST of all rounds; microseconds; \
             HAND-OVERS in one measurement; policy {}\n",
            policy.unwrap_or("as Famio chooses".into())
        )
    };
    method.show(&args.output, || measure(args), text)
}

fn measure(args: &Args) -> Result<Vec<Row>, String> {
    let groups = Group::value_variants().iter().filter(|&&group| args.only.is_none_or(|only| only == group));
    if groups.clone().any(|group| group.is_sqlite()) {
        library::Sqlite::load()?; // now, not after half of the measurements
    }
    let bench = Bench::new(args)?;
    let mut all = Vec::new();
    for &group in groups {
        let patterns = group.patterns(args);
        let rows = rows::rows(group, &patterns, &bench.measure(group, &patterns)?);
        if !args.output.json {
            print!("{}", table::text(group, &rows));
        }
        all.extend(rows);
    }
    Ok(all)
}

/// For each pattern and setup, the result of each round.
type Outcomes = Vec<Vec<Vec<Outcome>>>;

/// A run of the command, with its own folder.
struct Bench<'a> {
    args: &'a Args,
    settings: Settings,
    folder: PathBuf,
    rounds: u32,
    time: Duration,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args) -> Result<Self, String> {
        let (rounds, seconds) = args.extent();
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
        let settings = args.options.gather()?;
        let folder = args.folder.join(format!("famio-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { args, settings, folder, rounds, time })
    }

    fn measure(&self, group: Group, patterns: &[Pattern]) -> Result<Outcomes, String> {
        let setups = group.setups();
        let mut outcomes: Outcomes = patterns.iter().map(|_| setups.iter().map(|_| Vec::new()).collect()).collect();
        if !group.is_sqlite() {
            setups.iter().try_for_each(|setup| {
                let file = self.file(setup);
                blocks::prepare(&file, self.args.size << 20).map_err(|error| format!("{}: {error}", file.display()))
            })?;
        }
        for _ in 0..self.rounds {
            for (pattern, outcomes) in patterns.iter().zip(&mut outcomes) {
                for (setup, outcomes) in setups.iter().zip(outcomes) {
                    let one = self.one(group, pattern, setup);
                    outcomes.push(one.map_err(|error| format!("{}, {}: {error}", pattern.title, setup.title))?);
                }
            }
        }
        Ok(outcomes)
    }

    /// The file of a setup. Each has its own, since Famio may leave a file in huge pages.
    fn file(&self, setup: &Setup) -> PathBuf {
        self.folder.join(format!("{}.db", if setup.under_famio { "famio" } else { "plain" }))
    }

    /// One measurement, of a new database or of the existing file.
    fn one(&self, group: Group, pattern: &Pattern, setup: &Setup) -> Result<Outcome, String> {
        let file = self.file(setup);
        if group.is_sqlite() {
            for suffix in ["", "-wal", "-shm", "-journal"] {
                let _ = std::fs::remove_file(file.with_extension(format!("db{suffix}")));
            }
            let journal = if setup.under_famio { "DELETE" } else { setup.journal };
            database::prepare(&file, self.args.rows, journal)?;
        }
        let token = self.folder.join("token");
        Token::prepare(&token).map_err(|error| format!("{}: {error}", token.display()))?;
        let mut commands = Vec::new();
        for (number, job) in pattern.jobs.iter().enumerate() {
            let mut command = self.command(setup, &file)?;
            command.args(["bench", "process-work", "--task", &name(job.task), "--me", &number.to_string()]);
            command.args(["--rows", &self.args.rows.to_string(), "--uncommitted", &pattern.uncommitted.to_string()]);
            command.arg("--token").arg(&token);
            if let Some(rate) = job.rate {
                command.args(["--rate", &rate.to_string()]);
            }
            if group.is_sqlite() {
                command.args(["--journal", setup.journal]);
            }
            if pattern.exclusive {
                command.arg("--exclusive");
            }
            command.arg(&file);
            commands.push((command, job.task.is_read()));
        }
        let count = || if setup.under_famio { self.hand_overs(&file) } else { Ok(0) };
        let outcome = crew::run(commands, self.time, count)?;
        if setup.under_famio && outcome.reads.torn > 0 {
            return Err(format!("{} of {} reads gave parts of two writes", outcome.reads.torn, outcome.reads.all));
        }
        if group.is_sqlite() {
            let changes = outcome.writes.all;
            let change = pattern.jobs.iter().find_map(|job| job.task.change());
            let rows = change.map_or(self.args.rows, |change| database::rows_after(change, self.args.rows, changes));
            database::check(&file, rows, if change == Some(database::Change::Update) { changes } else { 0 })?;
        }
        Ok(outcome)
    }

    /// This command, plain or under Famio.
    fn command(&self, setup: &Setup, file: &Path) -> Result<Command, String> {
        let me = me()?;
        if setup.under_famio {
            Under { options: &self.args.options, policy: self.args.policy }.famio(&[file], me.as_os_str())
        } else {
            Ok(Command::new(me))
        }
    }

    /// How often the file was handed over so far.
    fn hand_overs(&self, file: &Path) -> Result<u64, String> {
        let counted = famio::recovery::hand_overs(file, &self.settings).map_err(|error| error.to_string())?;
        Ok(counted.unwrap_or(0).into())
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
