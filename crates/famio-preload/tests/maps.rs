//! Programs that map their files: they see what they would see on a plain file, and after a kill, the last SYNC.

mod common;

use common::{Folder, build, succeed, under};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// As [`under`]; `limit`: the size from which a file's maps are private, as for a file larger than a quarter of
/// memory.
fn under_with(limit: Option<&str>, folder: &Folder, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = under(folder, program);
    command.envs(limit.map(|limit| ("FAMIO_MAP_MEMORY", limit)));
    command
}

/// On a plain file without the interposer, which shows that the program is right, and on atomic ones: on tmpfs and on
/// disk.
fn both(what: &str) -> String {
    both_with(None, what)
}

fn both_with(limit: Option<&str>, what: &str) -> String {
    let program = build("maps");
    let folders = [Folder::new(&format!("maps-{what}")), Folder::on_disk(&format!("maps-{what}"))];
    let said = folders.each_ref().map(|folder| {
        succeed(Command::new(&program).args(["plain", what]).current_dir(folder.path()).env_remove("LD_PRELOAD"));
        let (_, said) = succeed(under_with(limit, folder, &program).args(["atomic", what]));
        assert_eq!(folder.path().join("plain").exists(), folder.path().join("atomic").exists(), "{what}");
        if folder.path().join("plain").exists() {
            assert!(folder.read("plain") == folder.read("atomic"), "{what}");
        }
        assert!(folder.names().iter().all(|name| !name.contains("famio")), "{what}: {:?}", folder.names());
        said
    });
    let _ = std::fs::remove_file(program);
    said.concat()
}

#[test]
fn stores_writes_and_reads_see_each_other() {
    assert_eq!(both("stores") + &both("read_only") + &both("grows") + &both("by_number") + &both("streams"), "");
}

#[test]
fn a_map_outlives_its_descriptor() {
    assert_eq!(both("after_close"), "");
}

#[test]
fn maps_that_move_and_maps_over_maps() {
    assert_eq!(both("remaps") + &both("fixed"), "");
}

#[test]
fn cuts_growth_and_holes() {
    assert_eq!(both("cuts") + &both("removes"), "");
}

#[test]
fn a_read_beside_a_cut_is_short_and_no_error() {
    assert_eq!(both("race"), "");
}

#[test]
fn the_first_map_beside_writes_has_them_all() {
    assert_eq!(both("first"), "");
}

#[test]
fn private_maps_and_errors() {
    assert_eq!(both("private") + &both("errors"), "");
}

/// Everything except two maps of the same bytes, or a child that stores.
#[test]
fn maps_of_large_files_are_no_other() {
    let of_one_map = ["grows", "by_number", "streams", "after_close", "cuts", "removes", "race", "first"];
    for what in of_one_map.into_iter().chain(["private", "errors", "locks"]) {
        assert_eq!(both_with(Some("1"), what), "", "{what}");
    }
}

#[test]
fn record_locks_of_the_program_stay() {
    assert_eq!(both("locks"), "");
}

#[test]
fn names_that_go_while_a_file_is_mapped() {
    let said = both("names");
    assert!(said.lines().all(|line| line.contains("the name by which it was opened is gone")), "{said}");
}

/// It used to wait forever.
#[test]
fn a_map_over_another_files_beside_opens() {
    assert_eq!(both("orders"), "");
}

#[test]
fn a_child_stores_and_its_parent_commits() {
    assert!(both("forks").contains("forked child has to open it itself"));
}

