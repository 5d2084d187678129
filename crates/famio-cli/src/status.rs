//! `famio status`: existing journals, and their owners.

use crate::color::{Style, paint};
use crate::failure::{FAILED, Failure};
use crate::journals::Journals;
use crate::pool::view::View;
use crate::text::{bytes, name, named, printable, quoted, table, whole};
use famio::journal::{Pool, pool_use};
use famio::recovery::{self, Found, Owner};
use serde::Serialize;
use std::path::Path;

/// List journals: file, state, epoch, size, owner
///
/// A journal exists while its file is in use, and after a crash until the file is recovered.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    journals: Journals,
}

const HELP: &str = "\
The command changes nothing and ends no lease: it does not open data files.

States: active (in use), needs recovery (no process has the file: a crash), clean (a leftover), missing (the file is marked \
as having a journal, which is not there), orphaned (a journal whose file is not there), creating (being made, or a leftover of that), suspect (a flush failed: it takes no more commits), unreadable. EPOCH counts the commits up to the last SYNC.

Exit status, for monitors: 0 if there is nothing to do; 1 if a path, or something below it, can't be read; 2 bad \
usage; 3 if a journal is missing or orphaned; 5 if a file needs recovery. If more than one holds, 1 before 3 before 5.

Of a pool it also shows its size and what each application has of it (famio pool). DIRTY: committed bytes in the pool \
that wait to be written to a file on a disk.

KIND is the kind of the journal, or \"growing\": the file has none, since it only grows, or few of its bytes are overwritten. The number beside it is its committed bytes.

With --json each object has: file, journal (empty: missing), kind (in place, records, tiered, growing, none; null: not known), state (as above), \
journal_state (the journal's own word: creating, active, clean, suspect), epoch, bytes (of the journal), dirty_bytes (of a tiered file; null: not known), application (in a pool with a size), committed_bytes (of a growing file), why \
(what is wrong, or null), owner (a process, or null), alive (in use by a process).

Examples:
  famio status .
  famio status --json app.db /mnt/pmem/pool";

/// At least one file's journal is missing.
const CONFLICT: i32 = 3;

/// At least one file needs recovery. Not 4: that is a file in use, for `famio recover`.
const NEEDS_RECOVERY: i32 = 5;
/// The state of a journal that no process uses and that was not closed clean.
const PENDING: &str = "needs recovery";

/// One journal as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    journal: String,
    kind: Option<&'static str>,
    state: String,
    journal_state: String,
    /// Not kept for a growing file.
    epoch: Option<u64>,
    bytes: u64,
    /// Of a tiered file: committed bytes that wait for it.
    dirty_bytes: Option<u64>,
    /// In a pool with a size: to which application its owner belongs.
    application: Option<String>,
    /// For a growing file.
    committed_bytes: Option<u64>,
    /// The problem.
    why: Option<String>,
    /// The owner's process id. Not given for a process in another PID namespace: here, the number would belong to
    /// another process.
    owner: Option<u32>,
    #[serde(skip)]
    is_contained: bool,
    alive: bool,
}

impl From<Found> for Entry {
    fn from(found: Found) -> Self {
        let needs_recovery = found.needs_recovery();
        Self {
            file: found.file.display().to_string(),
            // For a missing journal, this is only where it was looked for.
            journal: if found.state == Found::MISSING { "".into() } else { found.journal.display().to_string() },
            kind: if found.state == Found::MISSING { Some("none") } else { found.kind },
            state: if needs_recovery { PENDING } else { found.state }.to_string(),
            journal_state: found.state.to_string(),
            epoch: (found.kind != Some(Found::GROWING)).then_some(found.epoch),
            bytes: found.size,
            dirty_bytes: found.waiting,
            application: None,
            committed_bytes: found.growing.map(|growing| growing.committed),
            why: found.why,
            owner: found.owner.and_then(Owner::pid_here),
            is_contained: found.owner.is_some_and(|owner| owner.is_contained),
            alive: found.in_use,
        }
    }
}

/// The pool in this folder, if it is one.
fn pool_in(path: &Path) -> Result<Option<View>, famio::Error> {
    let is_pool = |pool: &Pool| !pool.is_beside() && pool.list().is_ok_and(|journals| !journals.is_empty());
    if !path.is_dir() {
        return Ok(None);
    }
    let seen = pool_use(path);
    let has_size = seen.as_ref().map_or(true, |seen| seen.size.is_some());
    let pool = Pool::at(path, None);
    if pool.as_ref().is_ok_and(|pool| has_size && !pool.is_beside() || is_pool(pool)) {
        return seen.map(|seen| Some(View::new(path, &seen)));
    }
    Ok(None)
}

