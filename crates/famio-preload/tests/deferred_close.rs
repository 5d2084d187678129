//! A program that closes a file and opens it again and again: the file stays open in the library for a moment. What a
//! close promises holds at once.

mod common;

use common::agent::{Agent, nothing_left, with_journal_beside};
use common::deferred::{SETTINGS, agent, bytes, deferred, wait_until_closed};
use common::{Folder, build, under};

#[test]
fn it_is_closed_a_moment_later() {
    with_journal_beside("deferred", |folder, domain| {
        let mut a = agent(folder, domain);
        let text = deferred(&mut a, folder, &[]);
        assert_eq!(bytes(folder), text, "without a SYNC, and without a session's end");
        wait_until_closed(folder);
        nothing_left(folder);
        a.each(&["open atomic", "write 20 afterwards", "close"]);
        a.end();
        assert_eq!(bytes(folder), "afterwar");
    });
}

#[test]
fn without_the_setting_it_is_closed_at_once() {
    let folder = Folder::new("deferred-never");
    std::fs::write(folder.path().join("atomic"), [b'.'; 100]).unwrap();
    let mut a = Agent::set(&folder, "process", &SETTINGS[..1]);
    for _ in 0..20 {
        a.each(&["open atomic", "write 20 text", "close"]);
        nothing_left(&folder);
    }
    a.end();
}

/// The session goes on between processes, neither of which has the file open.
#[test]
fn others_that_open_it_meanwhile_find_everything() {
    with_journal_beside("deferred-others", |folder, domain| {
        let (mut a, mut b) = (agent(folder, domain), agent(folder, domain));
        for round in 100..140 {
            let [one, other] = ["one", "two"].map(|who| format!("{who}{round}"));
            a.each(&["open atomic", &format!("write 20 {one}"), "sync", "close"]);
            b.ok("open atomic");
            b.sees(20, &one);
            b.each(&[&format!("write 20 {other}"), "close"]);
            a.ok("open atomic");
            a.sees(20, &other);
            a.ok("close");
        }
        assert_eq!(&bytes(folder)[..6], "two139");
        wait_until_closed(folder);
        a.end();
        b.end();
        assert_eq!(&bytes(folder)[..6], "two139");
    });
}

#[test]
fn a_kill_meanwhile_loses_nothing() {
    with_journal_beside("deferred-kill", |folder, domain| {
        let mut a = agent(folder, domain);
        let text = deferred(&mut a, folder, &[]);
        a.kill();
        assert_eq!(bytes(folder), text, "before any recovery");
        let mut b = agent(folder, domain);
        b.ok("open atomic");
        b.sees(20, &text);
        let mut c = agent(folder, domain);
        let later = deferred(&mut c, folder, &["sync"]);
        c.kill(); // while b has it open
        b.sees(20, &later);
        b.ok("write 20 survivor");
        b.end();
        assert_eq!(bytes(folder), "survivor");
    });
}

/// The session's end needs a descriptor to write the file by.
#[test]
fn the_next_open_is_for_reading_only() {
    with_journal_beside("deferred-reading", |folder, domain| {
        let mut a = agent(folder, domain);
        let text = deferred(&mut a, folder, &[]);
        a.ok("look atomic");
        a.sees(20, &text);
        a.ok("close");
        wait_until_closed(folder);
        nothing_left(folder);
        deferred(&mut a, folder, &[]);
        std::fs::write(folder.path().join("atomic"), "another's").unwrap();
        a.ok("look atomic");
        a.sees(0, "another's");
        a.ok("close");
        wait_until_closed(folder);
        a.end();
        assert_eq!(folder.read("atomic"), b"another's");
        nothing_left(folder);
    });
}

#[test]
fn what_stays_after_a_kill_is_closed_at_once() {
    let folder = Folder::new("deferred-keep");
    std::fs::write(folder.path().join("atomic"), [b'.'; 100]).unwrap();
    let mut a = Agent::set(&folder, "process", &[SETTINGS[0], SETTINGS[1], ("FAMIO_ON_KILL", "keep")]);
    for _ in 0..10 {
        a.each(&["open atomic", "write 20 text", "close"]);
        nothing_left(&folder);
    }
    a.end();
}

