//! Decides which files look like databases, by what was done to them. docs/trace.md describes the rules.

use super::config::Config;
use super::judged::{Judged, Kind};
use super::layout::Count;
use super::magic::{self, Format};
use super::shared::{File, Seen};
use std::path::{Path, PathBuf};

/// What is known of a file besides its counts.
struct Now {
    size: Option<u64>,
    format: Option<Format>,
    /// The database to which it belongs, according to its name.
    companion_of: Option<(PathBuf, &'static str)>,
}

/// Judges all files, the likeliest databases first.
pub fn all<'a>(seen: &'a Seen, config: &Config) -> Vec<Judged<'a>> {
    let mut files: Vec<_> =
        seen.files.iter().map(|file| judge(file, look(&file.path), config.names(&file.path))).collect();
    files.sort_by(|a, b| {
        let rank = |judged: &Judged| {
            let written = judged.file.count(Count::WrittenBytes) + judged.file.count(Count::MappedBytes);
            (judged.kind, !judged.suggested, u64::MAX - judged.file.count(Count::Syncs), u64::MAX - written)
        };
        rank(a).cmp(&rank(b)).then_with(|| a.file.path.cmp(&b.file.path))
    });
    files
}

/// Those that should be atomic.
pub fn suggested<'a>(files: &'a [Judged<'a>]) -> Vec<&'a Judged<'a>> {
    files.iter().filter(|judged| judged.suggested).collect()
}

fn look(path: &Path) -> Now {
    let found = std::fs::symlink_metadata(path).ok().filter(|found| found.is_file());
    let format = found.as_ref().and_then(|_| magic::look(path));
    Now { size: found.map(|found| found.len()), format, companion_of: companion(path) }
}

/// Additional files of SQLite and LMDB, by name, if the database exists.
fn companion(path: &Path) -> Option<(PathBuf, &'static str)> {
    let name = path.file_name()?.to_str()?;
    let of = |base: &str, format: Format, what| {
        let base = path.with_file_name(base);
        (magic::look(&base) == Some(format)).then_some((base, what))
    };
    for (suffix, what) in [("-journal", "rollback journal"), ("-wal", "write-ahead log"), ("-shm", "shared memory")] {
        if let Some(base) = name.strip_suffix(suffix) {
            return of(base, Format::Sqlite, what);
        }
    }
    match name.strip_suffix("-lock") {
        Some(base) => of(base, Format::Lmdb, "lock table"),
        None if name == "lock.mdb" => of("data.mdb", Format::Lmdb, "lock table"),
        None => None,
    }
}

fn judge(file: &File, now: Now, already: bool) -> Judged<'_> {
    let (kind, mut why, mut suggested) = verdict(file, &now);
    if already && now.size.is_some() {
        why.push_str("; famio.toml names it already");
        suggested = false;
    }
    Judged { file, kind, why, size: now.size, suggested }
}

fn verdict(file: &File, now: &Now) -> (Kind, String, bool) {
    let count = |what| file.count(what);
    let syncs = count(Count::Syncs);
    let in_place = count(Count::Overwrites) + count(Count::Maps) + count(Count::Updates) > 0;
    let written = count(Count::Writes) + count(Count::Maps) + count(Count::Streams) > 0;
    let locked = if count(Count::Locks) > 0 { ", locked" } else { "" };
    if now.size.is_none() {
        let why = match (count(Count::Removed), count(Count::Renamed)) {
            (0, 0) => "is gone".into(),
            (0, _) => "renamed to something else".into(),
            (1, _) => "removed".into(),
            (times, _) => format!("removed {times} times"),
        };
        return (Kind::Temporary, why, false);
    }
    if let Some((base, what)) = &now.companion_of {
        let base = base.file_name().unwrap_or_default().to_string_lossy();
        return (Kind::Companion, format!("{what} of {base}: make that atomic instead"), false);
    }
    match now.format {
        Some(Format::LmdbLocks) => return (Kind::Companion, "an LMDB lock table".into(), false),
        Some(format) if syncs > 0 => {
            return (Kind::Database, format!("{} database, SYNCed{locked}", format.name()), true);
        }
        Some(format) if !written => {
            return (Kind::Database, format!("{} database, only read this time", format.name()), true);
        }
        Some(format) => {
            let why = format!("{} database, but never SYNCed: there is nothing to commit", format.name());
            return (Kind::Database, why, false);
        }
        None => {}
    }
    // The writes under the former name count there.
    if count(Count::Replaced) > 0 && !written {
        return (Kind::Replaced, "made anew and renamed: whole by itself".into(), false);
    }
    match (syncs > 0, in_place) {
        (true, true) => (Kind::Database, format!("SYNCed and {}{locked}", how(file)), true),
        (true, false) => (Kind::Log, format!("only appended, SYNCed{locked}"), false),
        (false, true) => (Kind::Unsynced, format!("{}{locked}, but never SYNCed", how(file)), false),
        (false, false) if written => (Kind::Plain, format!("only appended, never SYNCed{locked}"), false),
        (false, false) => (Kind::Plain, format!("not written{locked}"), false),
    }
}

fn how(file: &File) -> &'static str {
    match (file.count(Count::Maps) > 0, file.count(Count::Overwrites) > 0) {
        (true, true) => "mapped and rewritten in place",
        (true, false) => "mapped",
        (false, true) => "rewritten in place",
        (false, false) => "written in place by a stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(counts: &[(Count, u64)], format: Option<Format>) -> (Kind, bool) {
        let file = File::with("/x", counts);
        let (kind, _, suggested) = verdict(&file, &Now { size: Some(1), format, companion_of: None });
        (kind, suggested)
    }

    #[test]
    fn the_rules() {
        use Count::{Locks, MappedBytes, Maps, Overwrites, Renamed, Replaced, Streams, Syncs, Updates, Writes};
        for (counts, wanted) in [
            (&[(Writes, 9), (Overwrites, 3), (Syncs, 2)][..], (Kind::Database, true)),
            (&[(Maps, 1), (MappedBytes, 9), (Syncs, 1)], (Kind::Database, true)),
            (&[(Streams, 1), (Updates, 1), (Syncs, 1)], (Kind::Database, true)),
            (&[(Writes, 9), (Syncs, 9)], (Kind::Log, false)),
            (&[(Writes, 9), (Overwrites, 3), (Locks, 2)], (Kind::Unsynced, false)),
            (&[(Maps, 1)], (Kind::Unsynced, false)),
            (&[(Writes, 9)], (Kind::Plain, false)),
            (&[], (Kind::Plain, false)),
            (&[(Replaced, 3)], (Kind::Replaced, false)),
            // A log that is replaced from time to time.
            (&[(Replaced, 3), (Writes, 9), (Syncs, 1)], (Kind::Log, false)),
        ] {
            assert_eq!(verdict_of(counts, None), wanted, "{counts:?}");
        }
        assert_eq!(verdict_of(&[(Writes, 9), (Syncs, 1)], Some(Format::Sqlite)), (Kind::Database, true));
        assert_eq!(verdict_of(&[(Locks, 9)], Some(Format::Sqlite)), (Kind::Database, true));
        assert_eq!(verdict_of(&[(Writes, 9)], Some(Format::Lmdb)), (Kind::Database, false));
        assert_eq!(verdict_of(&[(Maps, 9)], Some(Format::LmdbLocks)), (Kind::Companion, false));
        let gone = Now { size: None, format: None, companion_of: None };
        let file = File::with("/x", &[(Writes, 9), (Overwrites, 3), (Syncs, 2), (Renamed, 1)]);
        assert_eq!(verdict(&file, &gone).0, Kind::Temporary);
    }
}
