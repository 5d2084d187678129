//! `--json` of benches with their own kinds of rows: as docs/json.md says, with so little work that the numbers mean
//! nothing.

mod common;
#[path = "common/documented.rs"]
mod documented;

use common::built;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The rows in a bench's JSON: all their fields must be documented, and all documented fields present.
#[track_caller]
fn rows(library: &Path, args: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAMIO_") {
            command.env_remove(name);
        }
    }
    command.arg("bench").args(args).args(["--json", "--rounds", "1", "--folder"]).arg(folder.path());
    let output = command.env("FAMIO_PRELOAD", library).env("HOME", folder.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?}");

    let shared = documented::section("## Other benches");
    let shared = shared.split("\n### ").next().unwrap();
    let own = documented::section(&format!("### `famio bench {}`", args[0]));
    documented::all_are_in(&format!("{shared}{own}"), args[0], &value);
    let fields = documented::fields(&value);
    for text in [shared, &own] {
        let firsts = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        for name in firsts.flat_map(|cell| cell.split(", `")) {
            let name = name.trim_matches('`');
            assert!(fields.contains(name), "{args:?}: {name} is documented, and not there");
        }
    }
    assert_eq!(value["method"]["folder"], folder.path().to_str().unwrap());
    assert_eq!(value["method"]["rounds"], 1);
    value["rows"].as_array().unwrap().clone()
}

fn names<'a>(values: &'a [Value], field: &str) -> Vec<&'a str> {
    values.iter().map(|value| value[field].as_str().unwrap_or_else(|| panic!("{field}: {value}"))).collect()
}

/// With one round, the median is its value.
#[track_caller]
fn is_measured(value: &Value, field: &str) {
    assert!(value[field].as_f64().is_some_and(|number| number > 0.0), "{field}: {value}");
    assert_eq!(value["rounds"], serde_json::json!([value[field]]));
}

fn none() -> &'static Path {
    Path::new("none")
}

#[test]
fn region_gives_every_copy_and_search() {
    let rows = rows(none(), &["region", "--thousands", "1", "--regions", "50"]);
    assert_eq!(rows.len(), 12);
    rows.iter().for_each(|row| is_measured(row, "nanoseconds"));
    let compared: Vec<_> = rows.iter().map(|row| row["times_as_long"].is_number()).collect();
    assert_eq!(compared, [false, true, false, true, false, false, false, true, false, true, false, true]);
}

#[test]
fn tx_gives_times_and_rates() {
    let rows = rows(none(), &["tx", "--count", "100", "--mib", "1"]);
    assert_eq!(rows.len(), 7);
    for row in &rows {
        if row["skipped"].is_null() {
            let is_rate = row["nanoseconds"].is_null();
            is_measured(row, if is_rate { "transactions_per_second" } else { "nanoseconds" });
        }
    }
    assert_eq!(rows.iter().map(|row| row["threads"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 2]);
    assert_eq!(rows[0]["times_as_long"], 1.0);
    assert!(rows[6]["ratio"].is_number() && rows[5]["ratio"].is_null(), "{rows:?}");
}

#[test]
fn map_gives_every_way() {
    let mut rows = rows(none(), &["map", "--size", "2M", "--files", "5", "--file-size", "64K"]);
    rows.retain(|row| row["way"] != "huge"); // if the kernel supports it
    let ways = ["populate", "default", "ahead", "advised", "copy"];
    let ways = [&ways[..], &["populate", "default", "ahead"], &["populate", "default", "cache", "populate", "cache"]];
    assert_eq!(names(&rows, "way"), ways.concat());
    rows.iter().for_each(|row| is_measured(row, "nanoseconds"));
    assert!(rows[10]["limit_bytes"].is_null());
    assert_eq!(rows[12]["limit_bytes"], 64 << 10);
    assert_eq!(names(rows[2]["ratios"].as_array().unwrap(), "to"), ["populate", "default"]);
    assert_eq!(names(rows[12]["ratios"].as_array().unwrap(), "to"), ["populate"]);
}

#[test]
fn plain_gives_every_call() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let rows = rows(&library, &["plain", "--seconds", "0.001"]);
    assert_eq!(rows.len(), 9);
    for row in &rows {
        let sides = row["sides"].as_array().unwrap();
        let expected = ["plain", "Famio, async-io allow", "Famio", "Famio, an atomic file open"];
        assert_eq!(names(sides, "side"), expected);
        sides.iter().for_each(|side| is_measured(side, "nanoseconds"));
    }
}