#[test]
fn the_programs_locks_go_with_its_close() {
    with_journal_beside("deferred-locks", |folder, domain| {
        let (mut a, mut b) = (agent(folder, domain), agent(folder, domain));
        deferred(&mut a, folder, &["lock", "range o w 0 10", "range p w 30 10"]);
        b.each(&["open atomic", "range o w 0 10", "range p w 30 10", "lock", "close"]);
        // Those that it takes when it has the file open again stay.
        deferred(&mut a, folder, &[]);
        a.each(&["open atomic", "range p w 0 10"]);
        b.ok("open atomic");
        let refused = |b: &mut Agent| assert_eq!(b.tell("range p w 0 10"), "Resource temporarily unavailable");
        refused(&mut b);
        a.idle();
        refused(&mut b);
        a.ok("close");
        b.ok("range p w 0 10");
        a.end();
        b.end();
    });
}

/// The file was opened under a name that is not selected.
#[test]
fn a_lock_by_another_descriptor_stays() {
    with_journal_beside("deferred-other-lock", |folder, domain| {
        let (mut a, mut b) = (agent(folder, domain), agent(folder, domain));
        std::fs::rename(folder.path().join("atomic"), folder.path().join("other")).unwrap();
        a.ok("keep other");
        std::fs::rename(folder.path().join("other"), folder.path().join("atomic")).unwrap();
        deferred(&mut a, folder, &[]);
        a.ok("lockkept");
        wait_until_closed(folder);
        b.ok("open atomic");
        assert_eq!(b.tell("range p w 0 10"), "Resource temporarily unavailable");
        a.end();
        b.end();
    });
}

#[test]
fn nothing_is_left_when_the_program_looks() {
    with_journal_beside("deferred-names", |folder, domain| {
        let mut a = agent(folder, domain);
        deferred(&mut a, folder, &[]);
        assert_eq!(a.tell("list ."), "0");
        nothing_left(folder);
        deferred(&mut a, folder, &[]);
        a.ok("exec");
        nothing_left(folder);
        deferred(&mut a, folder, &[]);
        a.ok("rename atomic another");
        nothing_left(folder);
        a.ok("rename another atomic");
        deferred(&mut a, folder, &[]);
        a.ok("unlink atomic");
        nothing_left(folder);
        a.ok("open atomic");
        deferred(&mut a, folder, &[]);
        a.end();
        nothing_left(folder);
    });
}

/// The file would be its parent's.
#[test]
fn a_forked_child_opens_it() {
    with_journal_beside("deferred-fork", |folder, domain| {
        let mut a = agent(folder, domain);
        deferred(&mut a, folder, &[]);
        a.ok("child atomic");
        a.ok("open atomic");
        a.sees(0, "child");
        a.end();
        assert_eq!(&folder.read("atomic")[..5], b"child");
    });
}

/// Processes and threads that close it while others open it.
#[test]
fn each_finds_what_it_wrote_last() {
    const ROUNDS: usize = 300;
    let program = build("again");
    with_journal_beside("deferred-again", |folder, domain| {
        let begin = |at: &str| {
            let mut command = under(folder, &program);
            command.args(["atomic", at, &ROUNDS.to_string()]).envs(SETTINGS);
            if domain == "emulated" {
                command.env("FAMIO_DOMAIN", domain);
            }
            command.spawn().unwrap()
        };
        for mut process in ["0", "5000"].map(begin) {
            assert!(process.wait().unwrap().success());
        }
        let last = b'a' + ((ROUNDS - 1) % 26) as u8;
        let expected = |at: usize| if at % 5000 < 2100 { last } else { b'.' };
        assert!(folder.read("atomic").iter().enumerate().all(|(at, &byte)| byte == expected(at)));
    });
    let _ = std::fs::remove_file(program);
}
