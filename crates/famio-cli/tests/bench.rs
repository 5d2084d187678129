//! The benches run and show every row, with so little work that the numbers mean nothing.

mod common;

use common::built;
use std::path::Path;
use std::process::Command;

/// Rows of the table that `famio bench` prints, without the head and the closing line.
fn rows(library: &Path, folder: &Path, args: &[&str]) -> Vec<String> {
    let mut command = common::famio();
    command.arg("bench").args(args).arg("--folder").arg(folder);
    command.env("FAMIO_PRELOAD", library).env("HOME", folder);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{args:?} left {left:?}");
    let lines: Vec<String> = text.lines().map(String::from).collect();
    lines[1..lines.len() - 1].to_vec()
}

#[track_caller]
fn whole(rows: &[String], firsts: &[&str], ratios: usize) {
    assert_eq!(rows.len(), firsts.len(), "{rows:?}");
    for (row, first) in rows.iter().zip(firsts) {
        assert!(row.trim_start().starts_with(first), "{row}");
        assert_eq!(row.split_whitespace().filter(|word| is_ratio(word)).count(), ratios, "{row}");
    }
}

fn is_ratio(word: &str) -> bool {
    word.strip_suffix('x').is_some_and(|number| number.parse::<f64>().is_ok())
}

#[test]
fn io_shows_every_workload_of_a_set() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let firsts = [
        "random 4 KiB pwrite",
        "sequential 4 KiB pread",
        "sequential 4 KiB pread, opened for reading only",
        "sequential 128 B write",
        "4 KiB pwrite",
        "4 KiB pwrite, always the same place, each with fsync",
    ];
    let tiny = ["io", "--size", "1", "--rounds", "1", "--seconds", "0.005"];
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let shown = |folder: &Path, args: &[&str], sides: &[&str]| {
        let rows = rows(&library, folder, args);
        assert_eq!(rows.len(), firsts.len() * sides.len(), "{rows:?}");
        for (row, first) in rows.chunks(sides.len()).zip(firsts) {
            assert!(row[0].starts_with(first) && !row[0].split_whitespace().any(is_ratio), "{row:?}");
            for (line, side) in row.iter().zip(sides) {
                assert!(line.contains(&format!("  {side}  ")), "{line}: {side}");
            }
            assert!(row[1..].iter().all(|line| line.split_whitespace().filter(|word| is_ratio(word)).count() == 2));
        }
    };
    let famio = ["plain", "Famio"];
    shown(memory.path(), &[&tiny[..], &["--domain", "emulated"]].concat(), &famio);
    shown(memory.path(), &[&tiny[..], &["--policy", "alternate"]].concat(), &["plain", "Famio, alternate"]);
    shown(memory.path(), &[&tiny[..], &["--cold"]].concat(), &famio);
    shown(memory.path(), &[&tiny[..], &["--control"]].concat(), &["plain", "plain again"]);
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    shown(disk.path(), &[&tiny[..2], &["1", "--rounds", "1", "--calls", "20"]].concat(), &famio);
}

/// A workload described by options, in every form; the generator checks the contents itself.
#[test]
fn io_runs_what_its_options_describe() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let tiny = ["io", "--size", "2", "--rounds", "1", "--calls", "300", "--domain", "emulated"];
    for (args, title) in [
        (
            &["--pattern", "zipf", "--io-size", "1K", "--reads", "80", "--sync", "5"][..],
            "Zipf 1 KiB with 80 % reads, fsync every 5",
        ),
        (&["--threads", "2", "--sync", "10"], "random 4 KiB pwrite, fsync every 10, 2 threads on one file"),
        (&["--threads", "2", "--own-files"], "random 4 KiB pwrite, 2 threads on files of their own"),
        (&["--processes", "2", "--sync", "1"], "random 4 KiB pwrite, each with fsync, 2 processes on one file"),
        (
            &["--processes", "2", "--threads", "2", "--own-files"],
            "random 4 KiB pwrite, 2 processes of 2 threads on files",
        ),
        (&["--pattern", "sequential", "--io-size", "64", "--cold"], "sequential 64 B pwrite"),
        (&["--pattern", "sequential", "--at-position", "--reads", "100"], "sequential 4 KiB read"),
    ] {
        let rows = rows(&library, folder.path(), &[&tiny[..], args].concat());
        assert!(rows.len() == 2 && rows[0].starts_with(title), "{args:?}: {rows:?}");
    }
}

