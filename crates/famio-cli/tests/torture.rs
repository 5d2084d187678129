//! `famio torture` on sqlite3 with SQLite's journal off: what it finds, what it does not, and what it leaves.

mod common;

use common::built;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Transactions that rewrite more pages than the cache holds, so that SQLite writes to the file in the middle of
/// them.
const WORK: &str = "\
PRAGMA synchronous=FULL; PRAGMA cache_size=8;
CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, tx INTEGER, text TEXT);
INSERT INTO t SELECT value, 0, printf('%0200d', 0) FROM generate_series(1, 500) WHERE NOT EXISTS (SELECT 1 FROM t);
";
const TRANSACTION: &str =
    "UPDATE t SET tx = tx + 1, text = printf('%0200d', tx + 1 + id);\nSELECT 'ack ' || max(tx) FROM t;\n";

/// Complete, intact, and not older than what was acknowledged.
const CHECK: &str = "\
acked=$(sed -n 's/^ack //p' \"$FAMIO_TORTURE_OUTPUT\" | tail -n 1)
found=$(sqlite3 app.db 'SELECT min(tx), max(tx), count(*) FROM t' 2>/dev/null) || found=
[ -n \"$found\" ] || { [ -z \"$acked\" ] && exit 0; echo 'no table'; exit 1; }
echo \"acknowledged $acked, found $found\"
[ \"$(sqlite3 app.db 'PRAGMA integrity_check')\" = ok ] || exit 1
IFS='|'
set -- $found
[ \"$1\" = \"$2\" ] && [ \"$3\" = 500 ] && [ \"$2\" -ge \"${acked:-0}\" ]";

struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        let place = Self { folder: tempfile::tempdir_in("/dev/shm").unwrap(), library: built("libfamio_preload.so")? };
        std::fs::write(place.path("work.sql"), format!("PRAGMA journal_mode=OFF;\n{WORK}{}", TRANSACTION.repeat(300)))
            .unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = common::famio();
        command.current_dir(self.folder.path()).env("FAMIO_PRELOAD", &self.library).env("HOME", self.folder.path());
        command.arg("torture").args(args).stdin(std::fs::File::open(self.path("work.sql")).unwrap());
        command
    }

    fn torture(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn evidence(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().contains("famio-torture-")).collect()
    }
}

#[track_caller]
fn ended(output: &Output, status: i32) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{text}");
    text
}

/// The number of processes with this word in their command line.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| has(&line, word))).count()
}

fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

#[test]
fn every_check_passes_under_famio() {
    let Some(place) = Place::new() else { return };
    for options in [&[][..], &["--policy", "undo"], &["--policy", "redo", "--domain", "emulated"]] {
        let mut args = vec!["--atomic", "./app.db", "--kills", "8", "--check", CHECK];
        args.extend(options);
        args.extend(["--", "sqlite3", "-bail", "-init", "/dev/null", "app.db"]);
        let text = ended(&place.torture(&args), 0);
        assert!(text.contains("8 kills") && text.contains("all passed"), "{text}");
        assert_eq!(place.evidence(), [] as [PathBuf; 0]);
        assert!(!place.path(".famio").exists());
    }
}

#[test]
fn the_same_without_protection_is_found_out() {
    let Some(place) = Place::new() else { return };
    // Another file is the atomic one.
    let args = ["--atomic", "./none.db", "--kills", "500", "--check", CHECK];
    let text = ended(&place.torture(&[&args[..], &["--", "sqlite3", "-init", "/dev/null", "app.db"]].concat()), 1);
    assert!(text.contains("the check failed") || text.contains("the program ended by itself"), "{text}");
}

