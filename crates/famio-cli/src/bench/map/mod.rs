//! `famio bench map`: mapped files read sequentially, at random, and one after the other.

mod figure;
mod files;
mod measure;
mod order;
mod rows;
mod work;

pub use figure::{figure, steps};
pub use work::Args as WorkArgs;
pub use work::main as work_main;

use super::output::Json;
use super::results::Method;
use crate::settings::Size;
use crate::text::bytes;
use files::Files;
use measure::measure;
use rows::Row;
use serde::Serialize;
use std::path::PathBuf;
pub use work::Task;
use work::Way;

/// Mapped files: map-ahead and the mapping cache, against mmap
///
/// Each measurement is a process that opens, maps, reads in records of 4 KiB, unmaps and closes; all of that is
/// timed. `populate` is mmap with MAP_POPULATE, `default` without, `ahead` Famio's View with the mapping cache off,
/// `advised` the same with advice (Sequential, WillNeed), `cache` with the mapping cache. `copy` reads an existing
/// map: the upper bound; `huge` is `ahead` on a file that was put into huge pages before (tmpfs). All ways alternate;
/// the table shows medians. On a busy machine, look at READER: the CPU time of the reading thread.
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
    #[command(flatten)]
    output: Json,
}

/// The files to read.
#[derive(Clone, Copy, Serialize)]
struct Extent {
    /// Bytes of a record.
    record_bytes: u64,
    /// Size of the one large file.
    large_file_bytes: u64,
    /// Number of small files.
    files: u64,
    file_bytes: u64,
    /// What the mapping cache may keep when it has a limit.
    limit_bytes: u64,
    /// Size of the writes that created the files.
    written_bytes: u64,
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let room = files::room(&args.folder)?;
    let each = args.file_size.0.next_multiple_of(4096);
    let files = args.files.unwrap_or(10_000.min(room / each)).max(1);
    let extent = Extent {
        record_bytes: 4096,
        large_file_bytes: args.size.map_or((4 << 30).min(room), |size| size.0).max(1 << 20) & !4095,
        files,
        file_bytes: each,
        // A fifth of the files: 2 GiB of 10.
        limit_bytes: files * each / 5,
        written_bytes: args.written.0,
    };
    let text = |rows: &[Row]| {
        let how = format!(
            "of a 4 KiB record: nanoseconds, CPU of the reading thread and of all, faults in 1000; times as fast as \
             MAP_POPULATE and mmap, by the clock and by the reader's CPU; \
             {} rounds, alternating, medians; {}; {files} files of {}, limit {}",
            args.rounds,
            bytes(extent.large_file_bytes),
            bytes(each),
            bytes(extent.limit_bytes)
        );
        format!("{}{how}\n", rows::text(rows))
    };
    let method = Method::new(&args.folder, args.rounds, extent);
    method.show(&args.output, || measure_all(args, extent), text)
}

/// Measures the workloads asked for.
fn measure_all(args: &Args, extent: Extent) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut group = |files: &Files, task, ways: &[Way], limit| {
        let figures = measure(args.rounds, files, task, ways, limit, || true)?;
        rows.extend(rows::of_group(task, ways, limit, figures));
        Ok::<_, String>(())
    };
    let wanted = |task| args.only.is_none_or(|only| only == task);
    if wanted(Task::Sequential) || wanted(Task::Random) {
        let large = Files::new(&args.folder, 2, extent.large_file_bytes, extent.written_bytes)?;
        for (task, ways) in [(Task::Sequential, &Way::SEQUENTIAL[..]), (Task::Random, &Way::RANDOM)] {
            if wanted(task) {
                group(&large, task, ways, None)?;
            }
        }
    }
    if wanted(Task::Zipf) {
        let small = Files::new(&args.folder, extent.files, extent.file_bytes, extent.written_bytes)?;
        group(&small, Task::Zipf, &Way::ZIPF, None)?;
        group(&small, Task::Zipf, &Way::ZIPF_LIMITED, Some(extent.limit_bytes))?;
    }
    Ok(rows)
}
