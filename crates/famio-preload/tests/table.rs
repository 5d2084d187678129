//! The table, the library generated from it, and the document must match.

mod common;
#[allow(dead_code, reason = "this crate uses a part of the file")]
#[path = "../table.rs"]
mod table;

use common::{Folder, library, succeed, under};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn sections() -> Vec<table::Section> {
    table::parse(&std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks.txt")).unwrap())
}

#[test]
fn the_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/posix.md");
    let text = table::document(&sections());
    if std::env::var_os("FAMIO_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/posix.md is stale: FAMIO_BLESS=1 cargo test -p famio-preload --test table");
}

#[test]
fn a_name_stands_once() {
    let mut seen = BTreeSet::new();
    for name in sections().iter().flat_map(|section| &section.rows).flat_map(|row| &row.names) {
        assert!(seen.insert(name.clone()), "{name} stands twice");
    }
}

fn dynamic_symbols(arguments: &[&str]) -> Vec<String> {
    let done = Command::new("readelf").args(arguments).arg(library()).output().expect("readelf");
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_exports_are_the_table() {
    let exported: BTreeSet<String> = dynamic_symbols(&["-W", "--dyn-syms"])
        .iter()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.len() >= 8 && fields[6] != "UND" && fields[4] == "GLOBAL").then(|| fields[7].to_owned())
        })
        .filter(|name| !name.starts_with("famio_"))
        .collect();
    let wanted: BTreeSet<String> = sections()
        .iter()
        .flat_map(|section| &section.rows)
        .filter(|row| row.shape != "-")
        .flat_map(|row| row.names.clone())
        .collect();
    assert_eq!(exported, wanted);
}

#[test]
fn no_private_symbol_of_libc_is_needed() {
    for line in dynamic_symbols(&["-W", "--dyn-syms", "-V"]) {
        assert!(!line.contains("GLIBC_PRIVATE"), "{line}");
    }
    assert!(dynamic_symbols(&["-W", "-d"]).iter().any(|line| line.contains("NODELETE")));
}

#[test]
fn a_mistake_in_the_configuration_stops_the_program() {
    let folder = Folder::new("mistake");
    for (name, value) in [("FAMIO_POLICY", "best"), ("FAMIO_ATOMIC", "a[b"), ("FAMIO_JOURNAL_LIMIT", "much")] {
        let done = under(&folder, "true").env(name, value).output().unwrap();
        assert_eq!(done.status.code(), Some(125));
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains(name) && said.contains(value), "{said}");
    }
}

#[test]
fn weaker_durability_is_said_once() {
    let folder = Folder::new("weaker");
    let file = folder.path().join("weaker.db");
    let weaker =
        [("FAMIO_DURABILITY", "process", "durability process:"), ("FAMIO_DOMAIN", "emulated", "domain emulated:")];
    for (name, value, what) in weaker {
        // Opened twice by one process.
        let script = format!("echo a > {0}; echo b >> {0}", file.display());
        let (_, said) =
            succeed(under(&folder, "sh").args(["-c", &script]).env("FAMIO_ATOMIC", "*.db").env(name, value));
        assert_eq!(said.lines().filter(|line| line.contains(what)).count(), 1, "{said}");
        // Opened by none: no message.
        let (_, said) = succeed(under(&folder, "true").env(name, value));
        assert_eq!(said, "");
    }
}

#[test]
fn a_program_that_does_not_care_pays_little() {
    let folder = Folder::new("cost");
    let mut plain: Vec<Duration> = Vec::new();
    let mut preloaded = Vec::new();
    for _ in 0..21 {
        for (command, times) in [
            (Command::new("true").current_dir(folder.path()), &mut plain),
            (&mut under(&folder, "true"), &mut preloaded),
        ] {
            times.push(processor_time(command));
        }
    }
    plain.sort();
    preloaded.sort();
    let added = preloaded[10].saturating_sub(plain[10]);
    eprintln!("`true` takes {added:?} more of a processor (median of 21)");
    // Optimised, it takes less than 1 ms; this also runs unoptimised. Waiting on a busy machine does not count.
    assert!(added < Duration::from_millis(10), "{added:?}");
}

/// The processor time that a command, which must succeed, takes.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and says what it had")]
fn processor_time(command: &mut Command) -> Duration {
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: all-zero bytes are an `rusage`; the call fills it in, and waits for our own child, once.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage), child.id() as i32);
        usage
    };
    assert_eq!(status, 0);
    let time = |time: libc::timeval| Duration::from_micros((time.tv_sec * 1_000_000 + time.tv_usec) as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}