/// A library other than Famio; if the loader cannot load it, the figures would be those of plain calls.
#[test]
fn io_measures_another_library() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let tiny = ["io", "--size", "1", "--rounds", "1", "--calls", "50", "--sync", "1", "--preload"];
    let other = format!("other={}", library.display());
    let rows = rows(&library, folder.path(), &[&tiny[..], &[&other]].concat());
    assert!(rows.len() == 3 && rows[2].trim_start().starts_with("other  "), "{rows:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    command.arg("bench").args(tiny).args(["no=/etc/passwd", "--folder"]).arg(folder.path());
    let output = command.env("FAMIO_PRELOAD", &library).env("HOME", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/etc/passwd: was not loaded by LD_PRELOAD"), "{said}");
}

#[test]
fn io_that_makes_no_sense_is_refused() {
    for (args, why) in [
        (&["--io-size", "100"][..], "--io-size: 100 is not a multiple of 64"),
        (&["--reads", "101"], "--reads: 101 is more than 100 percent"),
        (&["--sync", "sometimes"], "neither a number of writes"),
        (&["--at-position"], "--at-position: only with the patterns"),
        (&["--read-only"], "--read-only: needs --reads 100"),
        (&["--set", "goals", "--threads", "2"], "cannot be used with"),
        (&["--threads", "100", "--processes", "2"], "more than 128 threads"),
        (&["--io-size", "2M", "--size", "1"], "is too small, this needs 2 MiB"),
        (&["--seconds", "0"], "not a number above 0"),
        (&["--preload", "x=/nonexistent"], "/nonexistent: No such file"),
        (&["--folder", "/nonexistent"], "/nonexistent"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_famio")).args(["bench", "io"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn plain_shows_every_call() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let firsts = [
        "fcntl, lock or unlock",
        "fstat",
        "stat",
        "open",
        "close",
        "open and close",
        "open with O_CREAT",
        "pread of 64 B",
        "pwrite of 64 B",
    ];
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        whole(&rows(&library, folder.path(), &["plain", "--rounds", "1", "--seconds", "0.001"]), &firsts, 0);
    }
}

#[test]
fn processes_show_every_pattern_in_every_setup() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let tiny = ["processes", "--rounds", "1", "--seconds", "0.02", "--size", "1", "--rows", "100", "--only"];
    let both = ["1 reader", "2 readers", "8 readers", "2 readers, 1 writer at 50/s", "8 readers, 1 writer at 50/s"];
    let both =
        [&both[..], &["2 readers, 1 writer", "8 readers, 1 writer", "1 writer", "2 writers", "4 writers"]].concat();
    let alone = ["insert", "insert, locking_mode EXCLUSIVE", "update", "update,", "delete", "delete,"];
    let ownership = ["nothing uncommitted", "16 blocks uncommitted"];
    let (files, sqlite) = (["plain", "Famio"], ["DELETE", "WAL", "Famio, MEMORY"]);
    let requests = [&sqlite[..], &["Famio, MEMORY, --defer-close auto"]].concat();
    let groups: [(_, &[_], &[_]); 5] = [
        ("files", &both, &files),
        ("sqlite", &both, &sqlite),
        ("sqlite-alone", &alone, &sqlite),
        ("requests", &["1 worker", "3 workers"], &requests),
        ("hand-over", &ownership, &files),
    ];
    // SAFETY: SQLite's initialisation has no preconditions.
    let has_sqlite = unsafe { libloading::Library::new("libsqlite3.so.0") }.is_ok();
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        for (group, patterns, setups) in groups {
            if !["files", "hand-over"].contains(&group) && !has_sqlite {
                eprintln!("libsqlite3 is not installed: skipped");
                continue;
            }
            let folder = tempfile::tempdir_in(parent).unwrap();
            // The table's title, its head, and below it the torn reads.
            let rows = rows(&library, folder.path(), &[&tiny[..], &[group]].concat());
            assert!(rows[0].starts_with("PATTERN"), "{rows:?}");
            let shown = &rows[1..rows.len() - 2];
            assert_eq!(shown.len(), patterns.len() * setups.len(), "{rows:?}");
            for (at, row) in shown.iter().enumerate() {
                let row: Vec<_> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
                assert!(
                    row[0].starts_with(patterns[at / setups.len()]) && row[1] == setups[at % setups.len()],
                    "{row:?}"
                );
            }
        }
    }
}

#[test]
fn processes_can_be_chosen() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let chosen = ["processes", "--short", "--size", "1", "--only", "files", "--readers", "1", "--writers", "1"];
    let rows = rows(&library, folder.path(), &[&chosen[..], &["--rate", "100", "--domain", "emulated"]].concat());
    let firsts: Vec<_> = rows[1..rows.len() - 2].iter().map(|row| row.split("  ").next().unwrap()).collect();
    assert_eq!(firsts, ["1 reader", "1 reader", "1 reader, 1 writer at 100/s", "1 reader, 1 writer at 100/s"]);
}