#[test]
fn a_wrong_checker_fails_and_the_evidence_stays() {
    let Some(place) = Place::new() else { return };
    // Only after a kill in the middle: if nothing is left, there is nothing to keep.
    let check = "echo it is all wrong; [ $FAMIO_TORTURE_KILLS -lt 2 ] || [ ! -e famio-torture-77/killed/0.mark ]";
    let args = ["--atomic", "app.db", "--seed", "77", "--kills", "1000", "--within", "0.2", "--check", check];
    let text = ended(&place.torture(&[&args[..], &["--", "sqlite3", "-init", "/dev/null", "app.db"]].concat()), 1);
    assert!(text.contains("    it is all wrong") && text.contains("kill ") && text.contains("--seed 77"), "{text}");
    let folder = place.path("famio-torture-77");
    for name in ["killed/0.file", "killed/0.journal-copy", "killed/0.mark", "recovered/0.file", "program.stdout"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    let report = std::fs::read_to_string(folder.join("report.txt")).unwrap();
    assert!(report.contains("it is all wrong") && report.contains("seed 77"), "{report}");
    // The copies are not taken for journals.
    let output = Command::new(env!("CARGO_BIN_EXE_famio")).arg("status").arg(&folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no journals\n");
}

#[test]
fn a_run_that_tests_nothing_says_so() {
    let Some(place) = Place::new() else { return };
    let check =
        ["--kills", "2", "--within", "0.05", "--check", "true", "--", "sqlite3", "-init", "/dev/null", "app.db"];
    // Nothing is known about unprotected files: the check may fail.
    let text = ended(&place.torture(&[&["--atomic", "./other.db", "--may-fail"], &check[..]].concat()), 2);
    assert!(text.contains("nothing was tested"), "{text}");
    let text = ended(&place.torture(&["--atomic", "a.db", "--within", "60", "--check", "true", "--", "true"]), 2);
    assert!(text.contains("ended by itself 100 times"), "{text}");
    ended(&place.torture(&["--atomic", "a.db", "--", "true"]), 2);
    ended(&place.torture(&["--atomic", "a.db", "--kills", "0", "--check", "true", "--", "true"]), 2);
    ended(&place.torture(&["--atomic", "a.db", "--check", "true", "--", "no-such-program"]), 127);
    ended(&place.torture(&["--check", "true", "--", "true"]), 125);
    assert_eq!(place.evidence(), [] as [PathBuf; 0]);
}

#[test]
fn a_program_that_fails_is_a_failure_unless_it_may() {
    let Some(place) = Place::new() else { return };
    let program = ["--", "sh", "-c", "sqlite3 -init /dev/null app.db; echo this is wrong >&2; exit 3"];
    let args = ["--atomic", "app.db", "--kills", "1", "--within", "3600", "--check", "true"];
    let text = ended(&place.torture(&[&args[..], &program].concat()), 1);
    assert!(text.contains("    this is wrong") && text.contains("exit status: 3"), "{text}");
    let args = ["--atomic", "app.db", "--kills", "20", "--may-fail", "--check", "true"];
    ended(&place.torture(&[&args[..], &program].concat()), 0);
}

#[test]
fn all_that_the_program_started_dies_with_it() {
    let Some(place) = Place::new() else { return };
    let word = format!("31{}", std::process::id());
    // One process in the group, one in a new session.
    let script = format!("sleep {word} & setsid sleep {word} & sqlite3 -init /dev/null app.db");
    let check = format!("! pgrep -f '^sleep {word}'");
    let args = ["--atomic", "app.db", "--kills", "20", "--within", "0.3", "--check", &check, "--", "sh", "-c", &script];
    let text = ended(&place.torture(&args), 0);
    assert!(text.contains("20 kills"), "{text}");
    assert_eq!(processes_with(&format!("sleep\0{word}")), 0);
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let Some(place) = Place::new() else { return };
    let word = format!("32{}", std::process::id());
    let args = ["--atomic", "app.db", "--within", "60", "--check", "true", "--", "sleep", &word];
    let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("seed "), "{line}");
    // SAFETY: a child not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    assert_eq!(processes_with(&format!("sleep\0{word}")), 0);
    assert_eq!(place.evidence(), [] as [PathBuf; 0]);
}
