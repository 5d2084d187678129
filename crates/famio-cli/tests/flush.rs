//! `famio flush`: files get what programs have committed, while these go on.

mod common;
#[path = "common/documented.rs"]
mod documented;

use common::running::{Running, famio, said, start};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;

/// Commits `x`, and leaves an epoch open that has overwritten a part of it and appended. Answers `sync` lines.
const WRITER: &str = "
import os, sys
a = os.open('app.db', os.O_RDWR)
os.pwrite(a, b'x' * 400000, 100)
os.fsync(a)
os.pwrite(a, b'o' * 200000, 50000)
os.pwrite(a, b'o' * 100000, 2 << 20)
print('ready', flush=True)
for line in sys.stdin:
    os.fsync(a) if line == 'sync\\n' else eval(line)
    open('done', 'a').write('.')";

const SIZE: usize = 1 << 20;

fn original() -> Vec<u8> {
    vec![b'.'; SIZE]
}

fn committed() -> Vec<u8> {
    let mut bytes = original();
    bytes[100..400_100].fill(b'x');
    bytes
}

/// Where file and journal lie.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Tiered,
    Records,
    InPlace(&'static str),
}

struct Place {
    data: tempfile::TempDir,
    pool: tempfile::TempDir,
    kind: Kind,
}

impl Place {
    fn new(kind: Kind) -> Self {
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (data, pool) = match kind {
            Kind::Tiered => (disk, Path::new("/dev/shm")),
            Kind::Records => (disk, disk),
            Kind::InPlace(_) => (Path::new("/dev/shm"), Path::new("/dev/shm")),
        };
        let place = Self { data: tempfile::tempdir_in(data).unwrap(), pool: tempfile::tempdir_in(pool).unwrap(), kind };
        std::fs::write(place.file(), original()).unwrap();
        place
    }

    fn data(&self) -> &Path {
        self.data.path()
    }

    fn pool(&self) -> &str {
        self.pool.path().to_str().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.data().join("app.db")
    }

    fn start(&self, program: &str) -> Option<Running> {
        let policy = match self.kind {
            Kind::InPlace(policy) => policy,
            _ => "auto",
        };
        let in_memory = ["--durability", "process", "--domain", "emulated"];
        let in_memory = if matches!(self.kind, Kind::Records) { &[][..] } else { &in_memory[..] };
        let options = ["--atomic", "*.db", "--journal", "always", "--pool", self.pool(), "--policy", policy, "--quiet"];
        start(self.data(), &[&options[..], in_memory].concat(), program)
    }

    /// Runs `famio flush` and returns its exit status and what it has printed.
    fn flush(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = famio(self.data(), &[&["flush"], args].concat());
        (output.status.code(), said(&output))
    }

    /// The file, as a program without Famio sees it.
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    #[track_caller]
    fn recovers_to(&self, bytes: &[u8]) {
        let recovered = famio(self.data(), &["recover", "app.db"]);
        assert!(recovered.status.success(), "{}", said(&recovered));
        assert!(self.bytes() == bytes, "{:?}: not as committed", self.kind);
    }
}

/// Has the program do something, and waits until it is done.
fn tell(place: &Place, input: &mut ChildStdin, line: &str) {
    let done = || std::fs::metadata(place.data().join("done")).map_or(0, |file| file.len());
    let before = done();
    writeln!(input, "{line}").unwrap();
    while done() == before {
        std::thread::sleep(std::time::Duration::from_millis(2)); // pause between two looks
    }
}

/// Stops the program, and waits until all its threads are.
fn stop(running: &Running) -> Pid {
    let pid = running.0.id();
    let id = Pid::from_raw(pid as i32).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    let is_stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" T"))
    };
    while !std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| is_stopped(task.unwrap())) {
        std::thread::sleep(std::time::Duration::from_millis(1)); // pause between two looks
    }
    id
}

