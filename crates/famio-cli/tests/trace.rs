//! `famio trace` on real programs: what is listed, what is suggested, and what is written to famio.toml.

mod common;

use common::built;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        Some(Self { folder: tempfile::tempdir().unwrap(), library: built("libfamio_trace.so")? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn famio(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        command.current_dir(self.folder.path()).env("FAMIO_TRACER", &self.library).env("HOME", self.folder.path());
        command.env_remove("LD_PRELOAD").stdin(Stdio::null()).arg("trace").args(args);
        command
    }

    fn trace(&self, args: &[&str]) -> Output {
        self.famio(args).output().unwrap()
    }

    /// Traces a program, which must succeed; returns the report.
    fn report(&self, program: &[&str]) -> Value {
        let json = self.path("report.json");
        let mut args = vec!["--json", "--output", json.to_str().unwrap(), "--"];
        args.extend(program);
        let done = self.trace(&args);
        assert!(done.status.success(), "{done:?}");
        self.read_report()
    }

    fn read_report(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("report.json")).unwrap()).unwrap()
    }

    /// A file of a report.
    fn file(&self, report: &Value, name: &str) -> Value {
        let path = self.path(name);
        let files = report["files"].as_array().unwrap();
        let found = files.iter().find(|file| file["path"] == path.to_str().unwrap());
        found.unwrap_or_else(|| panic!("{name} is not in {report:#}")).clone()
    }

    fn suggested(&self, report: &Value) -> Vec<String> {
        let files = report["files"].as_array().unwrap().iter();
        files.filter(|file| file["suggested"] == true).map(|file| file["path"].as_str().unwrap().to_string()).collect()
    }

    fn compile(&self, name: &str, text: &str, options: &[&str]) {
        let source = self.path(&format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let done = Command::new("cc").args(options).arg("-o").arg(self.path(name)).arg(&source).status().unwrap();
        assert!(done.success());
    }
}

fn there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success());
    if !there {
        eprintln!("{program} is not installed: skipped");
    }
    there
}

#[track_caller]
fn counts(file: &Value, wanted: &[(&str, u64)]) {
    for (name, count) in wanted {
        assert_eq!(file[name], *count, "{name} of {file:#}");
    }
}

const SQL: &str = "CREATE TABLE t(a); INSERT INTO t VALUES (1); UPDATE t SET a = 2;";

#[test]
fn sqlites_database_is_suggested_and_its_journal_is_not() {
    let Some(place) = Place::new() else { return };
    if !there("sqlite3") {
        return;
    }
    let report = place.report(&["sqlite3", "app.db", SQL]);
    assert_eq!(place.suggested(&report), [place.path("app.db").to_str().unwrap()]);
    assert_eq!(place.file(&report, "app.db-journal")["kind"], "temporary");
    let database = place.file(&report, "app.db");
    assert!(database["locks"].as_u64().unwrap() > 0 && database["syncs"].as_u64().unwrap() >= 3, "{database:#}");
    // A journal that is kept.
    let report = place.report(&["sqlite3", "app.db", "PRAGMA journal_mode=PERSIST; INSERT INTO t VALUES (3)"]);
    assert_eq!(place.file(&report, "app.db-journal")["kind"], "companion");
    // A write-ahead log that remains because its program is killed.
    let json = place.path("report.json");
    let sql = "PRAGMA journal_mode=WAL; INSERT INTO t VALUES (4)";
    let args = ["--json", "-o", json.to_str().unwrap(), "--", "sqlite3", "app.db", sql, ".shell kill -9 $PPID"];
    let killed = place.trace(&args);
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
    let report = place.read_report();
    for name in ["app.db-wal", "app.db-shm"] {
        assert_eq!(place.file(&report, name)["kind"], "companion", "{report:#}");
    }
    assert_eq!(place.suggested(&report).len(), 1, "{report:#}");
}

