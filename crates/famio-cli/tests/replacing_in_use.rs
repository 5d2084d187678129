//! `famio restore` and `famio backup --force` while a program opens the file that they replace. It used to go on with a
//! file that had no name any more, and what it had committed was lost.

mod common;

use common::running::{Running, said};
use common::traced::{Stopped, stop_at};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Opens the file as soon as it is told to, commits something, and keeps the file open.
const OPENER: &str = "
import os, sys
print('ready', flush=True)
sys.stdin.readline()
a = os.open('a.db', os.O_RDWR)
os.pwrite(a, b'ours', 0)
os.fsync(a)
os.close(os.open('done', os.O_CREAT))
sys.stdin.read()";

const RESTORE: &[&str] = &["restore", "a.bak", "a.db"];
const BACKUP: &[&str] = &["backup", "--force", "a.bak", "a.db"];
const PARENTS: [&str; 2] = ["/dev/shm", env!("CARGO_TARGET_TMPDIR")];

const F_GETLEASE: u64 = 1025;

fn is_rename(number: i64, _: &[u64]) -> bool {
    number == libc::SYS_renameat2
}

fn is_last_check(number: i64, arguments: &[u64]) -> bool {
    number == libc::SYS_fcntl && arguments[1] == F_GETLEASE
}

fn folder(parent: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(parent).unwrap();
    std::fs::write(folder.path().join("a.db"), b"old".repeat(5000)).unwrap();
    std::fs::write(folder.path().join("a.bak"), b"new".repeat(5000)).unwrap();
    folder
}

/// A program that waits for its input. `None`: the library is not built.
fn start(folder: &Path, program: &str, is_famios: bool) -> Option<Running> {
    let mut command = Command::new("python3");
    if is_famios {
        command = common::famio();
        command.args(["run", "--no-config", "--atomic", "a.db", "--", "python3"]);
        command.env("FAMIO_PRELOAD", common::built("libfamio_preload.so")?);
    }
    command.args(["-c", program]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(running)
}

/// Has the file open, and begins to write only when it is told to.
const IDLE: &str = "
import errno, os, sys
a = os.open('a.db', os.O_RDWR)
print('ready', flush=True)
sys.stdin.readline()
try:
    os.pwrite(a, b'ours', 0)
    os.fsync(a)
except OSError as e:
    sys.exit(e.errno == errno.ESTALE and 7)
";

/// Runs the command until it stops at that system call. Then the program opens the file, until it waits for the command
/// or is done.
fn open_within(
    folder: &Path,
    args: &[&str],
    is_it: impl Fn(i64, &[u64]) -> bool,
    is_famios: bool,
) -> Option<(Stopped, Running)> {
    let mut running = start(folder, OPENER, is_famios)?;
    let mut command = common::famio();
    command.args(args).current_dir(folder);
    let inode = std::fs::metadata(folder.join("a.db")).unwrap().ino();
    let stopped = stop_at(command, is_it)?;
    std::io::Write::write_all(running.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    let is_awaited = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("LEASE  BREAKING") && line.contains(&format!(":{inode} ")))
    };
    while !is_awaited() && !folder.join("done").exists() {
        assert!(running.0.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    Some((stopped, running))
}

/// Waits until the program has committed, and ends it. Returns what the file has.
fn end(folder: &Path, mut running: Running) -> Vec<u8> {
    while !folder.join("done").exists() {
        assert!(running.0.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    drop(running.0.stdin.take());
    assert!(running.0.wait().unwrap().success());
    std::fs::read(folder.join("a.db")).unwrap()
}

#[test]
fn a_program_that_opens_the_old_file_just_before_the_rename_gets_the_new_one() {
    for (parent, args) in PARENTS.into_iter().flat_map(|parent| [(parent, RESTORE), (parent, BACKUP)]) {
        let folder = folder(parent);
        let Some((stopped, running)) = open_within(folder.path(), args, is_rename, true) else { return };
        let output = stopped.finish();
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(end(folder.path(), running), [b"ours", &b"new".repeat(5000)[4..]].concat());
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 3, "{:?}", folder.path());
    }
}

#[test]
fn an_outsider_that_does_so_is_named() {
    for (parent, args) in PARENTS.into_iter().flat_map(|parent| [(parent, RESTORE), (parent, BACKUP)]) {
        let folder = folder(parent);
        let Some((stopped, running)) = open_within(folder.path(), args, is_rename, false) else { return };
        let output = stopped.finish();
        let who = format!("process {} (python3) has opened the old file just before", running.0.id());
        assert!(output.status.code() == Some(4) && said(&output).contains(&who), "{}", said(&output));
        assert_eq!(end(folder.path(), running), b"new".repeat(5000));
    }
}

#[test]
fn a_file_that_is_opened_before_the_last_check_stays() {
    for (parent, args) in PARENTS.into_iter().flat_map(|parent| [(parent, RESTORE), (parent, BACKUP)]) {
        for is_famios in [true, false] {
            let folder = folder(parent);
            let Some((stopped, running)) = open_within(folder.path(), args, is_last_check, is_famios) else { return };
            let output = stopped.finish();
            assert_eq!(output.status.code(), Some(4), "{}", said(&output));
            assert_eq!(end(folder.path(), running), [b"ours", &b"old".repeat(5000)[4..]].concat());
        }
    }
}

/// Another user, who sees neither leases nor other users' descriptors, may still replace the file.
#[test]
fn what_is_written_to_a_replaced_file_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: not root, so that there is no other user");
    }
    for replaces in [true, false] {
        let folder = folder("/dev/shm");
        let open_to_all = |name: &str, mode| {
            std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        open_to_all("", 0o777);
        open_to_all("a.db", 0o666);
        let Some(mut running) = start(folder.path(), IDLE, true) else { return };
        if replaces {
            let output = common::famio().args(RESTORE).current_dir(folder.path()).uid(65534).gid(65534).output();
            let Ok(output) = output else { return eprintln!("SKIPPED: the command is not the other user's to run") };
            assert!(output.status.success(), "{}", said(&output));
        } else {
            // By the program itself, as far as can be told.
            std::fs::rename(folder.path().join("a.bak"), folder.path().join("a.db")).unwrap();
        }
        std::io::Write::write_all(running.0.stdin.as_mut().unwrap(), b"\n").unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(if replaces { 7 } else { 0 }));
        assert_eq!(std::fs::read(folder.path().join("a.db")).unwrap(), b"new".repeat(5000));
    }
}