#[test]
fn advice_maps_ahead_and_changes_no_byte() {
    let program = build("advice");
    for folder in [Folder::new("advice"), Folder::on_disk("advice")] {
        succeed(Command::new(&program).arg("plain").current_dir(folder.path()).env_remove("LD_PRELOAD"));
        assert_eq!(succeed(under(&folder, &program).arg("atomic")).1, "");
        assert!(folder.read("plain") == folder.read("atomic"));
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_flag_of_open_makes_a_file_atomic() {
    let program = build("advice");
    for folder in [Folder::new("by-flag"), Folder::on_disk("by-flag")] {
        let run = |how: &str| under(&folder, &program).args(["plain", how]).output().unwrap().status;
        assert!(run("ends").success());
        assert_eq!((folder.read("by-flag"), folder.names()), (b"perhaps".to_vec(), vec!["by-flag".to_string()]));
        assert_eq!(run("kill").signal(), Some(libc::SIGKILL));
        succeed(under(&folder, "cat").arg("by-flag").env("FAMIO_ATOMIC", "by-flag"));
        assert_eq!(folder.read("by-flag"), b"durable");
        // The kernel does not know this flag.
        let mut alone = Command::new(&program);
        alone.args(["plain", "kill"]).current_dir(folder.path()).env_remove("LD_PRELOAD");
        assert_eq!(alone.status().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(folder.read("by-flag"), b"perhaps");
    }
    let _ = std::fs::remove_file(program);
}

/// The first two bytes of each page, as seen by the next process that opens the file.
fn seen(folder: &Folder) -> String {
    succeed(under(folder, "cat").arg("atomic"));
    let bytes = folder.read("atomic");
    bytes.chunks(PAGE).map(|page| String::from_utf8(page[..2].to_vec()).unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn after_a_kill_there_is_the_last_sync() {
    let program = build("maps");
    for make in [Folder::new, Folder::on_disk] as [fn(&str) -> Folder; 2] {
        let ends = "nothing gone msync fsync fdatasync range dsync sync syncfs exec _exit failed mapped mapped-exec";
        for how in ends.split(' ') {
            let folder = make(&format!("maps-kill-{how}"));
            let done = under(&folder, &program).args(["atomic", "kills", how]).output().unwrap();
            let ended = matches!(how, "exec" | "_exit" | "mapped-exec");
            assert_eq!(done.status.signal(), (!ended).then_some(libc::SIGKILL), "{how}: {done:?}");
            let wanted = match how {
                "nothing" => "aa bb cc dd",
                "dsync" => "1a 1b 1c 1d",
                _ => "1a 1b 1c dd",
            };
            assert_eq!(seen(&folder), wanted, "{how}");
        }
    }
    let _ = std::fs::remove_file(program);
}

/// Three threads store the round's number, 64 times each, all over pages of their own; then one writes it by a call
/// and SYNCs, and reports that. `quiet`: no other thread SYNCs. After a kill at any moment:
/// - no round reported as durable is lost, in any word;
/// - no word is of a round after the one that had begun, and none is half a number;
/// - `quiet`: all words, and what was written by the call, are of one round.
fn torn(limit: Option<&str>, folder: &Folder, program: &Path, quiet: bool, wait: Duration) -> u64 {
    let mut command = under_with(limit, folder, program);
    command.args(["atomic", "torn"]).args(quiet.then_some("quiet")).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut said = vec![0; 8];
    out.read_exact(&mut said).unwrap();
    let reader = std::thread::spawn(move || {
        out.read_to_end(&mut said).unwrap();
        said
    });
    let until = Instant::now() + wait;
    while Instant::now() < until {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = reader.join().unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let durable = word(&said, said.len() / 8 * 8 - 8);
    succeed(under(folder, "cat").arg("atomic"));
    let bytes = folder.read("atomic");
    assert_eq!(bytes.len(), 16 * PAGE);
    let written = word(&bytes, 15 * PAGE);
    assert!((durable..=durable + 1).contains(&written), "{written} {durable}");
    for thread in 0..3 {
        for index in 0..64 {
            let round = word(&bytes, thread * 3 * PAGE + index * 24 * 8);
            assert!((durable..=durable + 2).contains(&round), "{thread} {index}: {round} {durable}");
            assert!(!quiet || round == written, "{thread} {index}: {round} {written} {durable}");
        }
    }
    durable
}

fn threads(limit: Option<&str>, kills: u64) {
    let program = build("maps");
    for make in [Folder::new, Folder::on_disk] as [fn(&str) -> Folder; 2] {
        let folder = make("maps-torn");
        for kill in 0..kills {
            torn(limit, &folder, &program, kill % 2 == 0, Duration::from_micros(kill * 7919 % 40_000));
        }
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn threads_that_store_are_never_torn() {
    threads(None, 10);
    threads(Some("1"), 10);
}

#[test]
#[ignore = "long"]
fn threads_that_store_are_never_torn_at_many_kills() {
    threads(None, 300);
    threads(Some("1"), 300);
}

fn is_there(program: &str, arguments: &[&str]) -> bool {
    let there = Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success());
    if !there {
        eprintln!("{program} {arguments:?} does not run: SKIPPED");
    }
    there
}

/// Kills writers at random moments. `writer` prints the number of each transaction that is durable; `checker` checks
/// the file, and prints the last one. `slack` transactions may be lost.
fn kills(limit: Option<&str>, what: &str, kills: u64, slack: u64, writer: &[&str], checker: &[&str]) {
    for make in [Folder::new, Folder::on_disk] as [fn(&str) -> Folder; 2] {
        let folder = make(what);
        let mut last = 0;
        for kill in 0..kills {
            let mut child =
                under_with(limit, &folder, writer[0]).args(&writer[1..]).stdout(Stdio::piped()).spawn().unwrap();
            let mut out = child.stdout.take().unwrap();
            let mut said = vec![0];
            out.read_exact(&mut said).unwrap_or_else(|error| panic!("{what}: the writer ended: {error}"));
            let reader = std::thread::spawn(move || {
                out.read_to_end(&mut said).unwrap();
                said
            });
            let until = Instant::now() + Duration::from_micros(kill * 104_729 % 200_000);
            while Instant::now() < until {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL), "{what}");
            let said = String::from_utf8(reader.join().unwrap()).unwrap();
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            last = whole.lines().last().map_or(last, |line| line.parse().unwrap());
            let (found, _) = succeed(under_with(limit, &folder, checker[0]).args(&checker[1..]));
            let found: u64 = found.trim().parse().unwrap();
            assert!(found + slack >= last, "{what}, kill {kill}: {last} was durable, {found} is there");
            last = found;
        }
    }
}

const LMDB_WRITES: &str = r#"
import sys, os, lmdb, random
mode = sys.argv[1]
env = lmdb.open("atomic.mdb", subdir=False, map_size=32 << 20, writemap="w" in mode, metasync="m" not in mode, sync="s" not in mode)
with env.begin() as t: n = int(t.get(b"n") or b"0")
while True:
    n += 1
    with env.begin(write=True) as t:
        t.put(b"n", b"%d" % n); t.put(b"a", b"%d" % n); t.put(b"z" * 300, b"%d" % n)
        for i in range(20):
            t.put(b"k%d" % random.randrange(3000), b"%d:" % n + os.urandom(random.randrange(400)))
            if i % 5 == 0: t.delete(b"k%d" % random.randrange(3000))
    if "s" in mode:
        if n % 4: continue
        env.sync(True)
    os.write(1, b"%d\n" % n)
"#;

const LMDB_CHECKS: &str = r#"
import lmdb
env = lmdb.open("atomic.mdb", subdir=False, map_size=32 << 20)
with env.begin() as t:
    n, a, z = (int(t.get(key) or b"0") for key in (b"n", b"a", b"z" * 300))
    count = 0
    for k, v in t.cursor():
        count += 1
        assert k[:1] != b"k" or int(v.split(b":")[0]) <= n
    assert n == a == z and count == t.stat()["entries"], (n, a, z, count)
print(n)
"#;

/// `limit`: as for [`under_with`]. `size`: of the map, in MiB.
fn lmdb(limit: Option<&str>, size: u64, kills_each: u64) {
    const PYTHON: &str = "/usr/bin/python3";
    if !is_there(PYTHON, &["-c", "import lmdb"]) {
        return;
    }
    // Without `metasync`, LMDB itself may lose the last transaction.
    for (mode, slack) in [("default", 0), ("w", 0), ("s", 0), ("ws", 0), ("m", 1), ("wm", 1)] {
        let mode = if mode == "default" { "-" } else { mode };
        let [writes, checks] =
            [LMDB_WRITES, LMDB_CHECKS].map(|text| text.replace("32 << 20", &format!("{size} << 20")));
        kills(
            limit,
            &format!("lmdb{mode}"),
            kills_each,
            slack,
            &[PYTHON, "-c", &writes, mode],
            &[PYTHON, "-c", &checks],
        );
    }
}

#[test]
fn lmdb_loses_nothing() {
    lmdb(None, 32, 2);
}

/// With `writemap`, the file is as long as the map: 100 GiB, almost all of it holes.
#[test]
fn lmdb_with_a_map_larger_than_memory_loses_nothing() {
    lmdb(None, 100 << 10, 2);
}

/// The file outgrows its memory limit while it is mapped.
#[test]
fn lmdb_that_outgrows_its_memory_loses_nothing() {
    lmdb(Some("128K"), 32, 2);
}

#[test]
#[ignore = "long"]
fn lmdb_loses_nothing_at_many_kills() {
    lmdb(None, 32, 10);
    lmdb(None, 100 << 10, 10);
    lmdb(Some("128K"), 32, 10);
}

const SQLITE_WRITES: &str = r#"
import sys, os, sqlite3
db = sqlite3.connect("atomic.db", isolation_level=None)
assert db.execute("PRAGMA journal_mode=%s" % sys.argv[1]).fetchone()[0].upper() == sys.argv[1]
db.execute("PRAGMA synchronous=FULL"); assert db.execute("PRAGMA mmap_size=268435456").fetchone()[0] > 0
db.execute("CREATE TABLE IF NOT EXISTS t(n, b)"); db.execute("CREATE INDEX IF NOT EXISTS i ON t(b)")
n = db.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()[0]
while True:
    n += 1
    db.execute("BEGIN")
    for i in range(10): db.execute("INSERT INTO t VALUES(?, hex(randomblob(100)))", (n,))
    db.execute("DELETE FROM t WHERE n < ?", (n - 300,))
    db.execute("COMMIT")
    os.write(1, b"%d\n" % n)
"#;

const SQLITE_CHECKS: &str = r#"
import sqlite3
db = sqlite3.connect("atomic.db"); db.execute("PRAGMA mmap_size=268435456")
assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
assert db.execute("SELECT n FROM t GROUP BY n HAVING count(*) <> 10").fetchall() == []
print(db.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()[0])
"#;

fn sqlite(limit: Option<&str>, kills_each: u64) {
    const PYTHON: &str = "/usr/bin/python3";
    if !is_there(PYTHON, &["-c", "import sqlite3"]) {
        return;
    }
    for journal in ["MEMORY", "OFF"] {
        let writer = [PYTHON, "-c", SQLITE_WRITES, journal];
        kills(limit, &format!("sqlite-mapped-{journal}"), kills_each, 0, &writer, &[PYTHON, "-c", SQLITE_CHECKS]);
    }
}

#[test]
fn sqlite_with_a_map_loses_nothing() {
    sqlite(None, 3);
    sqlite(Some("64K"), 3);
}

#[test]
#[ignore = "long"]
fn sqlite_with_a_map_loses_nothing_at_many_kills() {
    sqlite(None, 20);
    sqlite(Some("64K"), 20);
}

/// Each thread has its own file: with a shared file, fio's mmap engine fails its own check even on a plain one.
fn fio(size: &str) {
    if !is_there("fio", &["--version"]) {
        return;
    }
    for make in [Folder::new, Folder::on_disk] as [fn(&str) -> Folder; 2] {
        let folder = make("maps-fio");
        let mut command = under(&folder, "fio");
        command.args(["--name=maps", "--ioengine=mmap", "--rw=randwrite", "--bs=4k", "--thread", "--numjobs=4"]);
        command.args(["--filename_format=atomic.$jobnum", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
        command.args(["--verify_state_save=0", "--fsync=64", "--output=/dev/null"]).arg(format!("--size={size}"));
        assert_eq!(succeed(&mut command).1, "");
        assert_eq!(folder.names(), ["atomic.0", "atomic.1", "atomic.2", "atomic.3"]);
    }
}

#[test]
fn fio_verifies_what_it_stored() {
    fio("1m");
}

#[test]
#[ignore = "long"]
fn fio_verifies_much_that_it_stored() {
    fio("32m");
}