#[test]
fn python_and_a_kill() {
    let Some(place) = Place::new() else { return };
    if !there("python3") {
        return;
    }
    let script = r#"
import os, mmap, fcntl, signal
f = open("mapped", "w+b"); f.write(bytes(8192)); f.flush()
m = mmap.mmap(f.fileno(), 0); m[0:3] = b"abc"; m.flush()
fd = os.open("rewritten", os.O_RDWR | os.O_CREAT)
for _ in range(10): os.pwrite(fd, b"x" * 100, 0)
assert os.pread(fd, 1000, 0) == b"x" * 100
os.fsync(fd); fcntl.flock(fd, fcntl.LOCK_EX); fcntl.flock(fd, fcntl.LOCK_UN)
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(3): os.write(log, b"line\n"); os.fdatasync(log)
durable = os.open("durable", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
os.write(durable, b"123"); os.lseek(durable, 0, 0); os.writev(durable, [b"4", b"56"])
never = os.open("never", os.O_RDWR | os.O_CREAT); os.write(never, b"a"); os.ftruncate(never, 0)
os.open("/dev/null", os.O_WRONLY); os.write(os.memfd_create("x"), b"1")
os.kill(os.getpid(), signal.SIGKILL)
"#;
    let json = place.path("report.json");
    let done = place.trace(&["--json", "--output", json.to_str().unwrap(), "--", "python3", "-c", script]);
    assert_eq!(done.status.code(), Some(128 + 9), "{done:?}");
    let report = place.read_report();
    assert_eq!(report["status"], 137);
    counts(&place.file(&report, "mapped"), &[("maps", 1), ("mapped_bytes", 8192), ("writes", 1), ("syncs", 1)]);
    let wanted =
        [("writes", 10), ("written_bytes", 1000), ("overwrites", 9), ("syncs", 1), ("locks", 1), ("read_bytes", 100)];
    counts(&place.file(&report, "rewritten"), &wanted);
    counts(&place.file(&report, "log"), &[("writes", 3), ("overwrites", 0), ("syncs", 3), ("opens", 1)]);
    counts(&place.file(&report, "durable"), &[("writes", 2), ("written_bytes", 6), ("overwrites", 1), ("syncs", 2)]);
    counts(&place.file(&report, "never"), &[("writes", 1), ("cuts", 1), ("syncs", 0)]);
    let mut suggested = place.suggested(&report);
    suggested.sort();
    assert_eq!(
        suggested,
        ["durable", "mapped", "rewritten"].map(|name| place.path(name).to_str().unwrap().to_string())
    );
    assert_eq!(place.file(&report, "log")["kind"], "log");
    assert_eq!(place.file(&report, "never")["kind"], "plain");
    let all = report["files"].as_array().unwrap();
    assert!(all.iter().all(|file| !file["path"].as_str().unwrap().starts_with("/dev/null")), "{report:#}");
}

#[test]
fn coreutils_and_a_shell_that_forks() {
    let Some(place) = Place::new() else { return };
    let script = "echo one > a; for i in 1 2 3; do (echo $i >> a) & done; wait
        sort -o sorted a; cp a copied; cat a | tee teed > /dev/null; mv sorted moved
        dd if=/dev/zero of=synced bs=4096 count=3 conv=fsync status=none
        dd if=/dev/zero of=synced bs=100 seek=2 count=1 conv=notrunc,fsync status=none
        echo x > gone; rm gone; mkdir below; echo y > below/file; (cd below && rm file)";
    let report = place.report(&["sh", "-c", script]);
    assert!(report["programs"].as_u64().unwrap() > 5, "{report:#}");
    counts(&place.file(&report, "a"), &[("opens", 4), ("writes", 4), ("written_bytes", 10), ("overwrites", 0)]);
    counts(&place.file(&report, "copied"), &[("written_bytes", 10)]);
    counts(&place.file(&report, "teed"), &[("streams", 1)]);
    counts(&place.file(&report, "moved"), &[("replaced", 1)]);
    assert_eq!(place.file(&report, "moved")["kind"], "replaced");
    counts(&place.file(&report, "synced"), &[("writes", 4), ("overwrites", 1), ("syncs", 2)]);
    counts(&place.file(&report, "gone"), &[("removed", 1)]);
    counts(&place.file(&report, "below/file"), &[("removed", 1)]);
    assert_eq!(place.suggested(&report), [place.path("synced").to_str().unwrap()]);
    let order: Vec<_> = report["files"].as_array().unwrap().iter().map(|file| file["kind"].clone()).collect();
    assert!(order[0] == "database" && order[order.len() - 1] == "temporary", "{order:?}");
}

/// Every way to write other than `write`, each with its bytes.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)
static int make(const char *name) { int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600); CHECK(fd >= 0); return fd; }
static int cleaned;
static void clean(void *unused) { (void)unused; cleaned = 1; }
static void *waits(void *pipe) {
  char byte;
  pthread_cleanup_push(clean, 0);
  read(*(int *)pipe, &byte, 1);
  pthread_cleanup_pop(0);
  return 0;
}
int main(void) {
  struct iovec two[2] = {{"ab", 2}, {"cde", 3}};
  int fd = make("vector");
  CHECK(writev(fd, two, 2) == 5 && pwritev(fd, two, 2, 5) == 5 && pwritev2(fd, two, 2, -1, 0) == 5);
  CHECK(pwritev2(fd, two, 2, 0, RWF_DSYNC) == 5);
  fd = make("printed");
  CHECK(dprintf(fd, "%d %s %g %d %d %d %d\n", 1, "two", 3.0, 4, 5, 6, 7) == 16);
  int source = make("source");
  CHECK(write(source, "0123456789", 10) == 10);
  fd = make("sent");
  off_t at = 0;
  CHECK(sendfile(fd, source, &at, 10) == 10);
  fd = make("ranged");
  off_t from = 0, to = 0;
  CHECK(copy_file_range(source, &from, fd, &to, 10, 0) == 10);
  fd = make("numbered");
  CHECK(syscall(SYS_write, fd, "abc", 3) == 3 && syscall(SYS_pwrite64, fd, "d", 1, 0) == 1 && syscall(SYS_fsync, fd) == 0);
  errno = 0;
  CHECK(syscall(SYS_write, -1, "", 1) == -1 && errno == EBADF);
  CHECK(syscall(SYS_gettid) == getpid());
  fd = make("queued");
  struct aiocb block = {.aio_fildes = fd, .aio_buf = "abcd", .aio_nbytes = 4, .aio_offset = 0};
  CHECK(aio_write(&block) == 0);
  const struct aiocb *list[1] = {&block};
  while (aio_error(&block) == EINPROGRESS) aio_suspend(list, 1, 0);
  CHECK(aio_return(&block) == 4);
  FILE *stream = fopen("updated", "w+");
  CHECK(stream && fputs("hello", stream) >= 0 && fflush(stream) == 0 && fsync(fileno(stream)) == 0 && fclose(stream) == 0);
  char name[] = "tempXXXXXX";
  fd = mkstemp(name);
  CHECK(fd >= 0 && write(fd, "x", 1) == 1 && unlink(name) == 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
  fd = make("locked");
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(fcntl(fd, F_SETLK, &lock) == 0 && lockf(fd, F_LOCK, 1) == 0);
  lock.l_type = F_UNLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  CHECK(write(fd, "1234", 4) == 4 && truncate("locked", 2) == 0 && ftruncate(fd, 8) == 0);
  CHECK(renameat(AT_FDCWD, "locked", AT_FDCWD, "renamed") == 0);
  CHECK(write(fd, "5", 1) == 1);
  int ends[2];
  pthread_t thread;
  void *result;
  CHECK(pipe(ends) == 0 && pthread_create(&thread, 0, waits, ends) == 0 && pthread_cancel(thread) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned);
  pid_t child = vfork();
  if (child == 0) { execl("/bin/sh", "sh", "-c", "echo from below >&9", (char *)0); _exit(127); }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return 0;
}
"#;

#[test]
fn every_way_to_write() {
    let Some(place) = Place::new() else { return };
    place.compile("calls", CALLS, &["-O1", "-Wall", "-Werror", "-Wno-unused-result", "-pthread"]);
    let report = place.report(&["sh", "-c", "exec ./calls 9> inherited"]);
    counts(&place.file(&report, "vector"), &[("writes", 4), ("written_bytes", 20), ("overwrites", 2), ("syncs", 1)]);
    counts(&place.file(&report, "printed"), &[("writes", 1), ("written_bytes", 16)]);
    counts(&place.file(&report, "sent"), &[("writes", 1), ("written_bytes", 10)]);
    counts(&place.file(&report, "ranged"), &[("writes", 1), ("written_bytes", 10), ("overwrites", 0)]);
    counts(&place.file(&report, "source"), &[("reads", 2), ("read_bytes", 20)]);
    counts(&place.file(&report, "numbered"), &[("writes", 2), ("written_bytes", 4), ("overwrites", 1), ("syncs", 1)]);
    counts(&place.file(&report, "queued"), &[("writes", 1), ("written_bytes", 4)]);
    counts(&place.file(&report, "updated"), &[("streams", 1), ("syncs", 1)]);
    assert_eq!(place.file(&report, "updated")["kind"], "database");
    counts(&place.file(&report, "locked"), &[("locks", 2), ("cuts", 1), ("renamed", 1), ("writes", 1)]);
    counts(&place.file(&report, "renamed"), &[("replaced", 1), ("writes", 1)]);
    counts(&place.file(&report, "inherited"), &[("writes", 1), ("written_bytes", 11)]);
    assert_eq!(std::fs::read_to_string(place.path("inherited")).unwrap(), "from below\n");
}

#[test]
fn what_is_suggested_is_written_and_used() {
    let Some(place) = Place::new() else { return };
    if !there("sqlite3") {
        return;
    }
    let done = place.trace(&["--yes", "--", "sqlite3", "app.db", SQL]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_to_string(place.path("famio.toml")).unwrap(), "atomic = [\"./app.db\"]\n");
    // Again: nothing new, and nothing lost.
    let text = "# mine\natomic = [\"./app.db\"] # the one\npolicy = \"undo\"\n";
    std::fs::write(place.path("famio.toml"), text).unwrap();
    let done = place.trace(&["--yes", "--", "sqlite3", "app.db", "INSERT INTO t VALUES (1)"]);
    assert!(String::from_utf8_lossy(&done.stderr).contains("names it already"), "{done:?}");
    assert_eq!(std::fs::read_to_string(place.path("famio.toml")).unwrap(), text);
    // From a subfolder with another database: the file above is the one that counts.
    std::fs::create_dir(place.path("data")).unwrap();
    let done =
        place.famio(&["--yes", "--", "sqlite3", "two.db", SQL]).current_dir(place.path("data")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let written = std::fs::read_to_string(place.path("famio.toml")).unwrap();
    assert!(
        written.starts_with("# mine\n") && written.contains("\"./app.db\"") && written.contains("# the one"),
        "{written}"
    );
    assert!(written.contains("\"./data/two.db\"") && written.contains("policy = \"undo\""), "{written}");
    // Another file, by its name; files outside its folder get their full path.
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("my.toml");
    let done = place.trace(&["--write", file.to_str().unwrap(), "--", "sqlite3", "three.db", SQL]);
    assert!(done.status.success(), "{done:?}");
    let whole = format!("atomic = [\"{}\"]\n", place.path("three.db").display());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
}

/// It died of SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_is_named() {
    let Some(place) = Place::new() else { return };
    let mut shell = Command::new("sh");
    let trace = format!("ulimit -f 8; exec {} trace -- touch traced", env!("CARGO_BIN_EXE_famio"));
    let done = shell.current_dir(place.folder.path()).env("FAMIO_TRACER", &place.library).args(["-c", &trace]).output();
    let done = done.unwrap();
    assert_eq!(done.status.code(), Some(125), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("ulimit -f unlimited"), "{done:?}");
    assert!(!place.path("traced").exists());
}

/// A device was replaced by a regular file, /dev/null for example; and a FIFO was waited for.
#[test]
fn what_is_no_file_is_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let Some(place) = Place::new() else { return };
    let path = |name: &str| place.folder.path().join(name);
    let device = Command::new("mknod").arg(path("null")).args(["c", "1", "3"]).output().unwrap();
    if !device.status.success() {
        eprintln!("NOT TESTED: a device takes root");
    }
    assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
    for target in ["null", "fifo"] {
        std::os::unix::fs::symlink(target, path(&format!("link-{target}"))).unwrap();
    }
    let before = std::fs::read_dir(place.folder.path()).unwrap().count();
    for name in ["null", "fifo", "link-null", "link-fifo"] {
        let done = place.trace(&["--write", name, "--", "touch", "traced"]);
        assert_eq!(done.status.code(), Some(125), "{name}: {done:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains(name), "{name}: {done:?}");
    }
    assert!(!path("traced").exists(), "it was traced though its result has no place");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), before);
    assert!(std::fs::symlink_metadata(path("fifo")).unwrap().file_type().is_fifo());
    if device.status.success() {
        assert!(std::fs::symlink_metadata(path("null")).unwrap().file_type().is_char_device());
    }
}