/// Everything that is committed is in the file, and nothing else; the epoch stays open, and a kill takes it back.
#[test]
fn a_file_in_use_gets_what_is_committed_and_nothing_else() {
    let in_place = ["undo", "redo", "alternate"].map(Kind::InPlace);
    for kind in [Kind::Tiered, Kind::Records].into_iter().chain(in_place) {
        let place = Place::new(kind);
        let Some(mut running) = place.start(WRITER) else { return };
        let (status, text) = place.flush(&["app.db"]);
        assert!(status == Some(0) && text.contains("app.db: flushed"), "{kind:?}: {text}");
        assert!(place.bytes() == committed(), "{kind:?}");
        // The program goes on: what was open is committed as a whole.
        let mut input = running.0.stdin.take().unwrap();
        tell(&place, &mut input, "sync");
        assert_eq!(place.flush(&["app.db"]).0, Some(0), "{kind:?}");
        let mut synced = committed();
        synced[50_000..250_000].fill(b'o');
        synced.resize(2 << 20, 0);
        synced.resize((2 << 20) + 100_000, b'o');
        assert!(place.bytes() == synced, "{kind:?}");
        tell(&place, &mut input, "os.pwrite(a, b'p' * 60000, 0)");
        assert_eq!(place.flush(&["app.db"]).0, Some(0), "{kind:?}");
        running.kill();
        place.recovers_to(&synced);
    }
}

/// A commit that changes only the size, and an open epoch that cuts the file.
#[test]
fn the_size_is_flushed_too() {
    for kind in [Kind::Tiered, Kind::Records, Kind::InPlace("auto")] {
        let place = Place::new(kind);
        let Some(mut running) = place.start(WRITER) else { return };
        let mut input = running.0.stdin.take().unwrap();
        tell(&place, &mut input, "sync");
        for (size, then) in [(3 << 20, None), (70_001, None), (5 << 20, Some(80_000))] {
            tell(&place, &mut input, &format!("(os.ftruncate(a, {size}), os.fsync(a))"));
            if let Some(then) = then {
                tell(&place, &mut input, &format!("os.ftruncate(a, {then})"));
            }
            let (status, text) = place.flush(&["app.db"]);
            assert_eq!(status, Some(0), "{kind:?}, {size}: {text}");
            assert_eq!(place.bytes().len(), size, "{kind:?}");
        }
        running.kill();
        assert!(famio(place.data(), &["recover", "app.db"]).status.success());
        assert_eq!(place.bytes().len(), 5 << 20);
    }
}

/// Counts in the first block and in others, and commits all the time: no moment is quiet.
const BUSY: &str = "
import os
first = os.getpid()
def work(name):
    a = os.open(name, os.O_RDWR | os.O_CREAT)
    count = os.open(name + '.count', os.O_RDWR | os.O_CREAT)
    k, parent = 0, os.getppid()
    while os.getppid() == parent:
        k += 1
        os.pwrite(a, b'%08d' % k, 0)
        os.pwrite(a, b'%08d' % k, (k % 40) * 10000 + 5000)
        os.fsync(a)
        os.pwrite(count, b'%08d' % k, 0)
        if k == 100 and os.getpid() == first:
            print('ready', flush=True)
work('app.db')";

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap()
}

fn count_of(place: &Place, name: &str) -> u64 {
    number(&std::fs::read(place.data().join(format!("{name}.count"))).unwrap())
}

/// What was committed at the beginning is there, while a program commits on; with several commands at once.
#[test]
fn a_busy_program_is_flushed_by_several_commands_at_once() {
    for kind in [Kind::Tiered, Kind::Records, Kind::InPlace("alternate")] {
        let place = Place::new(kind);
        let Some(mut running) = place.start(BUSY) else { return };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let before = count_of(&place, "app.db");
                        let (status, text) = place.flush(&["app.db"]);
                        assert_eq!(status, Some(0), "{kind:?}: {text}");
                        let bytes = place.bytes();
                        assert!(number(&bytes) >= before, "{kind:?}: {} < {before}", number(&bytes));
                        for k in before - 39..=before {
                            let there = number(&bytes[(k % 40) as usize * 10_000 + 5000..]);
                            assert!(there >= k, "{kind:?}: {there} < {k}");
                        }
                    }
                });
            }
        });
        assert!(running.0.try_wait().unwrap().is_none(), "{kind:?}");
        let before = count_of(&place, "app.db");
        running.kill();
        assert!(famio(place.data(), &["recover", "app.db"]).status.success());
        assert!(number(&place.bytes()) >= before);
    }
}

/// Two processes that write in turn: the session changes hands all the time.
#[test]
fn a_file_that_changes_hands_is_flushed() {
    for kind in [Kind::Tiered, Kind::InPlace("auto")] {
        let place = Place::new(kind);
        let twice = BUSY.replace("work('app.db')", "os.fork()\nwork('app.db')");
        let Some(running) = place.start(&twice) else { return };
        for _ in 0..3 {
            let (status, text) = place.flush(&["app.db"]);
            assert_eq!(status, Some(0), "{kind:?}: {text}");
        }
        drop(running);
    }
}

