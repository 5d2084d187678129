//! `famio forget`: removes journals whose files no longer exist.

use crate::failure::{FAILED, Failure};
use crate::text::{bytes, name, named, printable};
use famio::recovery::{self, Orphan};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Remove a journal whose file was deleted
///
/// Shows the journal and, with --yes, removes it with everything that only it has. A journal that is in use, or whose
/// file exists, is refused: famio recover brings the file to its last SYNC and removes the journal. A file that was
/// moved, and then accepted as it is by famio recover --use=file, does not need its old journal any more.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Journals, as famio status shows them
    #[arg(required = true, value_name = "JOURNAL")]
    journals: Vec<PathBuf>,
    /// Remove them; without it they are only shown
    #[arg(long)]
    yes: bool,
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The kernel tells only root whether a file was deleted or moved; otherwise make sure before you use --yes.

Exit status: 0 if all were removed; 1 if something failed; 2 bad usage; 3 if one was not removed: without --yes, or because its file \
exists; 4 if a file is in use. If more than one holds, 1 before 3 before 4.

Examples:
  famio status .
  famio forget .famio/77949a1af149af53bb00d3113bddd5ca.journal
  famio forget --yes .famio/77949a1af149af53bb00d3113bddd5ca.journal";

/// At least one journal was not removed.
const NOT_REMOVED: i32 = 3;
/// At least one is in use.
const IN_USE: i32 = 4;

/// One journal as JSON shows it.
#[derive(Serialize)]
struct Entry {
    journal: String,
    removed: bool,
    error: Option<String>,
    /// Where the file was last seen.
    file: Option<String>,
    kind: Option<&'static str>,
    epoch: u64,
    bytes: u64,
    changed: i64,
    pending: bool,
    deleted: bool,
}

impl Entry {
    fn new(journal: &Path, looked: &famio::Result<Orphan>, removed: bool) -> Self {
        let orphan = looked.as_ref().ok();
        Self {
            journal: journal.display().to_string(),
            removed: removed && orphan.is_some(),
            error: looked.as_ref().err().map(ToString::to_string),
            file: orphan.map(|orphan| orphan.file.display().to_string()),
            kind: orphan.map(|orphan| orphan.kind),
            epoch: orphan.map_or(0, |orphan| orphan.epoch),
            bytes: orphan.map_or(0, |orphan| orphan.size),
            changed: orphan.map_or(0, |orphan| orphan.changed),
            pending: orphan.is_some_and(|orphan| orphan.is_pending),
            deleted: orphan.is_some_and(|orphan| orphan.is_deleted),
        }
    }
}

/// Shows or removes each journal, and goes on after a failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    crate::out::outlive_reader();
    let (mut statuses, mut entries) = (Vec::new(), Vec::new());
    for journal in &args.journals {
        let looked = recovery::forget(journal, args.yes);
        entries.push(Entry::new(journal, &looked, args.yes));
        match looked {
            Ok(orphan) => {
                if !args.json {
                    println!("{}", printable(&shown(journal, &orphan, args.yes)));
                }
                statuses.push(if args.yes { 0 } else { NOT_REMOVED });
            }
            Err(error) => {
                if !args.json {
                    eprintln!("famio: {}", printable(&named(journal, &error)));
                }
                statuses.push(match error.errno() {
                    libc::EEXIST => NOT_REMOVED,
                    libc::EBUSY => IN_USE,
                    _ => FAILED,
                });
            }
        }
    }
    if args.json {
        crate::out::json(&entries)?;
    }
    Ok([FAILED, NOT_REMOVED, IN_USE].into_iter().find(|status| statuses.contains(status)).unwrap_or(0))
}

fn shown(journal: &Path, orphan: &Orphan, removed: bool) -> String {
    let (file, size) = (name(&orphan.file), bytes(orphan.size));
    let fate = if orphan.is_deleted { "which was deleted" } else { "which was moved or deleted" };
    let holds = match orphan.is_pending {
        true => format!("commits up to epoch {}, which the file may lack", orphan.epoch),
        false => "nothing that the file lacks".into(),
    };
    let end = if removed { "removed" } else { "not removed: --yes removes it" };
    format!(
        "{}: of {file}, {fate}; {}, {size}, last changed {}; it has {holds}; {end}",
        name(journal),
        orphan.kind,
        ago(orphan.changed)
    )
}

/// The age, in the largest unit that fits.
fn ago(then: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let seconds = now.saturating_sub(then).max(0) as u64;
    let (number, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86400 => (seconds / 3600, "hour"),
        _ => (seconds / 86400, "day"),
    };
    format!("{} ago", crate::text::count(number, unit))
}