/// One object of the JSON array.
#[derive(Serialize)]
#[serde(untagged)]
enum Object<'a> {
    Pool(&'a View),
    Journal(&'a Entry),
}

/// Examines every path, and continues after a failure.
pub fn main(Args { journals: args }: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let mut entries = Vec::new();
    let mut statuses = Vec::new();
    let mut pools = Vec::new();
    for path in &args.paths {
        match pool_in(&whole(path)) {
            Ok(pool) => pools.extend(pool),
            Err(error) => {
                eprintln!("famio: {}", printable(&named(path, &error)));
                statuses.push(FAILED);
            }
        }
        match recovery::survey(&whole(path), &settings) {
            Ok(found) => {
                for found in found {
                    let (file, journal, why) =
                        (name(&found.file), name(&found.journal), found.why.as_deref().unwrap_or_default());
                    match found.state {
                        Found::UNEXAMINED => {
                            eprintln!("famio: {}", printable(&format!("{file}: could not be examined: {why}")));
                            statuses.push(FAILED);
                            continue;
                        }
                        Found::MISSING => {
                            let line = format!("{file}: conflict: {why} (looked for {journal}); see famio recover");
                            eprintln!("famio: {}", printable(&line));
                            statuses.push(CONFLICT);
                        }
                        Found::UNREADABLE => {
                            eprintln!("famio: {}", printable(&format!("{journal}: could not be read: {why}")));
                            statuses.push(FAILED);
                        }
                        Found::ORPHANED => {
                            let line = format!(
                                "{file}: not there: it was moved or deleted; bring it back, or recover it by its own path; if it is \
                                 gone for good: famio forget {}",
                                quoted(&journal)
                            );
                            eprintln!("famio: {}", printable(&line));
                            statuses.push(CONFLICT);
                        }
                        _ if found.needs_recovery() => statuses.push(NEEDS_RECOVERY),
                        _ => {}
                    }
                    entries.push(Entry::from(found));
                }
            }
            Err(error) => {
                eprintln!("famio: {}", printable(&named(path, &error)));
                statuses.push(FAILED);
            }
        }
    }
    let status = [FAILED, CONFLICT, NEEDS_RECOVERY].into_iter().find(|status| statuses.contains(status)).unwrap_or(0);
    for entry in &mut entries {
        let application_of = |pid| pools.iter().find_map(|pool| pool.application_of(pid));
        entry.application = entry.owner.and_then(application_of).map(String::from);
    }
    if args.json {
        let all = pools.iter().map(Object::Pool).chain(entries.iter().map(Object::Journal));
        crate::out::json(&all.collect::<Vec<_>>())?;
        return Ok(status);
    }
    pools.iter().for_each(|pool| println!("{}", pool.text()));
    if entries.is_empty() && status == 0 {
        println!("no journals");
    } else if !entries.is_empty() {
        print!("{}", table(&rows(&entries)));
    }
    Ok(status)
}

fn style(state: &str) -> Style {
    match state {
        "active" | "clean" | "creating" => Style::Good,
        PENDING => Style::Care,
        _ => Style::Bad,
    }
}

fn kind(entry: &Entry) -> String {
    match (entry.kind, entry.committed_bytes) {
        (Some(kind), Some(committed)) => format!("{kind}, {committed} bytes committed"),
        (kind, _) => kind.unwrap_or("-").into(),
    }
}

fn rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let is_tiered = entries.iter().any(|entry| entry.kind == Some("tiered"));
    let has_application = entries.iter().any(|entry| entry.application.is_some());
    let mut head = ["FILE", "STATE", "KIND", "EPOCH", "SIZE", "OWNER", "JOURNAL"].map(String::from).to_vec();
    // Before the journals, whose paths are long.
    let more = [(is_tiered, "DIRTY"), (has_application, "APPLICATION")];
    head.splice(6..6, more.iter().filter(|(shown, _)| *shown).map(|(_, name)| name.to_string()));
    let mut rows = vec![head];
    for entry in entries {
        let owner = match entry.owner {
            Some(pid) => pid.to_string(),
            None if entry.is_contained => "in a container".into(),
            None if entry.alive => "unowned".into(),
            None if entry.state == PENDING => "dead".into(),
            None => "none".into(),
        };
        rows.push(vec![
            printable(&entry.file).into(),
            paint(&entry.state, style(&entry.state)),
            kind(entry),
            entry.epoch.map_or("-".into(), |epoch| epoch.to_string()),
            if entry.committed_bytes.is_some() { "-".into() } else { bytes(entry.bytes) },
            owner,
            if entry.journal.is_empty() { "none".into() } else { printable(&entry.journal).into() },
        ]);
        let dirty = entry.dirty_bytes.map_or("-".into(), bytes);
        let application = entry.application.as_deref().map_or("-".into(), |name| printable(name).into());
        let more = [(is_tiered, dirty), (has_application, application)];
        if let Some(row) = rows.last_mut() {
            row.splice(6..6, more.into_iter().filter(|(shown, _)| *shown).map(|(_, cell)| cell));
        }
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
            kind: Some("records"),
            state: PENDING.into(),
            journal_state: "active".into(),
            epoch: Some(3),
            bytes: 4096,
            dirty_bytes: None,
            application: None,
            committed_bytes: None,
            why: None,
            owner: None,
            is_contained: false,
            alive: false,
        };
        assert_eq!(rows(std::slice::from_ref(&entry))[1][5], "dead");
        entry.alive = true;
        assert_eq!(rows(std::slice::from_ref(&entry))[1][5], "unowned");
        entry.owner = Some(7);
        assert_eq!(rows(std::slice::from_ref(&entry))[1][4..6], ["4.0 KiB", "7"]);
        (entry.owner, entry.is_contained) = (None, true);
        assert_eq!(rows(std::slice::from_ref(&entry))[1][5], "in a container");
    }
}
