//! Several processes with one file, killed at random: no acknowledged record is lost, none is torn, no process waits
//! forever, and nothing is left.

mod common;

use common::torture::{Said, seconds, torture};
use common::{Folder, build, under};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const SLOTS: usize = 32;

fn read_after(folder: &Folder) -> Vec<u8> {
    // Opening it recovers it first.
    let copied = under(folder, "cat").arg("atomic").output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
    let left = common::agent::shared_memory::of_folder(folder.path());
    assert!(left.is_empty(), "{left:?}");
    copied.stdout
}

fn check(file: &[u8], said: &[Said]) -> (usize, usize) {
    let mut records = HashMap::new();
    let text = &file[SLOTS * BLOCK..];
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let line = std::str::from_utf8(line).expect("a record is torn");
        let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix("]\n"));
        let (front, rest) = inner.and_then(|inner| inner.split_once(' ')).unwrap_or_else(|| panic!("torn: {line:?}"));
        let (body, back) = rest.rsplit_once(' ').unwrap_or_else(|| panic!("torn: {line:?}"));
        assert_eq!(front, back, "torn");
        assert!(body.bytes().all(|byte| Some(byte) == body.bytes().next()), "torn: {line:?}");
        *records.entry(front.to_owned()).or_insert(0) += 1;
    }
    assert!(records.values().all(|&times| times == 1), "a record is there twice");
    let mut acknowledged = 0;
    for (number, said) in said.iter().enumerate() {
        let mut slots = [0u32; 2];
        for line in said.lock().unwrap().iter() {
            let mut words = line.split(' ');
            let (what, thread, stamp) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            acknowledged += 1;
            if what == "record" {
                let name = format!("{number}.{thread}.{stamp}");
                assert!(records.contains_key(&name), "record {name} is lost");
            } else {
                slots[thread.parse::<usize>().unwrap()] = stamp.parse().unwrap();
            }
        }
        for (thread, &stamp) in slots.iter().enumerate() {
            let at = (number * 2 + thread) * BLOCK;
            let words: Vec<u32> =
                file[at..at + BLOCK].chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
            assert!(words.iter().all(|&word| word == words[0]), "slot {number}.{thread} is torn");
            assert!(words[0] >= stamp, "slot {number}.{thread}: {stamp} is lost, it has {}", words[0]);
        }
    }
    (records.len(), acknowledged)
}

fn appenders(folder: &Folder, domain: Option<&str>, processes: usize, time: Duration, pause: Duration) {
    appenders_with(folder, domain, processes, (time, pause), false);
}

/// `keep`: acknowledged records are written, and usually not synced.
fn appenders_with(
    folder: &Folder,
    domain: Option<&str>,
    processes: usize,
    (time, pause): (Duration, Duration),
    keep: bool,
) {
    let program = build("appenders");
    std::fs::write(folder.path().join("atomic"), vec![0; SLOTS * BLOCK]).unwrap();
    let said: Vec<Said> = (0..processes).map(|_| Said::default()).collect();
    let starts = AtomicU32::new(0);
    let begin = |number: usize| {
        let mut command = under(folder, &program);
        command.args(["atomic", &number.to_string()]).envs(domain.map(|domain| ("FAMIO_DOMAIN", domain)));
        if keep {
            // Without SYNCs, they may be faster than the clock.
            let first = 10_000_000 * (1 + starts.fetch_add(1, Ordering::Relaxed));
            command.arg("500").arg(first.to_string()).env("FAMIO_ON_KILL", "keep");
        }
        command
    };
    let kills = torture(processes, time, pause, begin, &said, |_| true);
    let (records, acknowledged) = check(&read_after(folder), &said);
    assert!(acknowledged > 20, "{acknowledged} acknowledged");
    println!("{kills} kills, {acknowledged} acknowledged, {records} records: none lost, none torn");
    let _ = std::fs::remove_file(program);
}

#[test]
fn appenders_in_memory() {
    appenders(&Folder::new("turns-append"), None, 4, seconds(3), Duration::from_millis(150));
}

#[test]
fn appenders_in_emulated_memory() {
    let folder = Folder::new("turns-append-emulated");
    appenders(&folder, Some("emulated"), 3, seconds(3), Duration::from_millis(150));
}

#[test]
fn appenders_on_disk() {
    appenders(&Folder::on_disk("turns-append"), None, 3, seconds(4), Duration::from_millis(300));
}

