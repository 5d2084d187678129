//! `famio bench io`: generates file calls.

pub mod bare;
pub mod content;
mod counted;
mod files;
pub mod gathered;
pub mod lane;
pub mod measure;
pub mod medium;
pub mod sets;
pub mod side;
pub mod stream;
mod worker;

pub use worker::Args as WorkArgs;
pub use worker::main as work_main;

use super::document::effort::{Effort, Length};
use super::document::row::{Row, SideResult};
use super::document::workload::{Pattern, SyncEvery, Workload};
use super::document::{Document, Figure, Point, Shape};
use super::output::Output;
use super::report::{self, rows as table};
use super::session::Session;
use crate::failure::{FAILED, Failure};
use crate::out::json;
use crate::settings::{Options, PolicyName, Size};
use measure::{measure, steps};
use sets::Set;
use side::Side;
use std::path::PathBuf;

/// Reads, writes and SYNCs by file calls, plain and under Famio
///
/// Measures a table of workloads (--set), or one workload that the options describe. Each runs plain and under Famio
/// in each round, in random order, in new processes and on new files. Before the clock starts, each block is written
/// in three passes, or read once; with --cold there is no warm-up, and the first second of a new process is measured.
///
/// A CALL is the time of all calls together, with the workload's fsyncs, divided by their number. RATIO is the first
/// side's time by this side's: above 1, Famio is faster; beside it the interval in which 95 of 100 such runs would be,
/// from a bootstrap over the rounds. CPU and BY CPU are the same by the CPU time of the calling threads, which says
/// more on a busy machine. The percentiles are of single calls, with their fsyncs, timed in a second phase (with --cold
/// in a second process). FSYNC is the mean of an fsync. TO MEDIUM: bytes for each byte of the writes, to the disk, or
/// in memory those that Famio wrote to journal and file. Writes differ from each other, and after each measurement the
/// files must have what was written last.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench io --folder /dev/shm --domain emulated    # write-backs and fences are executed
  famio bench io --folder /dev/shm --domain emulated --set goals --cold
  famio bench io --folder /mnt/data --pattern zipf --io-size 1K --reads 80 --sync 5
  famio bench io --threads 2 --own-files --sync 10 --json
  famio bench io --control                              # plain against plain: the noise")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// A table of workloads
    #[arg(long, value_enum, default_value = "usual", conflicts_with_all = CUSTOM)]
    set: Set,
    /// Which part of the file comes next [default: random]
    #[arg(long, value_enum)]
    pattern: Option<Pattern>,
    /// Bytes of a call, from 64 to 2M [default: 4K]
    #[arg(long, value_name = "SIZE")]
    io_size: Option<Size>,
    /// Calls of 100 that read; the others write [default: 0]
    #[arg(long, value_name = "PERCENT")]
    reads: Option<u32>,
    /// fsync after so many writes of a thread: a number, or never, or pass, at the end of the file [default: never]
    #[arg(long, value_name = "N|never|pass")]
    sync: Option<SyncEvery>,
    /// Threads of each process [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    threads: Option<u32>,
    /// Processes [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    processes: Option<u32>,
    /// Each thread has a file of its own; otherwise all share one
    #[arg(long)]
    own_files: bool,
    /// read and write, at the descriptor's position, in place of pread and pwrite
    #[arg(long)]
    at_position: bool,
    /// Open the file for reading only, with --reads 100
    #[arg(long)]
    read_only: bool,
    /// Measure from the first call of a new process on, on a file that is there
    #[arg(long)]
    cold: bool,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement, once for all calls together and once for single calls [default: 0.5, with --cold 1]
    #[arg(long, value_name = "S", value_parser = super::arguments::positive)]
    seconds: Option<f64>,
    /// So many calls of each thread, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    calls: Option<u64>,
    /// Size of the file in MiB, or of all files of the threads together; what fits the CPU's caches shows other ratios
    /// [default: 512, or what fits in half of the free space]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    size: Option<u64>,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    /// Measure another library beside Famio, loaded by LD_PRELOAD; may be given several times
    #[arg(long, value_name = "NAME=PATH")]
    preload: Vec<Side>,
    /// Plain against plain, without Famio: how far two figures differ by themselves
    #[arg(long, conflicts_with_all = ["policy", "preload"])]
    control: bool,
    #[command(flatten)]
    output: Output,
    /// Write CSV in place of the table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    options: Options,
}