/// Both have written since the last SYNC; the parent has the session.
const TWO: &str = "
import os, sys
a = os.open('app.db', os.O_RDWR)
os.pwrite(a, b'x' * 400000, 100)
os.fsync(a)
r, w = os.pipe()
if os.fork() != 0:
    os.read(r, 1)
    os.pwrite(a, b'p' * 3000, 1000)
    print('ready', flush=True)
    os.read(r, 1)
    sys.exit()
os.pwrite(a, b'c' * 1000, 70000)
os.write(w, b'.')
for line in sys.stdin:
    eval(line)
    open('done', 'a').write('.')";

/// The flush changes nothing of what is not committed, nor of whom a kill takes it from.
#[test]
fn what_several_processes_have_open_goes_on() {
    for policy in ["undo", "redo", "alternate"] {
        let place = Place::new(Kind::InPlace(policy));
        let Some(mut running) = place.start(TWO) else { return };
        let mut input = running.0.stdin.take().unwrap();
        let (status, text) = place.flush(&["app.db"]);
        assert_eq!(status, Some(0), "{policy}: {text}");
        assert!(place.bytes() == committed(), "{policy}");
        running.kill();
        tell(&place, &mut input, "os.fsync(a)");
        let (status, text) = place.flush(&["app.db"]);
        assert_eq!(status, Some(0), "{policy}: {text}");
        let mut synced = committed();
        synced[70_000..71_000].fill(b'c');
        assert!(place.bytes() == synced, "{policy}");
    }
}

