//! A journal that is removed, moved or replaced while its file is open. Rule 21: if a SYNC returns, a recovery will
//! find its journal.

mod common;

use common::agent::{Agent, shared_memory, with_journal_beside};
use common::{Folder, build, succeed, under};
use famio::Settings;
use famio::recovery::{Options, Outcome, Silent, recover_path};
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

/// The program is killed after a SYNC; a recovery must find what it committed.
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

/// A journal in state *clean*, where the next one is to be created, must not cause `EEXIST`.
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

/// A process with the file open, which gets a journal with its first change.
fn with_journal(folder: &Folder, domain: &str) -> Agent {
    let mut agent = Agent::set(folder, domain, &[("FAMIO_JOURNAL", "always")]);
    agent.ok("open atomic");
    agent
}

/// The next process took the journal for a dead process's, and recovered it while the writer used it.
#[test]
fn a_control_file_that_was_removed_makes_nobody_a_second_writer() {
    with_journal_beside("control", |folder, domain| {
        let mut writer = with_journal(folder, domain);
        writer.ok("write 0 first");
        writer.ok("sync");
        writer.ok("write 0 second");
        let beside = folder.path().join(".famio");
        let names = std::fs::read_dir(&beside).unwrap().map(|entry| entry.unwrap().path());
        let control = names.into_iter().find(|path| path.extension().is_some_and(|end| end == "control")).unwrap();
        std::fs::remove_file(control).unwrap();
        let mut other = Agent::new(folder, domain);
        assert_eq!(other.tell("open atomic"), "Device or resource busy");
        let report = recover_path(folder.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
        assert!(matches!(&report[0].outcome, Outcome::Failed(e) if e.errno() == libc::EBUSY), "{report:?}");
        writer.sees(0, "second");
        writer.ok("sync");
        writer.ok("write 0 third.");
        writer.kill();
        other.ok("open atomic");
        other.sees(0, "second");
        other.ok("write 0 fourth"); // and removes the arena, which nothing names any more
        other.end();
        // Unless another test's process has it locked at that moment, looking whether it can be removed: the next does.
        // And a process that begins looks at a few only, of what killed ones have left on this machine.
        for _ in 0..10 {
            if shared_memory::of_folder(folder.path()).is_empty() {
                break;
            }
            let mut next = Agent::new(folder, domain);
            next.ok("open atomic");
            next.ok("write 0 fifth");
            next.end();
            recover_path(folder.path(), &Settings::default(), &Options::default(), &Silent).unwrap();
        }
    });
}

/// The child got `EBUSY` until a recovery; and the writer got `EIO` for what a child had written.
#[test]
fn without_a_place_to_meet_children_and_their_parent_find_each_other() {
    let program = build("lost_place");
    for (how, ends_with, killed) in [
        ("travels", "LATERCHILD", false),
        ("forked", "LATERCHILD", false),
        ("synced", "LATERCHILD", true),
        ("killed", "firstfirst", true),
    ] {
        for (folder, domain) in folders(&format!("place-{how}")) {
            let done = run(&folder, &program, how, domain);
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.signal().is_some(), killed, "{how} in {:?}: {said}", folder.path());
            assert!(killed || done.status.success(), "{how} in {:?}: {said}", folder.path());
            succeed(with_domain(under(&folder, "cat"), domain).arg("atomic"));
            assert_eq!(
                String::from_utf8_lossy(&folder.read("atomic")),
                ends_with,
                "{how} in {:?}: {said}",
                folder.path()
            );
            assert_eq!(folder.names(), ["atomic"], "{how}");
        }
    }
    let _ = std::fs::remove_file(program);
}

/// It was `EBUSY` permanently: the SYNC created the journal again, but the other process found no control page.
#[test]
fn a_sync_after_it_lets_others_come_again() {
    with_journal_beside("place", |folder, domain| {
        let mut writer = with_journal(folder, domain);
        writer.ok("write 0 first");
        writer.ok("sync");
        std::fs::remove_dir_all(folder.path().join(".famio")).unwrap();
        writer.ok("write 0 second");
        let mut other = Agent::new(folder, domain);
        assert_ne!(other.tell("open atomic"), "ok"); // nothing leads to the writer
        std::thread::sleep(std::time::Duration::from_millis(10)); // the previous check for the journal is outdated by then
        writer.ok("sync");
        other.ok("open atomic");
        other.sees(0, "second");
        other.ok("write 0 third!");
        writer.sees(0, "third!");
        writer.end();
        other.end();
    });
}