/// The options that describe a workload.
const CUSTOM: [&str; 8] = ["pattern", "io_size", "reads", "sync", "threads", "processes", "own_files", "at_position"];

impl Args {
    /// The workload that the options describe, if any.
    fn custom(&self) -> Option<Workload> {
        let options = [
            self.pattern.is_some(),
            self.io_size.is_some(),
            self.reads.is_some(),
            self.sync.is_some(),
            self.threads.is_some(),
            self.processes.is_some(),
            self.own_files,
            self.at_position,
            self.read_only,
        ];
        options.contains(&true).then(|| Workload {
            pattern: self.pattern.unwrap_or(Pattern::Random),
            io_size: self.io_size.map_or(4096, |size| size.0),
            reads: self.reads.unwrap_or(0),
            sync: self.sync.unwrap_or(SyncEvery::Never),
            threads: self.threads.unwrap_or(1),
            processes: self.processes.unwrap_or(1),
            own_files: self.own_files,
            at_position: self.at_position,
            in_containers: false,
            read_only: self.read_only,
            cold: false,
        })
    }

    fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::plain()];
        if self.control {
            sides.push(Side::plain_again());
        } else {
            sides.push(Side::famio(self.policy));
            sides.extend(self.preload.iter().cloned());
        }
        sides
    }
}

/// Measures, and prints the table.
pub fn main(args: &Args) -> Result<i32, Failure> {
    let failed = |error| Failure::new(FAILED, error);
    let effort = effort(args).map_err(failed)?;
    let mut document = Document::new(&args.folder, &effort, &args.options);
    let (rows, status) = run(args, &effort).map_err(failed)?;
    if args.output.json() || args.output.report.is_some() {
        document.complete = status == 0;
        document.figures.push(figure(rows.clone()));
    }
    if let Some(folder) = &args.output.report {
        report::write(folder, &document).map_err(failed)?;
    }
    if args.output.json() {
        json(&document)?;
    } else if args.csv {
        print!("{}", table::csv(&rows));
    } else {
        print!("{}", table::text(&rows));
        println!("{}", closing(args, &effort));
    }
    Ok(status)
}

fn effort(args: &Args) -> Result<Effort, String> {
    let file_size = match args.size {
        Some(size) => size,
        None => super::size::default(&args.folder)?,
    } << 20;
    let seconds = args.seconds.unwrap_or(if args.cold { 1.0 } else { 0.5 });
    let length = args.calls.map_or(Length::Seconds(seconds), Length::Calls);
    Ok(Effort { rounds: args.rounds, length, file_size })
}

fn run(args: &Args, effort: &Effort) -> Result<(Vec<Row>, i32), String> {
    let mut workloads = args.custom().map_or_else(|| args.set.rows(), |workload| vec![workload]);
    workloads.iter_mut().for_each(|workload| workload.cold = args.cold);
    workloads.iter().try_for_each(|workload| workload.check(effort.file_size))?;

    let sides = args.sides();
    let session = Session::new(&args.folder, steps(effort, sides.len()) * workloads.len() as u64)?;
    let mut rows = Vec::new();
    for workload in &workloads {
        session.show(&workload.title());
        let folder = session.folder();
        rows.extend(measure(&session, folder, &args.options, effort, &sides, workload)?);
        if session.interrupted() {
            break;
        }
    }
    Ok((rows, session.status()))
}

fn closing(args: &Args, effort: &Effort) -> String {
    let length = match effort.length {
        Length::Seconds(seconds) => format!("{seconds} s"),
        Length::Calls(calls) => format!("{calls} calls"),
    };
    format!(
        "{} rounds of {length}, alternating, medians; {}; {} MiB, policy {}",
        effort.rounds,
        if args.cold { "from the first call of a process" } else { "warm" },
        effort.file_size >> 20,
        args.policy.map_or("as Famio chooses".into(), super::launch::name)
    )
}

fn figure(rows: Vec<Row>) -> Figure {
    let point = |row: &Row, side: &SideResult| Point::new(&side.side, &row.title, side.rounds.clone());
    Figure {
        name: "io".into(),
        title: "File calls".into(),
        x: "workload".into(),
        y: "time of a call, ns".into(),
        higher_is_better: false,
        shape: Shape::Bars,
        points: rows.iter().flat_map(|row| row.sides.iter().map(move |side| point(row, side))).collect(),
        rows,
        ..Figure::new("io", "File calls")
    }
}
