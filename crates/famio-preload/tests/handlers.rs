//! What POSIX calls async-signal-safe is so: handlers of signals make calls on atomic files, wherever they interrupt their
//! thread.

mod common;

use common::{Folder, build, succeed, under};

/// Runs a program on a plain and on an atomic file, on tmpfs and on disk. Gives what was said under the library.
fn everywhere(name: &str) -> Vec<String> {
    let program = build(name);
    let mut said = Vec::new();
    for folder in [Folder::new(name), Folder::on_disk(name)] {
        succeed(std::process::Command::new(&program).arg("plain").current_dir(folder.path()).env_remove("LD_PRELOAD"));
        said.push(succeed(under(&folder, &program).arg("atomic")).1);
        let left = folder.names();
        assert!(left.iter().all(|name| !name.contains("famio")), "left behind: {left:?}");
    }
    let _ = std::fs::remove_file(&program);
    said
}

/// Was a hang: the first write started a thread, and took memory from the program's allocator, which had its lock held.
#[test]
fn a_handler_writes_while_its_thread_is_in_malloc() {
    assert_eq!(everywhere("in_malloc"), ["", ""]);
}

/// Calls of a handler's gave `EDEADLK` where it had interrupted one of the thread's; one that left by `siglongjmp` kept the locks;
/// and `_exit` in one threw away what had been written.
#[test]
fn handlers_run_between_calls() {
    assert_eq!(everywhere("between"), ["", ""]);
}

/// Ended the program: a descriptor of ours was closed by libc's `close`, where the thread was cancelled.
#[test]
fn a_thread_is_cancelled_at_its_own_points() {
    assert_eq!(everywhere("cancel_deferred"), ["", ""]);
}

/// Ended the program: a thread was cancelled in the middle of a call, which Rust does not let happen.
#[test]
fn a_thread_is_cancelled_at_any_instruction() {
    assert_eq!(everywhere("cancel"), ["", ""]);
}
