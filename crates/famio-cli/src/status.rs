//! `famio status`: the journals that are there, and whose they are.

use crate::failure::{FAILED, Failure};
use crate::settings::Options;
use crate::text::{bytes, printable, table, whole};
use famio::recovery::{self, Found};
use serde::Serialize;
use std::path::PathBuf;

/// List journals: file, state, epoch, size, owner
///
/// A journal is there while its file is in use, and after a crash until the file is recovered.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Files, folders (with everything below) or pools
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// For programs: an array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
Exit status: 0; 1 if a path, or something below it, can't be looked at or read; 2 bad usage; 3 if a file is marked as having a
journal, which is not there (state 'missing').

Examples:
  famio status .
  famio status --json app.db /mnt/pmem/pool";

/// At least one file's journal is missing.
const CONFLICT: i32 = 3;

/// States that a living owner ends, so that without one it died.
const PENDING: [&str; 3] = ["creating", "active", "suspect"];

/// One journal as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    journal: String,
    kind: String,
    state: String,
    epoch: u64,
    bytes: u64,
    /// Its process id. Not of a process in another PID namespace: the number would be another one's here.
    owner: Option<u32>,
    alive: bool,
}

impl From<Found> for Entry {
    fn from(found: Found) -> Self {
        Self {
            file: found.file.display().to_string(),
            journal: found.journal.display().to_string(),
            kind: if found.state == Found::MISSING { "none".into() } else { found.kind },
            state: found.state.to_string(),
            epoch: found.epoch,
            bytes: found.size,
            owner: found.owner.filter(|owner| !owner.is_contained).map(|owner| owner.pid),
            alive: found.owner.is_some(),
        }
    }
}

/// Looks at every path, and goes on after a failure.
pub fn main(args: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let mut entries = Vec::new();
    let mut status = 0;
    for path in &args.paths {
        match recovery::survey(&whole(path), &settings) {
            Ok(found) => {
                for found in found {
                    let (file, journal, why) = (found.file.display(), found.journal.display(), &found.kind);
                    match found.state {
                        Found::UNEXAMINED => {
                            eprintln!("famio: {}", printable(&format!("{file}: could not be examined: {why}")));
                            status = FAILED;
                            continue;
                        }
                        Found::MISSING => {
                            let line = format!("{file}: conflict: {why} (journal {journal}); see famio recover");
                            eprintln!("famio: {}", printable(&line));
                            status = if status == FAILED { FAILED } else { CONFLICT };
                        }
                        Found::UNREADABLE => {
                            eprintln!("famio: {}", printable(&format!("{journal}: could not be read: {why}")));
                            status = FAILED;
                        }
                        _ => {}
                    }
                    entries.push(Entry::from(found));
                }
            }
            Err(error) => {
                eprintln!("famio: {}: {error}", path.display());
                status = FAILED;
            }
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&entries).map_err(|error| Failure::new(FAILED, error))?;
        println!("{text}");
    } else if entries.is_empty() && status == 0 {
        println!("no journals");
    } else if !entries.is_empty() {
        print!("{}", table(&rows(&entries)));
    }
    Ok(status)
}

fn rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let mut rows = vec![["FILE", "STATE", "KIND", "EPOCH", "SIZE", "OWNER", "JOURNAL"].map(String::from).to_vec()];
    for entry in entries {
        let owner = match entry.owner {
            Some(pid) => pid.to_string(),
            None if entry.alive => "in a container".into(),
            None if PENDING.contains(&entry.state.as_str()) => "dead".into(),
            None => "none".into(),
        };
        rows.push(vec![
            printable(&entry.file).into(),
            entry.state.clone(),
            printable(&entry.kind).into(),
            entry.epoch.to_string(),
            bytes(entry.bytes),
            owner,
            printable(&entry.journal).into(),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_owner_is_told_from_a_living_one() {
        let mut entry = Entry {
            file: "/a".into(),
            journal: "/.famio/1".into(),
            kind: "records".into(),
            state: "active".into(),
            epoch: 3,
            bytes: 4096,
            owner: None,
            alive: false,
        };
        assert_eq!(rows(std::slice::from_ref(&entry))[1][5], "dead");
        entry.owner = Some(7);
        assert_eq!(rows(std::slice::from_ref(&entry))[1][4..6], ["4.0 KiB", "7"]);
        (entry.owner, entry.alive) = (None, true);
        assert_eq!(rows(std::slice::from_ref(&entry))[1][5], "in a container");
    }
}