/// Nobody has to be waited for forever, and what is committed is safe meanwhile.
#[test]
fn a_stopped_owner_is_named_in_bounded_time() {
    let place = Place::new(Kind::Tiered);
    let Some(mut running) = place.start(WRITER) else { return };
    let pid = stop(&running);
    let (status, text) = place.flush(&["--timeout", "2", "app.db"]);
    let named = format!("process {}", running.0.id());
    assert!(status == Some(4) && text.contains(&named) && text.contains("is stopped"), "{text}");
    assert!(text.contains("waiting for process"), "{text}");
    let output = famio(place.data(), &["flush", "--json", "--timeout", "1", "app.db"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    documented::all_are_in(&documented::section("## `famio flush "), "flush", &json);
    assert_eq!((&json[0]["outcome"], &json[0]["owner"]), (&"no answer".into(), &running.0.id().into()));
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(place.flush(&["app.db"]).0, Some(0));
    assert!(place.bytes() == committed());
    running.kill();
    place.recovers_to(&committed());
}

/// The command then recovers the file, which brings it to the same state.
#[test]
fn an_owner_that_is_killed_meanwhile_leaves_a_file_that_is_recovered() {
    let place = Place::new(Kind::Tiered);
    let Some(mut running) = place.start(WRITER) else { return };
    stop(&running);
    let mut command = common::famio();
    let mut flush = command
        .current_dir(place.data())
        .args(["flush", "app.db"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(flush.stderr.take().unwrap()).lines();
    let waits = lines.next().unwrap().unwrap();
    assert!(waits.contains("waiting for"), "{waits}");
    running.kill();
    let output = flush.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("recovered"), "{}", said(&output));
    assert!(place.bytes() == committed());
}

#[test]
fn what_was_left_behind_is_recovered() {
    let place = Place::new(Kind::Tiered);
    let Some(mut running) = place.start(WRITER) else { return };
    running.kill();
    let (status, text) = place.flush(&[place.pool()]);
    assert!(status == Some(0) && text.contains("recovered"), "{text}");
    assert!(place.bytes() == committed());
    let (status, text) = place.flush(&["app.db", place.pool(), "none"]);
    assert!(status == Some(1) && text.matches("nothing to flush").count() == 2 && text.contains("none"), "{text}");
}

/// The files of a pool folder, each by its own process.
#[test]
fn all_files_of_a_pool_are_flushed() {
    let place = Place::new(Kind::Tiered);
    let names = ["app.db", "b.db", "c.db"];
    let mut all = Vec::new();
    for name in names {
        std::fs::write(place.data().join(name), original()).unwrap();
        let Some(running) = place.start(&WRITER.replace("app.db", name)) else { return };
        all.push(running);
    }
    all[1].kill();
    let output = famio(place.data(), &["flush", "--json", place.pool()]);
    assert!(output.status.success(), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    documented::all_are_in(&documented::section("## `famio flush "), "flush", &json);
    for (name, outcome) in names.into_iter().zip(["flushed", "recovered", "flushed"]) {
        let path = place.data().join(name);
        let is_it = |entry: &&Value| entry["file"] == path.to_str().unwrap();
        let entry = json.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{json}"));
        assert!(entry["outcome"] == outcome && entry["bytes"].is_u64(), "{json}");
        assert!(std::fs::read(&path).unwrap() == committed(), "{name}");
    }
}

/// More than the background can wait for at once.
#[test]
fn a_program_with_many_files_is_flushed() {
    const FILES: usize = 140;
    let place = Place::new(Kind::InPlace("undo"));
    let program = format!(
        "
import os, sys
for k in range({FILES}):
    a = os.open(f'{{k}}.db', os.O_RDWR | os.O_CREAT)
    os.pwrite(a, b'x' * 100, 0)
    os.fsync(a)
    os.pwrite(a, b'o' * 100, 0)
print('ready', flush=True)
sys.stdin.read()"
    );
    let Some(_running) = place.start(&program) else { return };
    let (status, text) = place.flush(&[place.pool()]);
    assert!(status == Some(0) && text.matches(": flushed").count() == FILES, "{text}");
    for k in 0..FILES {
        assert!(std::fs::read(place.data().join(format!("{k}.db"))).unwrap() == [b'x'; 100], "{k}");
    }
}

/// A program that only reads, one that only appends, and an ordinary file.
#[test]
fn files_without_anything_that_waits_are_told() {
    let place = Place::new(Kind::Tiered);
    std::fs::write(place.data().join("plain"), b"plain").unwrap();
    let reader = "
import os, sys
a = os.open('app.db', os.O_RDWR)
os.pread(a, 10, 0)
print('ready', flush=True)
sys.stdin.read()";
    let Some(_reader) = place.start(reader) else { return };
    let grows = "
import os, sys
a = os.open('new.db', os.O_RDWR | os.O_CREAT)
os.write(a, b'x' * 10000)
os.fsync(a)
os.write(a, b'o' * 10000)
print('ready', flush=True)
sys.stdin.read()";
    let Some(_growing) = start(place.data(), &["--atomic", "new.db", "--quiet"], grows) else { return };
    for file in ["plain", "app.db", "new.db"] {
        let (status, text) = place.flush(&[file]);
        assert!(status == Some(0) && text.contains(&format!("{file}: nothing to flush")), "{text}");
    }
}

/// The command does not open the file, so that alternate writing goes on.
#[test]
fn a_flush_ends_no_lease() {
    let place = Place::new(Kind::InPlace("auto"));
    let program = "
import os, sys
a = os.open('app.db', os.O_RDWR)
for k in range(100):
    os.pwrite(a, b'x' * 100, k * 100)
    os.fsync(a)
os.pwrite(a, b'o' * 100, 0)
print('ready', flush=True)
for line in sys.stdin:
    os.pwrite(a, b'x' * 100, 0)
    os.fsync(a)
    os.pwrite(a, b'o' * 100, 0)
    open('done', 'a').write('.')";
    let Some(mut running) = place.start(program) else { return };
    let mut input = running.0.stdin.take().unwrap();
    let has_lease = || {
        let output = famio(place.data(), &["ps", "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = place.file();
        let files = json.as_array().unwrap().iter().filter(|entry| entry["file"] == file.to_str().unwrap());
        files.map(|entry| entry["lease"] == true).next().unwrap_or(false)
    };
    // It is asked for at a SYNC from time to time.
    let mut tries = 0;
    while !has_lease() {
        tries += 1;
        if tries == 500 {
            return eprintln!("SKIPPED: no lease");
        }
        tell(&place, &mut input, "again");
    }
    let (status, text) = place.flush(&["app.db"]);
    assert!(status == Some(0) && has_lease(), "{text}");
    tell(&place, &mut input, "again");
    assert!(place.flush(&["app.db"]).0 == Some(0) && has_lease());
    assert!(!place.bytes().contains(&b'o'));
}
