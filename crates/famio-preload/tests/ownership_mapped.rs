//! Real programs whose processes map one atomic file: LMDB's, killed at random, and fio's.

mod common;

use common::torture::{Said, seconds, torture};
use common::{Folder, succeed, under};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3";

/// Each process has its own numbers, with the last one in two places; it also reads entries of the other.
const WRITES: &str = r#"
import sys, os, lmdb, random
me, mode = sys.argv[1].encode(), sys.argv[2]
env = lmdb.open("atomic.mdb", subdir=False, map_size=256 << 20, writemap="w" in mode)
while True:
    env.reader_check() # the slots of readers that were killed
    with env.begin(write=True) as t:
        n = int(t.get(b"n" + me) or b"0") + 1
        assert n == int(t.get(b"z" * 300 + me) or b"0") + 1, "torn"
        t.put(b"n" + me, b"%d" % n)
        for i in range(12):
            t.put(me + b"%d" % random.randrange(2000), b"%d:" % n + os.urandom(random.randrange(400)))
            if i % 5 == 0: t.delete(me + b"%d" % random.randrange(2000))
        t.put(b"z" * 300 + me, b"%d" % n)
    os.write(1, b"%d\n" % n)
    with env.begin() as t:
        for k, v in t.cursor():
            assert k[:1] in b"nz" or b":" in v
"#;

/// The first process that opens it writes its first pages without a SYNC: if it dies before its first commit, they
/// are rolled back, even if others have read them by then (docs/programs.md).
const CREATES: &str = r#"
import sys, lmdb
env = lmdb.open("atomic.mdb", subdir=False, map_size=256 << 20, writemap="w" in sys.argv[1])
with env.begin(write=True) as t: t.put(b"n", b"0")
"#;

const CHECKS: &str = r#"
import lmdb
env = lmdb.open("atomic.mdb", subdir=False, map_size=256 << 20)
with env.begin() as t:
    count = 0
    last = {}
    for me in (b"0", b"1", b"2"):
        last[me] = int(t.get(b"n" + me) or b"0")
        assert last[me] == int(t.get(b"z" * 300 + me) or b"0")
    for k, v in t.cursor():
        count += 1
        assert k[:1] in b"nz" or int(v.split(b":")[0]) <= last[k[:1]]
    assert count == t.stat()["entries"]
for me in (b"0", b"1", b"2"): print(last[me])
"#;

fn is_there(program: &str, arguments: &[&str]) -> bool {
    let there = Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success());
    if !there {
        eprintln!("SKIPPED: there is no {program} {arguments:?}");
    }
    there
}

/// LMDB's lock is in a file of its own, so Famio does not see it.
fn lmdb(folder: &Folder, mode: &str, time: Duration, pause: Duration) {
    if !is_there(PYTHON, &["-c", "import lmdb"]) {
        return;
    }
    const PROCESSES: usize = 3;
    let said: Vec<Said> = (0..PROCESSES).map(|_| Said::default()).collect();
    succeed(under(folder, PYTHON).env("FAMIO_ATOMIC", "atomic.mdb").args(["-c", CREATES, mode]));
    let begin = |number: usize| {
        let mut command = under(folder, PYTHON);
        command.env("FAMIO_ATOMIC", "atomic.mdb").args(["-c", WRITES, &number.to_string(), mode]);
        command
    };
    let kills = torture(PROCESSES, time, pause, begin, &said, |_| true);
    let (found, _) = succeed(under(folder, PYTHON).env("FAMIO_ATOMIC", "atomic.mdb").args(["-c", CHECKS]));
    let found: Vec<u64> = found.lines().map(|line| line.parse().unwrap()).collect();
    let mut acknowledged = 0;
    for (said, found) in said.iter().zip(found) {
        let said = said.lock().unwrap();
        acknowledged += said.len();
        let last = said.last().map_or(0, |line| line.parse::<u64>().unwrap());
        assert!(found >= last, "{mode}: {last} is lost, it has {found}");
    }
    println!("{mode}: {kills} kills, {acknowledged} transactions acknowledged: none lost, none torn");
}

#[test]
fn lmdb_by_three_processes_in_memory() {
    for mode in ["-", "w"] {
        lmdb(&Folder::new(&format!("turns-lmdb{mode}")), mode, seconds(3), Duration::from_millis(300));
    }
}

#[test]
fn lmdb_by_three_processes_on_disk() {
    for mode in ["-", "w"] {
        lmdb(&Folder::on_disk(&format!("turns-lmdb{mode}")), mode, seconds(4), Duration::from_millis(500));
    }
}

/// Each process writes and verifies a part of its own; at any part but the first, fio's mmap engine fails its own
/// check even on a plain file.
#[test]
fn fio_by_four_processes() {
    if !is_there("fio", &["--version"]) {
        return;
    }
    for folder in [Folder::new("turns-fio"), Folder::on_disk("turns-fio")] {
        std::fs::write(folder.path().join("atomic"), vec![0; 4 << 20]).unwrap();
        for engines in [["mmap", "psync", "vsync", "pvsync2"], ["mmap", "sync", "psync", "sync"]] {
            let begin = |(number, engine): (usize, &&str)| {
                let mut command = under(&folder, "fio");
                command.args([
                    "--name=job",
                    "--filename=atomic",
                    "--size=1m",
                    "--rw=randwrite",
                    "--bs=4k",
                    "--fsync=64",
                ]);
                command.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0"]);
                command.args([format!("--offset={number}m"), format!("--ioengine={engine}")]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            };
            let all: Vec<_> = engines.iter().enumerate().map(begin).collect();
            for (child, engine) in all.into_iter().zip(engines) {
                let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
                assert!(status.success() && !said.contains("verify:"), "{engine}: {status}\n{said}");
            }
        }
    }
}
