//! Figures, reports, comparisons and a user's own command, with so little work that the numbers mean nothing.

mod common;

use common::built;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn bench(library: Option<&Path>, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAMIO_") {
            command.env_remove(name);
        }
    }
    command.arg("bench").args(args).current_dir(folder).env("HOME", folder);
    library.map(|library| command.env("FAMIO_PRELOAD", library));
    command
}

#[track_caller]
fn said(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    format!("{}status {}", both.concat(), output.status.code().unwrap_or(-1))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of `famio bench list`.
fn listed() -> Vec<String> {
    let output = bench(None, Path::new("/"), &["list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_string()).collect()
}

fn strings<'a>(values: &'a Value, field: &str) -> Vec<&'a str> {
    let mut all: Vec<_> = values.as_array().unwrap().iter().map(|value| value[field].as_str().unwrap()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Each series has each place, but for what can't be: a hash file has no order to scan in.
fn holes(name: &str) -> usize {
    if name == "libnvmmio-14" { 2 } else { 0 }
}

#[test]
fn every_figure_is_measured_or_says_why_not() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tiny = ["--rounds", "1", "--seconds", "0.004", "--size", "16", "--domain", "emulated", "--report", "report"];
    let args = [&["all"][..], &tiny, &["--disk", disk.path().to_str().unwrap()]].concat();
    let mut command = bench(Some(&library), folder.path(), &args);
    let output = command.output().unwrap();
    // A target folder in memory is no disk.
    let has_disk = !said(&output).contains("is not on a disk");
    let output =
        if has_disk { output } else { bench(Some(&library), folder.path(), &args[..args.len() - 2]).output().unwrap() };
    assert!(output.status.success(), "{}", said(&output));
    let report = folder.path().join("report");
    let document: Value = serde_json::from_str(&read(&report.join("figures.json"))).unwrap();
    assert_eq!(document["complete"], true);
    let figures = document["figures"].as_array().unwrap();
    let (page, markdown) = (read(&report.join("index.html")), read(&report.join("figures.md")));
    assert_eq!(figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect::<Vec<_>>(), listed());
    for figure in figures {
        let name = figure["name"].as_str().unwrap();
        let points = figure["points"].as_array().unwrap();
        let missing = figure["notes"].to_string().contains("not measured");
        if let Some(why) = figure["skipped"].as_str() {
            // Libraries of others may be missing.
            assert!(why.contains("install") || why.contains("--disk"), "{name}: {why}");
        } else if name == "libnvmmio-12" {
            // On a busy machine no transaction may end in so short a time: such a bar is left out.
            assert!(!points.is_empty());
        } else if !missing {
            let cells = strings(&figure["points"], "series").len() * strings(&figure["points"], "x").len();
            assert_eq!(points.len(), cells - holes(name), "{name}: {points:?}");
        }
        assert!(points.iter().all(|point| point["value"].as_f64().unwrap() >= 0.0), "{name}: {points:?}");
        assert!(page.contains(&format!("<h2 id=\"{name}\">")) && markdown.contains(&format!("\n## {name}: ")));
    }
    let has_bars = |figure: &&Value| {
        figure["points"].as_array().unwrap().iter().any(|point| point["value"].as_f64().unwrap() > 0.0)
    };
    let drawn = figures.iter().filter(has_bars).count();
    assert_eq!(page.matches("<svg").count(), drawn);
    assert!(!page.contains("src=") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
    let points: usize = figures.iter().map(|figure| figure["points"].as_array().unwrap().len()).sum();
    assert_eq!(read(&report.join("points.csv")).lines().count(), points + 1);
    assert!(read(&report.join("calls.csv")).lines().count() > 1);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["report"]);
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    let pools = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name());
    let of_ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("famio-bench-pool-");
    assert!(!pools.filter(of_ours).any(|name| {
        // Of another bench that runs.
        let pid = name.to_string_lossy().rsplit('-').next().unwrap_or_default().to_string();
        !Path::new("/proc").join(pid).exists()
    }));
}

#[test]
fn figures_are_found_by_their_names_and_papers() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = bench(None, folder.path(), &["fig", "nosuch"]).output().unwrap();
    assert!(said(&output).contains("nosuch: no such figure; 'famio bench list'"), "{}", said(&output));
    // What is mapped needs no library.
    let tiny = ["paper", "map-ahead", "--rounds", "1", "--size", "16", "--json"];
    let output = bench(None, folder.path(), &tiny).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let figures = document["figures"].as_array().unwrap();
    assert!(figures.len() == 3 && figures.iter().all(|figure| figure["paper_says"].is_string()), "{figures:?}");
    let output = bench(None, folder.path(), &["paper", "vnvml", "--report", "/dev/null/x"]).output().unwrap();
    assert!(said(&output).contains("--report: /dev/null/x: Not a directory"), "{}", said(&output));
    let output = bench(None, folder.path(), &["paper", "vnvml", "--disk", "."]).output().unwrap();
    assert!(said(&output).contains("--disk: . is not on a disk"), "{}", said(&output));
}

