//! `famio recover`: brings files to their last SYNC without running a program.

use crate::failure::{FAILED, Failure};
use crate::progress::Bar;
use crate::settings::Options;
use crate::text::{bytes, name, named, printable, whole};
use clap::ValueEnum;
use famio::recovery::{self, Outcome, Owner, Report, Use};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// At least one journal needs a decision.
const CONFLICT: i32 = 3;
/// At least one file is in use; its process will recover or close it.
pub const IN_USE: i32 = 4;

/// Bring files to their last SYNC
///
/// Opening an atomic file under `famio run` recovers it. Use this command for files that other programs read first,
/// for whole folders and pools, and for conflicts. It touches only the files that the journals name, may be
/// interrupted at any point, and may be run again. It opens the files, with --dry-run, too: if a program has one in
/// use, its write lease ends, and a file that only grows gets a journal.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Files, folders (with everything below), pools or journals
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// What counts if another program changed a file after the crash
    #[arg(long = "use", value_enum, value_name = "journal|file", hide_possible_values = true)]
    winner: Option<Winner>,
    /// Threads for one journal [default: by its size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

/// What counts in a conflict.
#[derive(Clone, Copy, ValueEnum)]
enum Winner {
    /// Apply the journal, over what others wrote
    Journal,
    /// Keep the file as it is, and drop the journal
    File,
}

const HELP: &str = "\
A conflict: another program changed the file after the crash, or its journal is from another boot although it promised \
only to survive the process. Nothing changes then until --use says what counts.

A file with a mark (user.famio) whose journal is gone is a conflict, too: --use=file removes the mark.

Exit status: 0 if everything is recovered or there was nothing to do; 1 if something failed, or could not be examined (a \
folder or file without permission, for example; the rest is recovered all the same); 2 bad usage; 3 if there is a conflict; 4 if a file is in use.

Examples:
  famio recover app.db
  famio recover --dry-run /var/lib/app
  famio recover --use=file app.db   # as it is now, without the journal";

/// What happened to one journal, as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    journal: Option<String>,
    outcome: &'static str,
    dry_run: bool,
    epoch: u64,
    bytes: u64,
    /// For a file that grew without a journal.
    cut: Option<u64>,
    owner: Option<u32>,
    why: Option<String>,
}

impl Entry {
    fn new(report: &Report, asked: &Path, dry_run: bool) -> Self {
        let (outcome, owner, why) = outcome(&report.outcome);
        let journal = Some(&report.journal).filter(|journal| !journal.as_os_str().is_empty());
        Self {
            file: report.file.as_deref().unwrap_or(asked).display().to_string(),
            journal: journal.map(|journal| journal.display().to_string()),
            outcome,
            dry_run,
            epoch: report.epoch,
            bytes: report.bytes,
            cut: report.cut,
            owner,
            why,
        }
    }
}

/// An outcome as JSON shows it: its word, a process, and the reason.
pub fn outcome(outcome: &Outcome) -> (&'static str, Option<u32>, Option<String>) {
    match outcome {
        Outcome::NothingToDo => ("nothing to do", None, None),
        Outcome::Clean => ("clean", None, None),
        Outcome::Recovered => ("recovered", None, None),
        Outcome::Kept => ("kept", None, None),
        Outcome::Discarded => ("discarded", None, None),
        Outcome::Conflict(why) => ("conflict", None, Some(why.clone())),
        Outcome::Failed(error) => ("failed", None, Some(error.to_string())),
        Outcome::Unexamined(error) => ("unexamined", None, Some(error.to_string())),
        Outcome::InUse(owner) => ("in use", owner.and_then(Owner::pid_here), None),
    }
}

/// Recovers every path, reports, and continues after a failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    crate::out::outlive_reader();
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let options = recovery::Options {
        dry_run: args.dry_run,
        on_conflict: match args.winner {
            None => Use::Refuse,
            Some(Winner::Journal) => Use::Journal,
            Some(Winner::File) => Use::File,
        },
        threads: args.threads.map_or(0, usize::from),
    };
    let (mut statuses, mut entries) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match recovery::recover_path(&whole(path), &settings, &options, &Bar::new()) {
            Ok(reports) if args.json => {
                statuses.extend(reports.iter().map(|report| status(&report.outcome)));
                entries.extend(reports.iter().map(|report| Entry::new(report, path, args.dry_run)));
            }
            Err(error) if args.json => {
                statuses.push(FAILED);
                let outcome = Outcome::Failed(error);
                let report = Report { journal: PathBuf::new(), file: None, outcome, epoch: 0, bytes: 0, cut: None };
                entries.push(Entry::new(&report, path, args.dry_run));
            }
            Ok(reports) if reports.is_empty() => println!("{}: nothing to recover", name(path)),
            Ok(reports) => {
                for report in &reports {
                    let line = line(report, path, args.dry_run);
                    match status(&report.outcome) {
                        0 => println!("{}", printable(&line)),
                        _ => eprintln!("famio: {}", printable(&line)),
                    }
                    statuses.push(status(&report.outcome));
                }
            }
            Err(error) => {
                eprintln!("famio: {}", printable(&named(path, &error)));
                statuses.push(FAILED);
            }
        }
    }
    if args.json {
        crate::out::json(&entries)?;
    }
    Ok(worst(&statuses))
}

