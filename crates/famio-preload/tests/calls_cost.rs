//! What calls on a file with a session cost, counted in system calls: nothing in its own process; and to open, read and
//! close it, or to look at it, beside that process, as a program does that opens its database for each request.

mod common;

use common::counted::calls;
use common::{Folder, build, has_strace, succeed, under};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the program does a hundred times each.
const STEPS: [&str; 13] = [
    "pread",
    "pwrite",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "read",
    "write",
    "readv",
    "writev",
    "lseek",
    "sync",
    "ftruncate",
];
/// System calls of the program's thread in a step: the library looks after its own files now and then.
const MOST: usize = 10;

/// System calls of a visit. Of 288 half confirmed, again and again, what nobody could have changed; and each visit
/// searched for what the last one had found.
const VISIT: usize = 90;
/// Of a `stat` by the name. It was a visit, and a search before that.
const LOOK: usize = 45;

fn settings(command: &mut Command) -> &mut Command {
    command.env("FAMIO_DURABILITY", "process").env("FAMIO_LOG_LEVEL", "error")
}

fn traced(folder: &Folder, program: &Path, trace: &Path) -> Command {
    let mut command = under(folder, "strace");
    settings(&mut command).args(["-f", "-o"]).arg(trace).arg(program);
    command
}

#[test]
fn a_visit_beside_a_session_makes_few_system_calls() {
    if !has_strace() {
        return;
    }
    let (program, folder) = (build("calls_cost"), Folder::new("visits-cost"));
    let mut holder = under(&folder, &program);
    settings(&mut holder).args(["hold", "atomic"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let trace = folder.path().join("trace");
    succeed(traced(&folder, &program, &trace).args(["visit", "atomic"]));
    let steps = [("visit", VISIT), ("look", LOOK)];
    let counts = calls(&trace, steps.map(|(step, _)| step), |_, call| call.is_programs);
    for ((step, most), count) in steps.into_iter().zip(counts.map(|count| count / 100)) {
        println!("{step}: {count} system calls");
        assert!(count <= most, "{step}: {count} system calls, and not {most}");
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let _ = std::fs::remove_file(program);
}

/// Where the kernel stamps each change that follows a look (Linux 6.13), the file's time tells all. A read of a file
/// that had just changed made nine system calls, of which five looked for a mark and a control file.
#[test]
fn a_read_of_a_file_that_has_just_changed_makes_few_system_calls() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    if !has_strace() || (numbers.next(), numbers.next()) < (Some(6), Some(13)) {
        eprintln!("SKIPPED: no strace, or a kernel before 6.13");
        return;
    }
    let (program, folder) = (build("calls_cost"), Folder::new("fresh-cost"));
    let trace = folder.path().join("trace");
    succeed(traced(&folder, &program, &trace).args(["fresh", "atomic"]));
    let [count] = calls(&trace, ["fresh"], |_, call| call.is_programs);
    println!("{count} system calls for a hundred reads");
    assert!(count <= 450, "{count} system calls for a hundred reads");
    let _ = std::fs::remove_file(program);
}

/// A vectored call read the caller's vectors by two system calls, and took three times as long as a plain one.
#[test]
fn calls_on_a_file_with_a_session_make_no_system_call() {
    if !has_strace() {
        return;
    }
    let (program, folder) = (build("calls_cost"), Folder::new("calls-cost"));
    let trace = folder.path().join("trace");
    succeed(traced(&folder, &program, &trace).arg("atomic"));
    for (step, count) in STEPS.into_iter().zip(calls(&trace, STEPS, |_, call| call.is_programs)) {
        println!("{step}: {count} system calls");
        assert!(count <= MOST, "{step}: {count} system calls");
    }
    let _ = std::fs::remove_file(program);
}
