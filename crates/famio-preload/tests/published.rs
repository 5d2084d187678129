//! Failures of programs under the published Libnvmmio and MadFS, each as a test of Famio. More, of the library alone,
//! are in `crates/famio/tests/defects.rs` and `published.rs`; the calls themselves are in `calls.rs`.

mod common;

use common::{Folder, build, succeed, under};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// On a plain file without the interposer, which shows that the program is right, and on an atomic one.
fn both(what: &str) {
    let program = build("published");
    let folder = Folder::new(&format!("published-{what}"));
    succeed(Command::new(&program).args(["plain", what]).current_dir(folder.path()).env_remove("LD_PRELOAD"));
    succeed(under(&folder, &program).args(["atomic", what]));
    assert!(folder.read("plain") == folder.read("atomic"), "{what}");
    assert_eq!(folder.names(), ["atomic", "plain"], "{what}");
    let _ = std::fs::remove_file(program);
}

/// A table of 1024 entries without bounds checks; a failed open passed on as -1; `exit` at an lseek beyond the end
/// and at `O_WRONLY`.
#[test]
fn defect_10_descriptors() {
    both("descriptors");
}

/// `stat` did not compile with a current libc, and showed the allocated size.
#[test]
fn defect_11_stat() {
    both("sizes");
}

#[test]
fn madfs_ftruncate64() {
    both("truncation");
}

#[test]
fn madfs_record_locks() {
    both("locks");
}

#[test]
fn data_that_was_not_synced_is_there_after_a_normal_exit() {
    both("unsynced");
}

#[test]
fn a_childs_exit_leaves_the_parents_log() {
    let program = build("published");
    let folder = Folder::new("published-child");
    let done = under(&folder, &program).args(["atomic", "child"]).output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{done:?}");
    let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
    assert_eq!(out, "before, childafter");
    assert_eq!(folder.names(), ["atomic"]);
    let _ = std::fs::remove_file(program);
}
