//! Locks on atomic files: in memory while no other process can have the file open, in the kernel before another one
//! can check them.

mod common;

use common::{Folder, build, library, succeed, under};
use famio_test_support::kernel_locks;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

/// The same calls, and an outsider's check, on a plain and an atomic file.
fn differential(folder: &Folder, ways: &[&str]) {
    let program = build("locks");
    for how in ways {
        let how = how.split_whitespace();
        succeed(
            Command::new(&program).arg("plain").args(how.clone()).current_dir(folder.path()).env_remove("LD_PRELOAD"),
        );
        std::fs::remove_file(folder.path().join("model")).unwrap();
        succeed(under(folder, &program).arg("atomic").args(how));
        for name in ["model", "atomic"] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
    let _ = std::fs::remove_file(&program);
}

#[test]
fn they_are_those_of_a_plain_file() {
    // It ends with a fork, an exec, or a child that the library is not told of.
    differential(&Folder::new("locks"), &["", "exec", "clone"]);
}

#[test]
fn they_are_those_of_a_plain_file_on_a_disk() {
    // At an exec, the kernel closes the library's own descriptor of the file, and drops the locks.
    differential(&Folder::on_disk("locks"), &["", "clone"]);
}

/// SQLite's shell, which answers line by line.
struct Shell {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn new(folder: &Folder, is_under: bool, locks: &str) -> Self {
        let mut command = Command::new("sqlite3");
        command.arg("-batch").arg("atomic.db").current_dir(folder.path());
        if is_under {
            command.env("LD_PRELOAD", library()).env("FAMIO_ATOMIC", "atomic*").env("FAMIO_LOCKS", locks);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sqlite3");
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Runs statements; returns their output.
    fn run(&mut self, sql: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{sql}\n.print END").unwrap();
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the shell has ended");
            if line == "END\n" {
                return text;
            }
            text += &line;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The kinds of locks that the kernel has on a file, which do not change meanwhile.
fn kernels(folder: &Folder, name: &str) -> Vec<String> {
    let lines = kernel_locks::of_inode(std::fs::metadata(folder.path().join(name)).unwrap().ino());
    lines.iter().map(|line| line.split_whitespace().nth(1).unwrap().into()).collect()
}

const INSERT: &str = "INSERT INTO t SELECT coalesce(max(x), 0) + 1 FROM t;";

fn shells(folder: &Folder, second_is_under: bool) {
    let mut first = Shell::new(folder, true, "auto");
    first.run("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=FULL; CREATE TABLE t(x);");
    let mut rows = 0;
    // The lease is there, and between BEGIN and COMMIT the kernel has only the lease.
    loop {
        first.run("BEGIN IMMEDIATE;");
        first.run(INSERT);
        let found = kernels(folder, "atomic.db");
        rows += 1;
        if found == ["LEASE"] {
            break;
        }
        first.run("COMMIT;");
    }
    let mut second = Shell::new(folder, second_is_under, "auto");
    let seen = second.run("SELECT count(*) FROM t;");
    assert!(kernels(folder, "atomic.db").iter().any(|kind| kind == "POSIX"), "not made in the kernel");
    assert_eq!(second.run("BEGIN IMMEDIATE; SELECT 'locked by both';"), "");
    first.run("COMMIT;");
    // An outsider may read, after a delay, and must not write.
    if second_is_under {
        assert_eq!(seen, format!("{}\n", rows - 1));
        assert_eq!(second.run("SELECT count(*) FROM t;"), format!("{rows}\n"));
        assert_eq!(second.run("BEGIN IMMEDIATE; SELECT 'locked';"), "locked\n");
        assert_eq!(first.run("BEGIN IMMEDIATE; SELECT 'locked by both';"), "");
        second.run(INSERT);
        second.run("COMMIT;");
        rows += 1;
    }
    let found = first.run("SELECT count(*), max(x) FROM t; PRAGMA integrity_check;");
    assert_eq!(found, format!("{rows}|{rows}\nok\n"));
    drop(second);
    // Alone again.
    loop {
        first.run("BEGIN IMMEDIATE;");
        first.run(INSERT);
        let found = kernels(folder, "atomic.db");
        first.run("COMMIT;");
        rows += 1;
        if found == ["LEASE"] {
            break;
        }
    }
    assert_eq!(first.run("SELECT count(*), max(x) FROM t;"), format!("{rows}|{rows}\n"));
}

#[test]
fn two_shells_of_sqlite() {
    for second_is_under in [false, true] {
        shells(&Folder::new("locks-shells"), second_is_under);
        shells(&Folder::on_disk("locks-shells"), second_is_under);
    }
}

/// In one process: neither connection ends the lease, and between BEGIN and COMMIT the kernel has only the lease.
fn connections(folder: &Folder) {
    let mut shell = Shell::new(folder, true, "auto");
    shell.run("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=FULL; CREATE TABLE t(x);");
    shell.run(".connection 1\n.open atomic.db\nPRAGMA journal_mode=MEMORY; PRAGMA synchronous=FULL;");
    let (mut rows, mut in_memory) = (0, 0);
    while in_memory < 10 {
        shell.run(&format!(".connection {}", rows % 2));
        shell.run("BEGIN IMMEDIATE;");
        shell.run(INSERT);
        // While the file only grows, it has a lease, too, which ends when it does not any more.
        in_memory = if kernels(folder, "atomic.db") == ["LEASE"] { in_memory + 1 } else { 0 };
        shell.run("COMMIT;");
        rows += 1;
    }
    // A third one comes; the shell first examines the file by a stream, which ends the lease for a while.
    shell.run(".connection 2\n.open atomic.db");
    assert_eq!(shell.run("SELECT count(*) FROM t;"), format!("{rows}\n"));
    while kernels(folder, "atomic.db") != ["LEASE"] {
        shell.run(&format!(".connection {}\n{INSERT}", rows % 3));
        rows += 1;
    }
    shell.run(".connection 0\n.connection close 2");
    // The kernel's list sometimes misses a lock while others change.
    assert!((0..20).any(|_| kernels(folder, "atomic.db") == ["LEASE"]), "the close has ended the lease");
    // One keeps the other out.
    shell.run("BEGIN IMMEDIATE;");
    assert_eq!(shell.run(".connection 1\nBEGIN IMMEDIATE; SELECT 'locked by both';"), "");
    // The locks keep other processes out, too, and both go on.
    let mut second = Shell::new(folder, false, "auto");
    assert_eq!(second.run("BEGIN IMMEDIATE; SELECT 'locked by both';"), "");
    shell.run(&format!(".connection 0\n{INSERT}\nCOMMIT;"));
    shell.run(&format!(".connection 1\n{INSERT}"));
    drop(second);
    let found = format!("{0}|{0}\nok\n", rows + 2);
    for connection in 0..2 {
        shell.run(&format!(".connection {connection}"));
        assert_eq!(shell.run("SELECT count(*), max(x) FROM t; PRAGMA integrity_check;"), found);
    }
    // Alone again.
    loop {
        shell.run(".connection 0\nBEGIN IMMEDIATE;");
        shell.run(INSERT);
        let found = kernels(folder, "atomic.db");
        shell.run("COMMIT;");
        if found == ["LEASE"] {
            break;
        }
    }
}

#[test]
fn two_connections_of_one_shell() {
    connections(&Folder::new("locks-connections"));
    connections(&Folder::on_disk("locks-connections"));
}

#[test]
fn they_stay_in_the_kernel_if_that_is_asked_for() {
    let folder = Folder::new("locks-kernel");
    let mut shell = Shell::new(&folder, true, "kernel");
    shell.run("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=FULL; CREATE TABLE t(x);");
    for _ in 0..200 {
        shell.run("BEGIN IMMEDIATE;");
        shell.run(INSERT);
        assert!(kernels(&folder, "atomic.db").iter().any(|kind| kind == "POSIX"));
        shell.run("COMMIT;");
    }
}

/// Waits for the lock as a process without the library.
fn wait_for_lock(file: &std::fs::File, how: &str) {
    let fd = file.as_raw_fd();
    // SAFETY: zeros are a `flock`, and it is alive during the call.
    let done = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        if how == "flock" { libc::flock(fd, libc::LOCK_EX) } else { libc::fcntl(fd, libc::F_OFD_SETLKW, &raw mut lock) }
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Whether a process waits for a lock on the file.
fn is_awaited(folder: &Folder, name: &str) -> bool {
    kernels(folder, name).iter().any(|kind| kind == "->")
}

#[test]
fn who_waits_for_a_lock_that_ends_with_a_close_reads_what_was_written_under_it() {
    let program = build("unlocks");
    for folder in [Folder::new("unlocks"), Folder::on_disk("unlocks")] {
        for (how, journal) in
            [("flock", "auto"), ("flock", "always"), ("description", "auto"), ("description", "always")]
        {
            let mut command = under(&folder, &program);
            command.args(["atomic", how]).env("FAMIO_JOURNAL", journal).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut goes_on = child.stdin.take().unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            let path = folder.path().join("atomic");
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            let seen = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    wait_for_lock(&file, how);
                    std::fs::read(&path).unwrap()
                });
                while !is_awaited(&folder, "atomic") {
                    std::thread::yield_now();
                }
                writeln!(goes_on).unwrap();
                waiting.join().unwrap()
            });
            assert!(seen == b"written", "{how}, {journal}, {}: {} bytes", path.display(), seen.len());
            writeln!(goes_on).unwrap();
            assert!(child.wait().unwrap().success());
            std::fs::remove_file(&path).unwrap();
        }
    }
    let _ = std::fs::remove_file(&program);
}

/// Processes that lock often keep their read locks.
fn several(folder: &Folder, ways: &[(&str, &str)]) {
    let program = build("locks_kept");
    for (way, seed) in ways {
        std::fs::write(folder.path().join("atomic"), [0; 8192]).unwrap();
        succeed(under(folder, &program).args([way, seed]));
        for name in ["model", "board"] {
            let _ = std::fs::remove_file(folder.path().join(name));
        }
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn those_of_several_processes_are_those_of_a_plain_file() {
    several(
        &Folder::new("locks-several"),
        &[("compare", "1"), ("compare", "2"), ("wait", "1"), ("fork", "1"), ("exec", "1")],
    );
}

#[test]
fn those_of_several_processes_on_a_disk_are_those_of_a_plain_file() {
    several(&Folder::on_disk("locks-several"), &[("compare", "3"), ("wait", "1"), ("fork", "1")]);
}

#[test]
fn those_of_several_processes_exclude_each_other_also_if_some_are_killed() {
    several(&Folder::new("locks-exclude"), &[("exclude", "1"), ("kill", "1")]);
}

/// It gets its turn to write, and never has a lock together with a process under the library.
#[test]
fn those_of_several_processes_exclude_a_program_without_the_library() {
    let folder = Folder::new("locks-outsider");
    let program = build("locks_kept");
    std::fs::write(folder.path().join("atomic"), [0; 8192]).unwrap();
    let mut outsider = Command::new(&program);
    let outsider =
        outsider.args(["outsider", "1"]).current_dir(folder.path()).env_remove("LD_PRELOAD").spawn().unwrap();
    let done = under(&folder, &program).args(["exclude", "2"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(outsider.wait_with_output().unwrap().status.success());
    let turns: u32 = said.split("outsider ").nth(1).and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    println!("{said}");
    assert!(turns > 2, "the outsider had {turns} turns");
    let _ = std::fs::remove_file(program);
}

/// The description that keeps locks would prevent the lease.
#[test]
fn a_process_that_has_kept_locks_gets_the_lease_when_the_others_have_left() {
    let folder = Folder::new("locks-left");
    let mut first = Shell::new(&folder, true, "auto");
    first.run("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=FULL; CREATE TABLE t(x);");
    first.run(INSERT);
    let mut second = Shell::new(&folder, true, "auto");
    let reads = "SELECT x FROM t;\n".repeat(500);
    while !kernels(&folder, "atomic.db").iter().any(|kind| kind == "OFDLCK") {
        second.run(&reads);
        first.run(&reads);
    }
    drop(second);
    let mut rows = 1;
    loop {
        first.run("BEGIN IMMEDIATE;");
        first.run(INSERT);
        let found = kernels(&folder, "atomic.db");
        first.run("COMMIT;");
        rows += 1;
        if found == ["LEASE"] {
            break;
        }
    }
    assert_eq!(first.run("SELECT count(*), max(x) FROM t;"), format!("{rows}|{rows}\n"));
}