#[test]
fn processes_that_make_no_sense_are_refused() {
    for (args, why) in [
        (&["--readers", "0"][..], "--readers and --writers: neither is above 0"),
        (&["--readers", "100"], "100 is not in 0..=48"),
        (&["--rate", "5"], "--writers <N>"),
        (&["--writers", "1", "--rate", "0"], "not a number above 0"),
        (&["--seconds", "NaN"], "not a number above 0"),
        (&["--short", "--rounds", "2"], "cannot be used with"),
        (&["--only", "everything"], "invalid value 'everything'"),
        (&["--folder", "/nonexistent"], "/nonexistent"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_famio")).args(["bench", "processes"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn sqlite_shows_both_sizes_of_transaction() {
    let Some(library) = built("libfamio_preload.so") else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        eprintln!("sqlite3 is not installed: skipped");
        return;
    }
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        whole(&rows(&library, folder.path(), &["sqlite", "--rows", "20", "--rounds", "1"]), &["1", "50"], 2);
    }
}

#[test]
fn region_shows_copies_and_searches() {
    // With the defaults, it used to fail on a disk.
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        region_in(parent);
    }
}

fn region_in(parent: &str) {
    let folder = tempfile::tempdir_in(parent).unwrap();
    let rows =
        rows(Path::new("none"), folder.path(), &["region", "--rounds", "1", "--thousands", "1", "--regions", "50"]);
    let firsts =
        ["64 B to one place,", "64 B to one place of", "64 B over 1 MiB,", "64 B over 1 MiB of", "search", "search"]
            .into_iter()
            .chain(["4 KiB in order from", "4 KiB in order from", "4 KiB in order to", "4 KiB in order to"])
            .chain(["64 B over 64 MiB of", "the same, of a region for copies"]);
    assert_eq!(rows.len(), firsts.clone().count(), "{rows:?}");
    assert!(rows.iter().zip(firsts).all(|(row, first)| row.trim_start().starts_with(first)), "{rows:?}");
    assert_eq!(rows.iter().flat_map(|row| row.split_whitespace()).filter(|word| is_ratio(word)).count(), 5, "{rows:?}");
}

#[test]
fn map_shows_every_way() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let tiny = ["map", "--size", "2M", "--files", "5", "--file-size", "64K", "--rounds", "1"];
    let sequential = ["populate", "default", "ahead", "advised", "copy"].map(|way| format!("sequential, {way}"));
    let random = ["populate", "default", "ahead"].map(|way| format!("random, {way}"));
    let zipf = ["populate", "default", "cache, no limit", "populate", "cache, limit"].map(|way| format!("zipf, {way}"));
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let mut rows = rows(&library, folder.path(), &tiny);
        rows.retain(|row| !row.starts_with("sequential, huge")); // if the kernel supports it
        let firsts: Vec<&str> = sequential.iter().chain(&random).chain(&zipf).map(String::as_str).collect();
        assert_eq!(rows.len(), firsts.len(), "{rows:?}");
        for (row, first) in rows.iter().zip(&firsts) {
            assert!(row.starts_with(first), "{row}");
            assert!(row.split_whitespace().filter(|word| is_ratio(word)).count() >= 2, "{row}");
        }
        let folder = tempfile::tempdir_in(parent).unwrap();
        assert_eq!(
            self::rows(&library, folder.path(), &[&tiny[..], &["--only", "random"]].concat()).len(),
            random.len()
        );
    }
}

#[test]
fn small_shows_every_kind_of_file() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let firsts = [
        "made, written, closed  ",
        "made, written, closed (--on-close leave)",
        "made, written, synced, closed",
        "replaced: made, written, synced, renamed",
        "existing: opened, overwritten, closed",
        "existing: opened, appended to, closed",
        "existing: opened, read, closed",
        "existing: its size asked for",
    ];
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    whole(&rows(&library, folder.path(), &["small", "--files", "3", "--rounds", "1"]), &firsts, 1);
}

#[test]
fn cost_shows_what_grows() {
    let Some(library) = built("libfamio_preload.so") else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for (only, firsts) in [
        ("open-files", &["open files          1 ", "open files          100 ", "open files          1000 "][..]),
        ("small-files", &["small files  100 ", "small files  1000 "]),
    ] {
        let shown = rows(&library, folder.path(), &["cost", "--rounds", "1", "--only", only]);
        let found: Vec<_> = shown.iter().filter(|row| row.starts_with(only.split('-').next().unwrap())).collect();
        assert_eq!(found.len(), firsts.len(), "{shown:?}");
        assert!(shown.iter().all(|row| row.contains('x')), "{shown:?}");
    }
}

#[test]
fn tx_shows_what_a_transaction_costs() {
    for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let rows = rows(Path::new("none"), folder.path(), &["tx", "--rounds", "1", "--count", "100", "--mib", "1"]);
        let firsts = [
            "bare copy",
            "transaction ",
            "transaction that checks",
            "writes and a SYNC",
            "transaction of libpmemobj",
            "transactions a second, one thread",
            "transactions a second, two threads",
        ];
        assert_eq!(rows.len(), firsts.len(), "{rows:?}");
        assert!(rows.iter().zip(firsts).all(|(row, first)| row.starts_with(first)), "{rows:?}");
    }
}
