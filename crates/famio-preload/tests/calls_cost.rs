//! What calls on a file with a session cost the kernel: nothing.

mod common;

use common::counted::calls;
use common::{Folder, build, has_strace, succeed, under};

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

/// A vectored call read the caller's vectors by two system calls, and took three times as long as a plain one.
#[test]
fn calls_on_a_file_with_a_session_make_no_system_call() {
    if !has_strace() {
        return;
    }
    let (program, folder) = (build("calls_cost"), Folder::new("calls-cost"));
    let trace = folder.path().join("trace");
    let mut command = under(&folder, "strace");
    command.env("FAMIO_DURABILITY", "process").env("FAMIO_LOG_LEVEL", "error");
    succeed(command.args(["-f", "-o"]).arg(&trace).arg(&program).arg("atomic"));
    for (step, count) in STEPS.into_iter().zip(calls(&trace, STEPS, |_, call| call.is_programs)) {
        println!("{step}: {count} system calls");
        assert!(count <= MOST, "{step}: {count} system calls");
    }
    let _ = std::fs::remove_file(program);
}