#[test]
fn an_appender_that_does_not_sync_and_is_kept() {
    let times = (seconds(3), Duration::from_millis(150));
    appenders_with(&Folder::new("keep-append"), None, 1, times, true);
    appenders_with(&Folder::new("keep-append-emulated"), Some("emulated"), 1, times, true);
    appenders_with(&Folder::on_disk("keep-append"), None, 1, times, true);
}

#[test]
fn appenders_that_do_not_sync_and_are_kept_in_memory() {
    let times = (seconds(4), Duration::from_millis(300));
    appenders_with(&Folder::new("keep-appends"), None, 3, times, true);
}

#[test]
fn appenders_that_do_not_sync_and_are_kept_on_disk() {
    let times = (seconds(4), Duration::from_millis(400));
    appenders_with(&Folder::on_disk("keep-appends"), None, 3, times, true);
}

/// Eight processes with two threads each, a kill per second.
#[test]
#[ignore = "long: ten minutes, or FAMIO_TURNS_SECONDS"]
fn eight_processes_for_long() {
    appenders(&Folder::on_disk("turns-long"), None, 8, seconds(600), Duration::from_secs(1));
}

fn sqlite(database: &Path, folder: &Folder, script: &str) -> String {
    let mut command = under(folder, "sqlite3");
    command.arg(database).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two shells that write to one database at once, killed and restarted. SQLite's journal does not survive a kill: if
/// a shell is killed, the library rolls back its unfinished transaction before the other one reads it.
fn two_shells(folder: &Folder, time: Duration, pause: Duration, settings: &str) {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("SKIPPED: there is no sqlite3");
        return;
    }
    let database = folder.path().join("atomic.db");
    sqlite(&database, folder, "create table t(shell, n, half, pad); create index i on t(pad);");
    let said: Vec<Said> = (0..2).map(|_| Said::default()).collect();
    let begin = |number: usize| {
        let mut script = format!(".timeout 20000\npragma journal_mode=memory;\npragma synchronous=full;\n{settings}\n");
        let first = Instant::now().elapsed().as_nanos();
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() + first;
        for n in 0..3000 {
            let name = unique + n;
            script += &format!(
                "begin immediate; insert into t values({number},{name},1,hex(randomblob(900))); \
                 insert into t values({number},{name},2,hex(randomblob(900))); commit; select 'done {name}';\n"
            );
        }
        let script_path = folder.path().join(format!("script-{number}"));
        std::fs::write(&script_path, script).unwrap();
        let mut command = under(folder, "sqlite3");
        command.args(["-bail".as_ref(), database.as_os_str()]);
        command.stdin(std::fs::File::open(script_path).unwrap());
        command
    };
    let kills = torture(2, time, pause, begin, &said, |line| line.starts_with("done "));
    let found = sqlite(&database, folder, "pragma integrity_check; select n, count(*), sum(half) from t group by n;");
    let mut lines = found.lines();
    assert_eq!(lines.next(), Some("ok"));
    let mut there = HashMap::new();
    for line in lines {
        let (name, halves) = line.split_once('|').unwrap();
        assert_eq!(halves, "2|3", "transaction {name} is torn");
        there.insert(name.to_owned(), ());
    }
    let mut acknowledged = 0;
    for line in said.iter().flat_map(|said| said.lock().unwrap().clone()) {
        if let Some(name) = line.strip_prefix("done ") {
            acknowledged += 1;
            assert!(there.contains_key(name), "transaction {name} is lost");
        }
    }
    assert!(acknowledged > 5, "{acknowledged} acknowledged");
    println!("{kills} kills, {acknowledged} transactions acknowledged: none lost, none torn");
}

#[test]
fn two_sqlite_shells_in_memory() {
    two_shells(&Folder::new("turns-sqlite"), seconds(4), Duration::from_millis(300), "");
}

#[test]
fn two_sqlite_shells_on_disk() {
    two_shells(&Folder::on_disk("turns-sqlite"), seconds(4), Duration::from_millis(400), "");
}

/// They read the database through maps of it.
const MAPPED: &str = "pragma mmap_size=268435456;";

#[test]
fn two_sqlite_shells_that_map_in_memory() {
    two_shells(&Folder::new("turns-sqlite-map"), seconds(4), Duration::from_millis(300), MAPPED);
}

#[test]
fn two_sqlite_shells_that_map_on_disk() {
    two_shells(&Folder::on_disk("turns-sqlite-map"), seconds(4), Duration::from_millis(400), MAPPED);
}