#[test]
fn small_gives_every_kind_of_file() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let rows = rows(&library, &["small", "--files", "3"]);
    assert_eq!(names(&rows, "on_close"), [&["commit", "leave"][..], &["commit"; 6]].concat());
    for row in &rows {
        let sides = row["sides"].as_array().unwrap();
        assert_eq!(names(sides, "side"), ["plain", "Famio"]);
        assert!(sides[0]["times_as_long"].is_null() && sides[1]["times_as_long"].is_number(), "{row}");
        sides.iter().for_each(|side| assert_eq!(side["rounds"], serde_json::json!([side["microseconds"]])));
    }
}

#[test]
fn cost_gives_every_step() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let rows = rows(&library, &["cost", "--only", "file-size"]);
    let steps = ["open", "first write of 4 KiB", "its SYNC", "later writes of 4 KiB", "their SYNC", "close"];
    assert_eq!(names(&rows, "step"), steps.repeat(4));
    assert_eq!([&rows[0]["number"], &rows[23]["number"]], [1 << 20, 1u64 << 43]);
    for row in &rows {
        let sides = row["sides"].as_array().unwrap();
        assert_eq!(names(sides, "side"), ["plain", "Famio"]);
        sides.iter().for_each(|side| is_measured(side, "microseconds"));
    }
}

#[test]
fn sqlite_gives_every_journal_mode() {
    let Some(library) = built("libfamio_preload.so") else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        eprintln!("sqlite3 is not installed: skipped");
        return;
    }
    let rows = rows(&library, &["sqlite", "--rows", "20"]);
    assert_eq!(rows.iter().map(|row| row["rows_per_transaction"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 50]);
    for row in &rows {
        let sides = row["sides"].as_array().unwrap();
        assert_eq!(names(sides, "journal_mode"), ["MEMORY", "WAL", "DELETE"]);
        sides.iter().for_each(|side| is_measured(side, "transactions_per_second"));
        assert!(sides[0]["ratio"].is_null() && sides[1]["ratio"].is_number(), "{row}");
    }
}

#[test]
fn processes_give_every_pattern() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let chosen =
        ["processes", "--seconds", "0.2", "--size", "1", "--only", "files", "--readers", "1", "--writers", "1"];
    let rows = rows(&library, &chosen);
    assert_eq!(names(&rows, "setup"), ["plain", "Famio", "plain", "Famio"]);
    for (row, is_famio) in rows.iter().zip([false, true, false, true]) {
        is_measured_calls(&row["reads"]);
        assert_eq!(row["ratios"].as_array().unwrap().len(), usize::from(is_famio));
        assert_eq!(row["hand_overs"].is_number(), is_famio);
    }
    rows[2..].iter().for_each(|row| is_measured_calls(&row["writes"]));
    assert!(rows[0]["writes"].is_null() && rows[0]["reads_ratio_to_readers_alone"].is_null());
    assert!(rows[3]["reads_ratio_to_readers_alone"].is_number());
}

/// On a busy machine, a process may complete no call in so short a time.
#[track_caller]
fn is_measured_calls(calls: &Value) {
    assert_eq!(calls["rounds"], serde_json::json!([calls["calls_per_second"]]), "{calls}");
}

/// A table for each group goes to stdout as soon as it is measured; with `--json`, only the object does.
#[test]
fn a_bench_that_fails_gives_no_json() {
    let bench = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        command.args(["bench", name, "--json", "--folder", "/nonexistent"]).output().unwrap()
    };
    for name in ["cost", "map", "plain", "processes", "region", "small", "sqlite", "tx"] {
        let output = bench(name);
        assert!(!output.status.success() && output.stdout.is_empty() && !output.stderr.is_empty(), "{name}");
    }
}
