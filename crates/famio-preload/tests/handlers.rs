//! Calls that POSIX defines as async-signal-safe are: signal handlers make calls on atomic files, wherever they
//! interrupt their thread.

mod common;

use common::{Folder, build, succeed, under};

/// Runs a program on a plain and on an atomic file, on tmpfs and on disk. Returns its output under the library.
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

/// It used to hang: the first write started a thread, and took memory from the program's allocator, whose lock was
/// held.
#[test]
fn a_handler_writes_while_its_thread_is_in_malloc() {
    assert_eq!(everywhere("in_malloc"), ["", ""]);
}

/// A handler's calls failed with `EDEADLK` if it had interrupted one of the thread's calls; a handler that left by
/// `siglongjmp` kept the locks; and `_exit` in one dropped what had been written.
#[test]
fn handlers_run_between_calls() {
    assert_eq!(everywhere("between"), ["", ""]);
}

/// It used to end the program: libc's `close`, where the thread was cancelled, closed an internal descriptor.
#[test]
fn a_thread_is_cancelled_at_its_own_points() {
    assert_eq!(everywhere("cancel_deferred"), ["", ""]);
}

/// It used to end the program: a thread was cancelled in the middle of a call, which Rust does not allow.
#[test]
fn a_thread_is_cancelled_at_any_instruction() {
    assert_eq!(everywhere("cancel"), ["", ""]);
}