/// Processes that open the same files at the same time: each file must be listed once, with all their calls.
const CROWD: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  int gate[2];
  char name[16], byte;
  if (pipe(gate)) return 1;
  for (int child = 0; child < 8; child++) {
    if (fork()) continue;
    close(gate[1]);
    read(gate[0], &byte, 1);
    for (int n = 0; n < 500; n++) {
      snprintf(name, sizeof name, "many%d.db", n);
      int fd = open(name, O_RDWR | O_CREAT, 0600);
      if (fd < 0 || pwrite(fd, name, 8, 0) != 8 || pwrite(fd, name, 8, 0) != 8 || fdatasync(fd) || close(fd)) _exit(1);
    }
    _exit(0);
  }
  close(gate[1]);
  int status, failed = 0;
  for (int child = 0; child < 8; child++) failed |= wait(&status) < 0 || status != 0;
  return failed;
}
"#;

#[test]
fn many_processes_and_many_files() {
    let Some(place) = Place::new() else { return };
    place.compile("crowd", CROWD, &["-O1", "-w"]);
    let json = place.path("report.json");
    let done = place.trace(&["--json", "-o", json.to_str().unwrap(), "--yes", "--", "./crowd"]);
    assert!(done.status.success(), "{done:?}");
    let report = place.read_report();
    assert_eq!(report["files"].as_array().unwrap().len(), 500);
    assert_eq!((&report["left_out"], place.suggested(&report).len()), (&0.into(), 500));
    for n in 0..500 {
        let file = place.file(&report, &format!("many{n}.db"));
        counts(&file, &[("opens", 8), ("writes", 16), ("written_bytes", 128), ("syncs", 8)]);
    }
    assert_eq!(std::fs::read_to_string(place.path("famio.toml")).unwrap(), "atomic = [\"./*.db\"]\n");
    // For people: not five hundred lines.
    let done = place.trace(&["--", "./crowd"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.lines().count() < 20 && said.contains("and 490 more like these in this folder"), "{said}");
    let done = place.trace(&["--all", "--", "./crowd"]);
    assert!(String::from_utf8_lossy(&done.stderr).lines().count() > 500);
}

/// On a new terminal, made by script(1).
#[test]
fn on_a_terminal_it_asks() {
    let Some(place) = Place::new() else { return };
    if !there("sqlite3") || !there("script") {
        return;
    }
    let ask = |answer: &str| {
        let me = env!("CARGO_BIN_EXE_famio");
        let line = format!("{me} trace -- sqlite3 app.db 'CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES (1)'");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(place.folder.path());
        command.env("FAMIO_TRACER", &place.library).env("HOME", place.folder.path()).env_remove("LD_PRELOAD");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut said = Vec::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !String::from_utf8_lossy(&said).contains("]: ") {
            assert!(stdout.read_until(b' ', &mut said).unwrap() > 0, "{}", String::from_utf8_lossy(&said));
        }
        stdin.write_all(answer.as_bytes()).unwrap();
        std::io::copy(&mut stdout, &mut said).unwrap();
        assert!(child.wait().unwrap().success());
        String::from_utf8_lossy(&said).into_owned()
    };
    ask("none\n");
    assert!(!place.path("famio.toml").exists());
    let said = ask("7\n1\n");
    assert!(said.contains("there is no number 7"), "{said}");
    assert_eq!(std::fs::read_to_string(place.path("famio.toml")).unwrap(), "atomic = [\"./app.db\"]\n");
}

#[test]
fn the_status_and_the_streams_are_the_programs() {
    let Some(place) = Place::new() else { return };
    for status in [0, 3, 125] {
        let done = place.trace(&["--", "sh", "-c", &format!("echo out; exit {status}")]);
        assert_eq!(done.status.code(), Some(status));
        assert_eq!(done.stdout, b"out\n");
    }
    for (args, status, word) in [
        (&["--", "no-such-program"][..], 127, "no-such-program"),
        (&["--", "./"], 126, "can't be executed"),
        (&["--no-such-option", "true"], 125, "no-such-option"),
        (&[], 125, "CMD"),
    ] {
        let done = place.trace(args);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(status) && said.contains(word), "{args:?}: {done:?}");
    }
    place.compile("static", "int main(void) { return 0; }\n", &["-static"]);
    let done = place.trace(&["./static"]);
    assert!(done.status.code() == Some(125) && String::from_utf8_lossy(&done.stderr).contains("static"), "{done:?}");
    // Before the program has run.
    std::fs::write(place.path("famio.toml"), "atomik = []").unwrap();
    let done = place.trace(&["--", "sh", "-c", "echo ran"]);
    assert!(done.status.code() == Some(125) && done.stdout.is_empty(), "{done:?}");
    std::fs::remove_file(place.path("famio.toml")).unwrap();
}

