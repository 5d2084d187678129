//! `famio pool`, and what `famio status` shows of a pool.

mod common;
#[path = "common/documented.rs"]
mod documented;

use common::running::{self, Running, famio, said};
use serde_json::Value;
use std::path::Path;

const WRITER: &str = "
import os, sys
a = os.open('app.db', os.O_RDWR)
os.pwrite(a, b'x' * 400000, 0)
os.fsync(a)
os.pwrite(a, b'o' * 600000, 0)
print('ready', flush=True)
sys.stdin.read()";

/// A folder on a disk with a file, and a pool on tmpfs.
fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(data.path().join("app.db"), vec![b'.'; 1 << 20]).unwrap();
    (data, tempfile::tempdir_in("/dev/shm").unwrap())
}

fn start(data: &Path, pool: &str, more: &[&str]) -> Option<Running> {
    let options = ["--atomic", "app.db", "--journal", "always", "--pool", pool, "--domain", "emulated"];
    let options = [&options[..], &["--durability", "process", "--quiet"], more].concat();
    running::start(data, &options, WRITER)
}

/// What `famio status` says of the pool as soon as `is_so`: its parts are read one after another, while the background
/// gives back what the journal does not need.
#[track_caller]
fn status_when(data: &Path, pool: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let json: Value = serde_json::from_slice(&famio(data, &["status", "--json", pool]).stdout).unwrap();
        if is_so(&json) {
            return json;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{json}");
        std::thread::sleep(std::time::Duration::from_millis(5)); // pause between two looks
    }
}

#[test]
fn a_pool_gets_a_size_and_status_shows_who_uses_it() {
    let (data, pool) = folders();
    let (data, at) = (data.path(), pool.path().to_str().unwrap());
    assert!(said(&famio(data, &["pool", "set", at, "--size", "64MiB"])).ends_with(": 64.0 MiB\n"));
    let empty = famio(data, &["status", at]);
    assert!(empty.status.success() && said(&empty).contains("64.0 MiB  0 B"), "{}", said(&empty));
    let Some(mut running) = start(data, at, &["--application", "web", "--pool-weight", "300"]) else { return };
    let text = said(&famio(data, &["status", at]));
    let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("web ").contains("300     56.0 MiB") && line("FILE").contains("DIRTY"), "{text}");
    assert!(line(data.to_str().unwrap()).contains("web"), "{text}");
    let json = status_when(data, at, |json| {
        let (web, seen, journal) = (&json[0]["applications"][0]["used"], &json[0], &json[1]);
        seen["left"] == 0 && *web == journal["bytes"] && *web == seen["used"] && journal["dirty_bytes"].is_u64()
    });
    documented::all_are_in(&documented::section("## `famio status "), "status", &json);
    let (seen, journal) = (&json[0], &json[1]);
    assert_eq!((&seen["pool"], &seen["size"], &seen["left"]), (&at.into(), &(64 << 20).into(), &0.into()));
    let web = &seen["applications"][0];
    assert_eq!((&web["name"], &web["weight"], &web["share"]), (&"web".into(), &300.into(), &(56 << 20).into()));
    assert_eq!((&web["journals"], &web["pids"][0]), (&1.into(), &running.0.id().into()));
    assert_eq!((&journal["kind"], &journal["application"]), (&"tiered".into(), &"web".into()));
    // What it leaves when it is killed.
    running.kill();
    let json: Value = serde_json::from_slice(&famio(data, &["status", "--json", at]).stdout).unwrap();
    assert!(json[0]["applications"] == Value::Array(vec![]) && json[0]["left"] == json[0]["used"], "{json}");
    assert!(famio(data, &["recover", at]).status.success());
    let json: Value = serde_json::from_slice(&famio(data, &["status", "--json", at]).stdout).unwrap();
    assert_eq!((&json[0]["used"], &json[0]["left"], &json[1]), (&0.into(), &0.into(), &Value::Null));
    assert!(famio(data, &["pool", "set", at, "--no-size"]).status.success());
    assert_eq!(std::fs::read_dir(at).unwrap().count(), 0);
}

/// Each run is an application by itself, and a pool without a size has none.
#[test]
fn runs_without_a_name_have_one() {
    let (data, pool) = folders();
    let (data, at) = (data.path(), pool.path().to_str().unwrap());
    let Some(mut running) = start(data, at, &[]) else { return };
    let json: Value = serde_json::from_slice(&famio(data, &["status", "--json", at]).stdout).unwrap();
    assert!(json[0]["size"].is_null() && json[0]["used"].as_u64() > Some(400_000), "{json}");
    running.kill();
    assert!(famio(data, &["recover", at]).status.success());
    assert!(famio(data, &["pool", "set", at, "--size", "16M"]).status.success());
    let Some(_running) = start(data, at, &[]) else { return };
    let json: Value = serde_json::from_slice(&famio(data, &["status", "--json", at]).stdout).unwrap();
    let name = json[0]["applications"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("python3-") && name.len() == 16, "{name}");
}

#[test]
fn what_cannot_be_is_refused() {
    let (data, pool) = folders();
    let at = pool.path().to_str().unwrap();
    for (args, status, word) in [
        (&["pool", "set", at, "--size", "15M"][..], 1, "16777216"),
        (&["pool", "set", "none", "--size", "16M"], 1, "none"),
        (&["pool", "set", "app.db", "--size", "16M"], 1, "app.db"),
        (&["pool", "set", at], 2, "--size"),
        (&["pool", "set", at, "--size", "16M", "--no-size"], 2, "--no-size"),
        (&["run", "--pool-weight", "0", "--atomic", "x", "true"], 125, "10000"),
    ] {
        let output = famio(data.path(), args);
        assert!(output.status.code() == Some(status) && said(&output).contains(word), "{args:?}: {}", said(&output));
    }
    std::fs::create_dir(data.path().join(".famio")).unwrap();
    let output = famio(data.path(), &["pool", "set", ".famio", "--size", "16M"]);
    assert!(!output.status.success() && said(&output).contains("name a pool"), "{}", said(&output));
}
