//! A journal that is removed, moved or replaced while its file is open: rule 21, a SYNC that returns means a recovery that will find
//! it.

mod common;

use common::{Folder, build, succeed, under};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn folders(name: &str) -> [(Folder, &'static str); 3] {
    [
        (Folder::new(&format!("lost-{name}-process")), ""),
        (Folder::new(&format!("lost-{name}-emulated")), "emulated"),
        (Folder::on_disk(&format!("lost-{name}-disk")), ""),
    ]
}

fn with_domain(mut command: Command, domain: &str) -> Command {
    if !domain.is_empty() {
        command.env("FAMIO_DOMAIN", domain);
    }
    command
}

fn run(folder: &Folder, program: &Path, how: &str, domain: &str) -> Output {
    let mut command = with_domain(under(folder, program), domain);
    if how.starts_with("pool") {
        std::fs::create_dir(folder.path().join("pool")).unwrap();
        command.env("FAMIO_POOL", folder.path().join("pool"));
    }
    command.args(["atomic", how]).output().unwrap()
}

fn has_all(bytes: &[u8], letter: u8) -> bool {
    bytes.len() == 24 * (64 << 10) && bytes.iter().all(|&byte| byte == letter)
}

/// The program is killed after a SYNC; a recovery finds what it committed.
fn is_found(how: &str, path: &str, letter: u8) {
    let program = build("lost_journal");
    for (folder, domain) in folders(how) {
        let done = run(&folder, &program, how, domain);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{how} in {:?}: {said}", folder.path());
        let mut recover = with_domain(under(&folder, "cat"), domain);
        if how.starts_with("pool") {
            recover.env("FAMIO_POOL", folder.path().join("pool"));
        }
        succeed(recover.arg(path));
        let found = folder.read(path);
        assert!(has_all(&found, letter), "{how} in {:?}: {:?}", folder.path(), found.first());
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_journal_that_was_removed_is_made_anew() {
    is_found("removed", "atomic", b'c');
}

#[test]
fn what_was_committed_before_is_found_too() {
    is_found("unwritten", "atomic", b'a');
}

#[test]
fn a_journal_whose_folder_was_moved_is_made_anew() {
    is_found("moved", "atomic", b'c');
}

#[test]
fn a_journal_that_moves_with_its_file_is_the_same() {
    is_found("folder", "there/atomic", b'c');
}

#[test]
fn a_file_that_moves_away_from_its_journal_takes_it_along() {
    is_found("file", "there/atomic", b'c');
}

/// A journal that says *clean*, where the next is to be, is no `EEXIST`.
#[test]
fn a_clean_journal_that_could_not_be_removed_is_no_hindrance() {
    is_found("known", "there/atomic", b'c');
}

#[test]
fn a_journal_that_was_removed_from_a_pool_is_made_anew() {
    is_found("pool-removed", "atomic", b'c');
}

#[test]
fn after_a_close_nothing_is_left() {
    let program = build("lost_journal");
    for (folder, domain) in folders("closed") {
        let done = run(&folder, &program, "closed", domain);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(has_all(&folder.read("atomic"), b'c'));
        assert_eq!(folder.names(), ["atomic"]);
    }
    let _ = std::fs::remove_file(program);
}

#[test]
fn without_a_place_for_it_sync_and_writes_fail() {
    let program = build("lost_journal");
    for how in ["replaced", "pool"] {
        for (folder, domain) in folders(how) {
            let done = run(&folder, &program, how, domain);
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{how}: {said}");
            assert!(said.contains("was removed, moved or replaced, and can't be made anew"), "{how}: {said}");
        }
    }
    let _ = std::fs::remove_file(program);
}