/// The command waits for a server in the background, and passes a signal to the program.
#[test]
fn what_runs_on_is_waited_for() {
    let Some(place) = Place::new() else { return };
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let json = place.path("report.json");
    let args = ["--json", "-o", json.to_str().unwrap(), "--", "sh", "-c", "(read x < fifo; echo $x > late) & exit 4"];
    let mut child = place.famio(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("run on"), "{said}");
    std::fs::write(&fifo, "written\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    counts(&place.file(&place.read_report(), "late"), &[("writes", 1), ("written_bytes", 8)]);

    let script = "trap 'echo bye > bye; exit 5' TERM; echo ready; while :; do read x < fifo; done";
    let mut child =
        place.famio(&["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    // SAFETY: a child not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    // The trap runs when the read of the fifo ends, by the signal or by this, once the shell has reached the read.
    let status = loop {
        let _ = std::fs::File::options().write(true).custom_flags_nonblock().open(&fifo);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(5));
    assert_eq!(std::fs::read(place.path("bye")).unwrap(), b"bye\n");
}

/// `open` of a fifo without waiting for a reader.
trait Nonblock {
    fn custom_flags_nonblock(&mut self) -> &mut Self;
}

impl Nonblock for std::fs::OpenOptions {
    fn custom_flags_nonblock(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_NONBLOCK)
    }
}

/// The library without the command: if the variable names nothing, or nonsense, the program is not affected.
#[test]
fn a_program_that_is_not_traced() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.path("short"), "x").unwrap();
    for value in ["", "/no/such", place.path("short").to_str().unwrap()] {
        let mut command = Command::new("sh");
        command.args(["-c", "echo a > out; cat out"]).current_dir(place.folder.path());
        let done = command.env("LD_PRELOAD", &place.library).env("FAMIO_TRACE", value).output().unwrap();
        assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"a\n"[..], &b""[..]), "{value}");
    }
    assert_eq!(std::fs::read(place.path("short")).unwrap(), b"x");
}
