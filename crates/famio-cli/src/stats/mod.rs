//! `famio stats`: counts for the files in use. Like `famio ps`, it only reads.

mod columns;
pub mod metrics;
pub mod now;
mod runs;
mod times;
pub mod top;

use crate::failure::Failure;
use crate::text::{bytes, printable, table};
use now::{File, Now};
use times::{Quantiles, quantile, shown};

/// Show what was done to the atomic files that are in use
///
/// For each file: SYNCs, writes and their bytes, bytes that went to the journal and to the file, blocks written back
/// from the journal to the file, changes of ownership, and how long SYNCs and writes took. Numbers count from the
/// first write of the processes that have the file open, up to the last SYNC. The command takes no lock and ends no
/// lease. Root sees the processes of all users, others their own.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print a JSON object (docs/json.md)
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
TIMES are the median and the 99th percentile, rounded up to a power of two. One SYNC in 16 is measured (with a journal in \
place), and one write in 256. Calls on a file that only grows, and has no journal, are not counted (-).

Examples:
  famio stats
  famio stats --json | jq '.files[] | {file, syncs}'
  famio top                                       the same, live
  famio metrics --listen 127.0.0.1:9464           for Prometheus";

/// Collects and shows.
pub fn main(args: Args) -> Result<i32, Failure> {
    let now = Now::look();
    if args.json {
        crate::out::json(&now.json()?)?;
        return Ok(0);
    }
    if now.files.is_empty() {
        println!("no process uses atomic files");
    } else {
        print!("{}", table(&rows(&now.files)));
    }
    for run in now.runs.iter().filter(|run| run.demotions + run.conflicts > 0) {
        println!(
            "run of process {}: {} demoted to ordinary files, {} in conflict",
            run.pid, run.demotions, run.conflicts
        );
    }
    Ok(0)
}

fn rows(files: &[File]) -> Vec<Vec<String>> {
    let head = [
        "FILE",
        "PROCESSES",
        "SYNCS",
        "FAILED",
        "WRITES",
        "READS",
        "WRITTEN",
        "TO JOURNAL",
        "TO FILE",
        "WRITE-BACKS",
        "HAND-OVERS",
        "SYNC TIMES",
        "WRITE TIMES",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    let times = |times: &Quantiles| format!("{} / {}", shown(quantile(times, 50)), shown(quantile(times, 99)));
    for file in files {
        let path = file.file.as_deref().map_or("-".into(), |file| printable(file).into());
        let counted = [
            file.syncs.to_string(),
            file.failed_syncs.to_string(),
            file.writes.to_string(),
            file.reads.to_string(),
            bytes(file.written_bytes),
            bytes(file.journal_bytes),
            bytes(file.file_bytes),
            file.write_backs.to_string(),
            file.hand_overs.to_string(),
            times(&file.sync_nanoseconds),
            times(&file.write_nanoseconds),
        ];
        let mut row = vec![path, file.processes.len().to_string()];
        // For a growing file, nothing is counted.
        row.extend(counted.map(|cell| if file.is_counted() { cell } else { "-".into() }));
        rows.push(row);
    }
    rows
}
