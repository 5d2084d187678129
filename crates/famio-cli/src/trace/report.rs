//! The report, for people and for programs.

use super::judged::{Judged, Kind};
use super::layout::Count;
use super::shared::Seen;
use crate::text;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How many similar files per folder are listed, unless all are wanted.
const ALIKE: usize = 10;
/// How many files that do not look like databases or logs are listed.
const OTHERS: usize = 20;

/// For people: the likeliest databases first, suggested files with a star.
pub fn table(seen: &Seen, files: &[Judged], all: bool) -> String {
    let mut out = String::new();
    if files.is_empty() {
        out += "famio: no file was seen to be opened for writing (docs/trace.md)\n";
        return out;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let (shown, hidden) = shown(files, all);
    let head = ["", "#", "file", "size", "writes", "reads", "SYNCs", "maps", "locks", "looks like"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(shown.iter().map(|&index| row(index + 1, &files[index], &here)));
    out += &text::table(&rows);
    for (folder, count) in &hidden {
        let folder = folder.strip_prefix(&here).unwrap_or(folder);
        let folder = text::name(folder);
        let folder = if folder.is_empty() { "this folder" } else { &folder };
        out += &format!("and {count} more like these in {folder}\n");
    }
    if !hidden.is_empty() {
        out += "(--all lists them)\n";
    }
    if seen.left_out > 0 {
        out += &format!("famio: {} there was no room for one more file\n", text::count(seen.left_out, "time"));
    }
    out
}

/// The rows to list: everything that looks like a database or log, except many similar ones in one folder, and a few
/// others. Also returns the number of files left out, by folder.
fn shown(files: &[Judged], all: bool) -> (Vec<usize>, BTreeMap<PathBuf, usize>) {
    let (mut shown, mut hidden, mut others) = (Vec::new(), BTreeMap::new(), 0);
    let mut alike: HashMap<(&Path, Kind), usize> = HashMap::new();
    for (index, judged) in files.iter().enumerate() {
        let folder = judged.file.path.parent().unwrap_or(Path::new("/"));
        let likely = judged.kind <= Kind::Log;
        let count = if likely { alike.entry((folder, judged.kind)).or_default() } else { &mut others };
        *count += 1;
        if all || *count <= if likely { ALIKE } else { OTHERS } {
            shown.push(index);
        } else {
            *hidden.entry(folder.to_path_buf()).or_default() += 1;
        }
    }
    (shown, hidden)
}

fn row(number: usize, judged: &Judged, here: &Path) -> Vec<String> {
    let count = |what| judged.file.count(what);
    let path = judged.file.path.strip_prefix(here).unwrap_or(&judged.file.path);
    let sized = |calls, bytes| match count(calls) {
        0 => "-".into(),
        calls => format!("{calls} ({})", text::bytes(count(bytes))),
    };
    let plain = |what| match count(what) {
        0 => "-".into(),
        calls => calls.to_string(),
    };
    let writes = match count(Count::Streams) {
        0 => sized(Count::Writes, Count::WrittenBytes),
        // Its own writes are libc's.
        _ if count(Count::Writes) == 0 => "stream".into(),
        _ => format!("{} + stream", sized(Count::Writes, Count::WrittenBytes)),
    };
    vec![
        if judged.suggested { "*" } else { "" }.into(),
        number.to_string(),
        text::name(path),
        judged.size.map_or("-".into(), text::bytes),
        writes,
        sized(Count::Reads, Count::ReadBytes),
        plain(Count::Syncs),
        sized(Count::Maps, Count::MappedBytes),
        plain(Count::Locks),
        format!("{}: {}", judged.kind.name(), judged.why),
    ]
}

#[derive(Serialize)]
struct Report {
    command: Vec<String>,
    status: i32,
    programs: u64,
    left_out: u64,
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    path: String,
    kind: &'static str,
    why: String,
    suggested: bool,
    size: Option<u64>,
    opens: u64,
    streams: u64,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    overwrites: u64,
    syncs: u64,
    maps: u64,
    mapped_bytes: u64,
    locks: u64,
    cuts: u64,
    removed: u64,
    replaced: u64,
    renamed: u64,
}

/// For programs. Names that are not UTF-8 contain a replacement character.
pub fn json(command: &[OsString], status: i32, seen: &Seen, files: &[Judged]) -> String {
    let file = |judged: &Judged| {
        let count = |what| judged.file.count(what);
        FileReport {
            path: judged.file.path.to_string_lossy().into_owned(),
            kind: judged.kind.name(),
            why: judged.why.clone(),
            suggested: judged.suggested,
            size: judged.size,
            opens: count(Count::Opens),
            streams: count(Count::Streams),
            reads: count(Count::Reads),
            read_bytes: count(Count::ReadBytes),
            writes: count(Count::Writes),
            written_bytes: count(Count::WrittenBytes),
            overwrites: count(Count::Overwrites),
            syncs: count(Count::Syncs),
            maps: count(Count::Maps),
            mapped_bytes: count(Count::MappedBytes),
            locks: count(Count::Locks),
            cuts: count(Count::Cuts),
            removed: count(Count::Removed),
            replaced: count(Count::Replaced),
            renamed: count(Count::Renamed),
        }
    };
    let report = Report {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        status,
        programs: seen.programs,
        left_out: seen.left_out,
        files: files.iter().map(file).collect(),
    };
    let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
    text.push('\n');
    text
}