/// A program under Famio whose file loses a write fails its check, and the bench with it: here a store that another
/// program changes.
#[test]
fn a_wrong_content_fails_the_bench() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let args = ["fig", "lawn-9", "--rounds", "1", "--seconds", "3", "--size", "16"];
    let child =
        bench(Some(&library), folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    // The log of no server: a file that should not be there.
    while began.elapsed() < Duration::from_secs(60) {
        let worker =
            std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path().join("apps/now/worker-0"));
        let written = worker
            .filter(|worker| worker.join("file-0").exists())
            .map(|worker| std::fs::write(worker.join("file-999999999"), "x"));
        if written.filter(|written| written.is_ok()).count() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && said(&output).contains("is there, and should not be"), "{}", said(&output));
}

/// Finished results stay, the files are removed, and the exit status gives the reason.
#[test]
fn an_interrupted_run_leaves_a_report() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let args = ["io", "--control", "--size", "1", "--calls", "10", "--rounds", "1000000", "--report", "report"];
    let mut child = bench(None, folder.path(), &args).stdout(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    // Each side has a new file in each round. Of four files that follow each other the first three have ended, and
    // with them a round of both sides.
    let mut seen = BTreeSet::new();
    while seen.len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(60));
        for folder in std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()) {
            let files = ["0-0.bench", "1-0.bench"].map(|file| folder.join(file));
            seen.extend(files.iter().filter_map(|file| Some(file.metadata().ok()?.ino())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: our child, not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let document: Value = serde_json::from_str(&read(&folder.path().join("report/figures.json"))).unwrap();
    assert_eq!(document["complete"], false);
    assert!(read(&folder.path().join("report/index.html")).contains("was interrupted"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn two_runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["io", "--control", "--size", "1", "--calls", "50", "--rounds", "3", "--pattern", "random", "--json"];
    let output = bench(None, folder.path(), &args).output().unwrap();
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let mut write = |name: &str, factor: f64| {
        let points = document["figures"][0]["points"].as_array_mut().unwrap();
        for (at, round) in points.iter_mut().flat_map(|point| point["rounds"].as_array_mut().unwrap()).enumerate() {
            *round = ((1000.0 + (at % 3) as f64) * factor).into();
        }
        std::fs::write(folder.path().join(name), document.to_string()).unwrap();
    };
    write("before.json", 1.0);
    write("after.json", 1.5);
    let compare = |args: &[&str]| said(&bench(None, folder.path(), &[&["compare"], args].concat()).output().unwrap());
    let text = compare(&["before.json", "after.json"]);
    assert!(
        text.contains("1.50") && text.contains("worse") && text.contains("2 of 2 values have changed, 2 for the worse")
    );
    assert!(text.ends_with("status 0"), "{text}");
    assert!(compare(&["--fail", "before.json", "after.json"]).ends_with("status 1"));
    assert!(compare(&["--fail", "after.json", "before.json"]).ends_with("status 0"));
    assert!(
        compare(&["--fail", "--threshold", "60", "before.json", "after.json"]).contains("0 of 2 values have changed")
    );
    assert!(compare(&["--json", "before.json", "after.json"]).contains("\"verdict\": \"worse\""));
    assert!(compare(&["before.json", "nosuch"]).contains("nosuch: No such file"));
    std::fs::write(folder.path().join("other"), "{}").unwrap();
    assert!(compare(&["before.json", "other"]).contains("other: not what famio bench writes"));
}

#[test]
fn a_command_of_the_user_runs_on_both_sides() {
    let (Some(library), Some(_)) = (built("libfamio_preload.so"), built("libfamio_trace.so")) else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = |args: &[&str]| {
        said(
            &bench(Some(&library), folder.path(), &[&["run", "--rounds", "2", "--atomic", "a.db"], args].concat())
                .output()
                .unwrap(),
        )
    };
    // Each run finds what --prepare makes; each side leaves a mark.
    let seen = "cat a.db >>seen; echo ${LD_PRELOAD:+under} >>seen; echo changed >a.db";
    let text = run(&["--prepare", "echo new >a.db", "--", "sh", "-c", seen]);
    assert!(text.ends_with("status 0") && text.contains("\nplain") && text.contains("\nFamio"), "{text}");
    let seen = read(&folder.path().join("seen"));
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines.iter().filter(|line| **line == "new").count(), 4, "{seen}");
    assert_eq!(lines.iter().filter(|line| **line == "under").count(), 2, "{seen}");
    let text = run(&["--baseline", "echo plain >>base", "--json", "--", "true"]);
    assert!(text.contains("\"run-time\"") && text.contains("\"run-cpu\""), "{text}");
    assert_eq!(read(&folder.path().join("base")), "plain\nplain\n");
    let text = run(&["--syncs", "--baseline", "echo >base", "--", "dd", "if=seen", "of=a.db", "conv=fsync"]);
    assert!(text.contains("SYNCs of one more run, under famio trace: plain 0, Famio 1"), "{text}");
    assert!(run(&["--", "false"]).contains("exit status: 1; --output shows what it says: "));
    assert!(run(&["--", "/nonexistent"]).contains("/nonexistent"));
    assert!(run(&["--prepare", "exit 3", "--", "true"]).contains("--prepare: exit status: 3"));
}