/// The worst status: a failure, then a conflict, then a file in use.
pub fn worst(statuses: &[i32]) -> i32 {
    [FAILED, CONFLICT, IN_USE].into_iter().find(|status| statuses.contains(status)).unwrap_or(0)
}

/// The exit status for an outcome.
pub fn status(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Failed(_) | Outcome::Unexamined(_) => FAILED,
        Outcome::Conflict(_) => CONFLICT,
        Outcome::InUse(_) => IN_USE,
        _ => 0,
    }
}

/// The result for one journal, in one line.
pub fn line(report: &Report, asked: &Path, dry_run: bool) -> String {
    let file = name(report.file.as_deref().unwrap_or(asked));
    let journal = name(&report.journal);
    let would = if dry_run { "would be " } else { "" };
    if let (Some(cut), true) = (report.cut, report.journal.as_os_str().is_empty()) {
        return line_of_growing(file, &report.outcome, cut, would);
    }
    match &report.outcome {
        Outcome::NothingToDo => format!("{file}: nothing to recover"),
        Outcome::Clean => format!("{file}: nothing was pending; leftovers {would}removed (journal {journal})"),
        Outcome::Recovered => {
            let (epoch, size) = (report.epoch, bytes(report.bytes));
            let verb = if dry_run { "would be moved" } else { "moved" };
            format!("{file}: {would}recovered to epoch {epoch}, {size} {verb} (journal {journal})")
        }
        Outcome::Kept => {
            let is = if dry_run { "would stay, and be" } else { "stays, and is" };
            format!("{file}: what a killed process had written {is} durable (on-kill=keep; journal {journal})")
        }
        Outcome::Discarded => {
            format!("{file}: kept as it is; its mark, and its journal if there is one, {would}dropped ({journal})")
        }
        // This text names both files, and says what to do.
        Outcome::Conflict(why) => format!("{file}: conflict: {why}"),
        Outcome::Failed(error) => format!("{file}: failed: {error}"),
        Outcome::Unexamined(error) => format!("{file}: could not be examined: {error}"),
        Outcome::InUse(Some(owner)) => format!("{file}: in use by {owner}, not touched"),
        Outcome::InUse(None) => format!("{file}: in use, not touched"),
    }
}

/// For a file without a journal, to which nothing was copied.
fn line_of_growing(file: impl std::fmt::Display, outcome: &Outcome, cut: u64, would: &str) -> String {
    match outcome {
        // What its mark had is in the file.
        Outcome::Recovered if cut == 0 => format!("{file}: {would}recovered to its last SYNC (no journal)"),
        Outcome::Recovered => {
            format!("{file}: {would}recovered to its last SYNC, {} after it {would}removed (no journal)", bytes(cut))
        }
        Outcome::Discarded => format!("{file}: kept as it is; its mark {would}removed (no journal)"),
        _ => format!("{file}: nothing was pending; mark {would}removed (no journal)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_is_the_exit_status() {
        assert_eq!(worst(&[]), 0);
        assert_eq!(worst(&[0, IN_USE, 0]), IN_USE);
        assert_eq!(worst(&[IN_USE, CONFLICT]), CONFLICT);
        assert_eq!(worst(&[CONFLICT, FAILED, IN_USE]), FAILED);
    }

    #[test]
    fn a_line_names_both_files() {
        let report = Report {
            journal: "/d/.famio/1".into(),
            file: Some("/d/app.db".into()),
            outcome: Outcome::Recovered,
            epoch: 7,
            bytes: 2048,
            cut: None,
        };
        let done = "/d/app.db: recovered to epoch 7, 2.0 KiB moved (journal /d/.famio/1)";
        assert_eq!(line(&report, Path::new("/d"), false), done);
        let planned = "/d/app.db: would be recovered to epoch 7, 2.0 KiB would be moved (journal /d/.famio/1)";
        assert_eq!(line(&report, Path::new("/d"), true), planned);
    }

    /// It said that 0 bytes after the last SYNC were kept, however many there were.
    #[test]
    fn a_line_of_a_growing_file_says_nothing_that_is_unknown() {
        let (journal, file) = (PathBuf::new(), Some("/d/a.log".into()));
        let report = Report { journal, file, outcome: Outcome::Discarded, epoch: 0, bytes: 0, cut: Some(0) };
        let done = "/d/a.log: kept as it is; its mark removed (no journal)";
        assert_eq!(line(&report, Path::new("/d"), false), done);
        let report = Report { outcome: Outcome::Recovered, ..report };
        let done = "/d/a.log: recovered to its last SYNC (no journal)";
        assert_eq!(line(&report, Path::new("/d"), false), done);
    }
}
