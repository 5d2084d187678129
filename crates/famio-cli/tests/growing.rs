//! The commands on growing files, which have no journal.

mod common;

use common::running::{self, Running, famio, said};
use serde_json::Value;
use std::path::Path;

const GROWER: &str = "
import os, sys
a = os.open('g.log', os.O_RDWR | os.O_CREAT)
os.write(a, b'x' * 5000)
os.fsync(a)
os.write(a, b'y' * 700)
print('ready', flush=True)
sys.stdin.read()";

fn start(folder: &Path) -> Option<Running> {
    running::start(folder, &["--atomic", "g.log"], GROWER)
}

fn json(folder: &Path, args: &[&str]) -> Value {
    serde_json::from_slice(&famio(folder, args).stdout).unwrap()
}

/// `famio ps` showed it, but `stats` said that no process uses atomic files.
#[test]
fn a_growing_file_is_in_stats_and_metrics() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = folder.path();
    let Some(running) = start(folder) else { return };
    let path = folder.join("g.log").display().to_string();
    let stats = json(folder, &["stats", "--json"]);
    let of_it = |file: &&Value| file["file"] == *path;
    let file = stats["files"].as_array().unwrap().iter().find(of_it).unwrap_or_else(|| panic!("{stats}"));
    assert_eq!(
        (&file["kind"], &file["committed_bytes"], &file["open_bytes"]),
        (&"growing".into(), &5000.into(), &700.into())
    );
    assert!(file["processes"][0] == running.0.id() && file["syncs"].is_null() && file["epoch"].is_null(), "{file}");
    let table = said(&famio(folder, &["stats"]));
    assert!(table.contains(&path) && !table.contains("no process"), "{table}");
    let metrics = said(&famio(folder, &["metrics"]));
    let of_it: Vec<&str> = metrics.lines().filter(|line| line.contains(&path)).collect();
    let has = |name: &str, value: &str| of_it.iter().any(|line| line.starts_with(name) && line.ends_with(value));
    assert!(
        has("famio_processes{", " 1") && has("famio_open_bytes{", " 700") && has("famio_attached{", " 0"),
        "{of_it:?}"
    );
    assert!(!has("famio_syncs_total{", "") && !has("famio_epoch{", ""), "{of_it:?}");
}

/// Its kind used to be a sentence, and its owner was missing.
#[test]
fn status_of_a_growing_file() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = folder.path();
    let Some(running) = start(folder) else { return };
    let entry = &json(folder, &["status", "--json", "g.log"])[0];
    assert_eq!((&entry["kind"], &entry["committed_bytes"]), (&"growing".into(), &5000.into()));
    assert!(entry["owner"] == running.0.id() && entry["alive"] == true && entry["epoch"].is_null(), "{entry}");
    drop(running);
    let entry = &json(folder, &["status", "--json", "g.log"])[0];
    assert!(entry["owner"].is_null() && entry["state"] == "needs recovery" && entry["alive"] == false, "{entry}");
}

/// They used to name a journal that had never existed.
#[test]
fn check_and_recover_say_what_is_cut_off() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = folder.path();
    let Some(running) = start(folder) else { return };
    drop(running);
    let check = famio(folder, &["check", "g.log"]);
    let text = said(&check);
    assert!(
        check.status.success() && text.contains("sound (no journal)") && text.contains("cuts off 700 bytes"),
        "{text}"
    );
    assert!(json(folder, &["check", "--json", "g.log"])[0]["journal"].is_null());
    let planned = said(&famio(folder, &["recover", "--dry-run", "g.log"]));
    assert!(planned.contains("would be recovered to its last SYNC, 700 B after it would be removed"), "{planned}");
    let entry = &json(folder, &["recover", "--json", "g.log"])[0];
    assert!(entry["journal"].is_null() && entry["cut"] == 700 && entry["outcome"] == "recovered", "{entry}");
    assert_eq!(std::fs::read(folder.join("g.log")).unwrap(), b"x".repeat(5000));
}
