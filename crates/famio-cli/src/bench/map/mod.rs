//! `famio bench map`: mapped files read from front to back, at random, and one after another.

mod figure;
mod files;
mod order;
mod work;

pub use figure::{figure, steps};
pub use work::Args as WorkArgs;
pub use work::main as work_main;

use super::launch::{me, name};
use super::median::median;
use crate::settings::Size;
use crate::text::{bytes, table};
use files::Files;
use std::path::{Path, PathBuf};
use std::process::Command;
pub use work::Task;
use work::Way;

/// Mapped files: map-ahead and the mapping cache, against mmap
///
/// Each measurement is a process of its own that opens, maps, reads in records of 4 KiB, unmaps and closes; all of that is
/// in the time. `populate` is mmap with MAP_POPULATE, `default` without, `ahead` Famio's View with the mapping cache off,
/// `advised` the same with advice (Sequential, WillNeed), `cache` with the mapping cache. `copy` reads a map that is built already:
/// the ceiling; `huge` is `ahead` on a file of its own that was put into huge pages before (tmpfs). All ways take turns; shown are
/// medians. On a machine that is busy, READER shows what the time would be: the CPU time of the thread that reads.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench map --folder /dev/shm
  famio bench map --folder /mnt/data --size 1G --files 2000")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Size of the one large file [default: 4G, or what fits a third of the free memory and space]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Small files [default: 10000, or what fits]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// Size of each small file
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    file_size: Size,
    /// Measure this alone
    #[arg(long, value_enum)]
    only: Option<Task>,
    /// Bytes of each write that the files are made with: it decides how large the page cache's folios are
    #[arg(long, value_name = "SIZE", default_value = "128K")]
    written: Size,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What one measurement gave, of a record: nanoseconds, CPU nanoseconds of the reading thread and of all, page faults of 1000.
type Figures = [f64; 4];

const HEAD: [&str; 9] =
    ["WORKLOAD", "NS", "READER", "CPU", "FAULTS", "POPULATE", "DEFAULT", "READER: POPULATE", "DEFAULT"];

/// Measures, and prints the table.
pub fn main(args: &Args) -> Result<(), String> {
    let room = files::room(&args.folder)?;
    let size = args.size.map_or((4 << 30).min(room), |size| size.0).max(1 << 20) & !4095;
    let each = args.file_size.0.next_multiple_of(4096);
    let count = args.files.unwrap_or(10_000.min(room / each)).max(1);
    // A fifth of the files: 2 GiB of 10.
    let limit = count * each / 5;
    let mut rows = vec![HEAD.map(String::from).to_vec()];

    let wanted = |task| args.only.is_none_or(|only| only == task);
    if wanted(Task::Sequential) || wanted(Task::Random) {
        let large = Files::new(&args.folder, 2, size, args.written.0)?;
        for (task, ways) in [(Task::Sequential, &Way::SEQUENTIAL[..]), (Task::Random, &Way::RANDOM)] {
            if wanted(task) {
                rows.extend(group(args, &large, task, ways, None)?);
            }
        }
    }
    if wanted(Task::Zipf) {
        let small = Files::new(&args.folder, count, each, args.written.0)?;
        rows.extend(group(args, &small, Task::Zipf, &Way::ZIPF, None)?);
        rows.extend(group(args, &small, Task::Zipf, &Way::ZIPF_LIMITED, Some(limit))?);
    }

    print!("{}", table(&rows));
    println!(
        "of a 4 KiB record: nanoseconds, CPU of the reading thread and of all, faults in 1000; times as fast as \
         MAP_POPULATE and mmap, by the clock and by the reader's CPU; \
         {} rounds in turn, medians; {}; {count} files of {}, limit {}",
        args.rounds,
        bytes(size),
        bytes(each),
        bytes(limit)
    );
    Ok(())
}

/// Measures all ways in turn; gives the figures of all rounds for each way. Stops early when `go_on` returns false.
fn measure(
    rounds: u32,
    files: &Files,
    task: Task,
    ways: &[Way],
    limit: Option<u64>,
    go_on: impl Fn() -> bool,
) -> Result<Vec<Vec<Figures>>, String> {
    let mut figures = vec![Vec::new(); ways.len()];
    'rounds: for _ in 0..rounds {
        for (&way, figures) in ways.iter().zip(&mut figures) {
            let measured = one(files, task, way, limit);
            if !go_on() {
                break 'rounds; // a signal: it may have ended the measurement too
            }
            figures.extend(measured?);
        }
    }
    Ok(figures)
}

/// All ways of one task, in turn.
fn group(args: &Args, files: &Files, task: Task, ways: &[Way], limit: Option<u64>) -> Result<Vec<Vec<String>>, String> {
    let figures = measure(args.rounds, files, task, ways, limit, || true)?;
    let medians: Vec<(Way, Figures)> = ways
        .iter()
        .zip(&figures)
        .filter(|(_, all)| !all.is_empty())
        .map(|(&way, all)| (way, [0, 1, 2, 3].map(|i| median(all.iter().map(|f| f[i]).collect()))))
        .collect();
    let of = |way: Way, i: usize| medians.iter().find(|(w, _)| *w == way).map(|(_, figures)| figures[i]);
    let ratio = |way: Way, i: usize, time: f64| of(way, i).map_or("-".into(), |base| format!("{:.2}x", base / time));
    let row = |(way, figures): &(Way, Figures)| {
        let [time, reader, cpu, faults] = *figures;
        let limit = if *way == Way::Cache { limit.map_or(", no limit", |_| ", limit") } else { "" };
        vec![
            format!("{}, {}{limit}", name(task), name(*way)),
            format!("{time:.0}"),
            format!("{reader:.0}"),
            format!("{cpu:.0}"),
            format!("{faults:.1}"),
            ratio(Way::Populate, 0, time),
            ratio(Way::Default, 0, time),
            ratio(Way::Populate, 1, reader),
            ratio(Way::Default, 1, reader),
        ]
    };
    Ok(medians.iter().map(row).collect())
}

/// One measurement. `None`: there is no such thing on this file system.
fn one(files: &Files, task: Task, way: Way, limit: Option<u64>) -> Result<Option<Figures>, String> {
    let me = me()?;
    let mut command = Command::new(&me);
    command.args(["bench", "map-work", "--task", &name(task), "--way", &name(way)]);
    command.args(["--files", &files.count().to_string()]);
    if let Some(limit) = limit {
        command.args(["--limit", &limit.to_string()]);
    }
    let output = command.arg(files.folder()).output().map_err(|error| format!("{}: {error}", me.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [time, reader, cpu, faults] if output.status.success() => Ok(Some([time, reader, cpu, faults])),
        [] if output.status.success() => Ok(None),
        _ => Err(format!("{} {}: {}", name(task), name(way), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The name of file `number` in the folder of a run.
fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(number.to_string())
}
