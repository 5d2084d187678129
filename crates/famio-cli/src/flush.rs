//! `famio flush`: brings files to what is committed, while programs use them.

use crate::failure::{FAILED, Failure};
use crate::progress::Bar;
use crate::ps::command;
use crate::recover::{self, IN_USE, worst};
use crate::settings::Options;
use crate::text::{bytes, name, named, printable, whole};
use famio::recovery::{self, Flush, Flushed, Owner, Waiting};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Write what programs have committed into their files, while the programs continue
///
/// When the command ends with 0, the files have, durably, everything that a SYNC had committed when the command began.
/// What is not committed stays so. Use it before a backup or a snapshot of the disk alone, or before a pool in memory
/// goes away. A file that a killed program left is recovered.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Files, folders (with everything below) or pools
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Give up on a program that does not begin within so long, or is stopped
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
The process that owns a file does the work in its background: the command requests it, and does not open the file. You \
need the right to write the file. What programs commit afterwards waits in their journals as before.

Tiered files (a pool in memory before a disk) and files with journals of records: everything committed is written back; \
a SYNC may wait meanwhile. Files with journals in place get exactly what is committed, as when a program without Famio \
opens them; writers wait meanwhile. A program that appends afterwards makes such a file longer at once. If it had \
already appended more than the journal can take, the file keeps the appended bytes, and the status is 1. There is \
nothing to flush for a file that is not atomic, that no program has changed, or that only grows (which already has its \
bytes, also those that are not committed).

Exit status: 0; 1 if something failed, or could not be examined (the rest is flushed all the same); 2 bad usage; 3 if a \
file of a killed program is in conflict with its journal (see famio recover); 4 if a program that has a file open did \
not answer, for example because it is stopped. Nothing is lost then: what is committed stays in the journal.

Examples:
  famio flush app.db
  famio flush /mnt/pmem/pool      # all files whose journals are in this pool";

/// What happened to one file, as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    outcome: &'static str,
    bytes: u64,
    owner: Option<u32>,
    why: Option<String>,
}

impl Entry {
    fn new(flushed: &Flushed) -> Self {
        let (outcome, bytes, owner, why) = match &flushed.flush {
            Flush::NothingToDo => ("nothing to do", 0, None, None),
            Flush::Flushed(bytes) => ("flushed", *bytes, None, None),
            Flush::Left(report) => {
                let (outcome, owner, why) = recover::outcome(&report.outcome);
                (outcome, report.bytes, owner, why)
            }
            Flush::NoAnswer(owner, why) => ("no answer", 0, owner.and_then(Owner::pid_here), Some(why.to_string())),
            Flush::Failed(why) => ("failed", 0, None, Some(why.to_string())),
        };
        Self { file: flushed.file.display().to_string(), outcome, bytes, owner, why }
    }
}

/// Flushes every path, reports, and continues after a failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    crate::out::outlive_reader();
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let waiting = Waiting { patience: Duration::from_secs(args.timeout.into()), report: &say_who_is_awaited };
    let (mut statuses, mut entries) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match recovery::flush_path(&whole(path), &settings, &waiting, &Bar::of("flushing")) {
            Ok(all) if all.is_empty() && !args.json => println!("{}: nothing to flush", name(path)),
            Ok(all) => {
                for flushed in &all {
                    let status = status(&flushed.flush);
                    statuses.push(status);
                    match status {
                        _ if args.json => entries.push(Entry::new(flushed)),
                        0 => println!("{}", printable(&line(flushed))),
                        _ => eprintln!("famio: {}", printable(&line(flushed))),
                    }
                }
            }
            Err(error) => {
                statuses.push(FAILED);
                let failed = Flushed { file: path.clone(), flush: Flush::Failed(error) };
                match &failed.flush {
                    Flush::Failed(error) if !args.json => eprintln!("famio: {}", printable(&named(path, error))),
                    _ => entries.push(Entry::new(&failed)),
                }
            }
        }
    }
    if args.json {
        crate::out::json(&entries)?;
    }
    Ok(worst(&statuses))
}

fn status(flush: &Flush) -> i32 {
    match flush {
        Flush::NothingToDo | Flush::Flushed(_) => 0,
        Flush::Left(report) => recover::status(&report.outcome),
        Flush::NoAnswer(..) => IN_USE,
        Flush::Failed(_) => FAILED,
    }
}

/// The result for one file, in one line.
fn line(flushed: &Flushed) -> String {
    let file = name(&flushed.file);
    match &flushed.flush {
        Flush::NothingToDo => format!("{file}: nothing to flush"),
        Flush::Flushed(written) => format!("{file}: flushed, {} written back", bytes(*written)),
        Flush::Left(report) => recover::line(report, &flushed.file, false),
        Flush::NoAnswer(_, why) | Flush::Failed(why) => format!("{file}: not flushed: {why}"),
    }
}

/// Reports what is waited for.
fn say_who_is_awaited(file: &Path, owner: Option<Owner>) {
    let who = match owner {
        Some(owner) => match owner.pid_here() {
            Some(pid) => format!("process {pid} ({})", command(pid)),
            None => owner.to_string(),
        },
        None => "the processes that use it".into(),
    };
    eprintln!("famio: {}", printable(&format!("{}: waiting for {who}", file.display())));
}
