//! A file whose close is deferred is not in use: what a program without the library changes stays.

mod common;

use common::agent::{Agent, nothing_left, with_journal_beside};
use common::deferred::{LONG, agent, deferred, has_pool, wait_until_closed};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn another_program_changes_it() {
    // Also a session that is old when the file is closed; one with the lease, after many SYNCs; and one of which
    // nobody but the program has been an owner.
    for way in ["", "old", "synced"] {
        changed_elsewhere(way);
    }
}

fn changed_elsewhere(way: &str) {
    let before_close: &[&str] = match way {
        "old" => &["pause 350"],
        "synced" => {
            &["sync", "write 9000 x", "sync", "write 9000 y", "sync", "write 9000 z", "sync", "write 9000 x", "sync"]
        }
        _ => &[],
    };
    with_journal_beside("deferred-changed", |folder, domain| {
        let path = folder.path().join("atomic");
        let append = |text: &[u8]| {
            let mut file = std::fs::File::options().append(true).open(&path).unwrap();
            file.write_all(text).unwrap();
        };
        let end = |from: usize| folder.read("atomic")[from..].to_vec();
        let mut a = agent(folder, domain);
        deferred(&mut a, folder, before_close);
        a.idle();
        append(b"appended");
        wait_until_closed(folder);
        assert_eq!(end(10_000), b"appended");
        // The program opens it again before it is closed; and another one does.
        deferred(&mut a, folder, before_close);
        append(b" again");
        a.ok("open atomic");
        a.sees(10_000, "appended again");
        a.each(&["append !", "sync", "close"]);
        let mut b = agent(folder, domain);
        deferred(&mut a, folder, before_close);
        append(b" thrice");
        b.ok("open atomic");
        b.sees(10_000, "appended again! thrice");
        b.each(&["append !", "close"]);
        deferred(&mut a, folder, before_close);
        std::fs::write(&path, "all of it").unwrap();
        b.each(&["open atomic", "write 4 or"]);
        b.sees(0, "all or it");
        b.ok("close");
        wait_until_closed(folder);
        a.end();
        b.end();
        assert_eq!(end(0), b"all or it");
        nothing_left(folder);
    });
}

/// It has its name and its space until then.
#[test]
fn another_program_removes_it() {
    with_journal_beside("deferred-removed", |folder, domain| {
        let mut a = agent(folder, domain);
        deferred(&mut a, folder, &[]);
        std::fs::remove_file(folder.path().join("atomic")).unwrap();
        wait_until_closed(folder);
        a.each(&["open atomic", "write 0 new", "close"]);
        a.end();
        assert_eq!(folder.read("atomic"), b"new");
    });
}

/// It has everything, so that nothing of the journal could be lost by what another program changes.
#[test]
fn after_a_kill_another_program_changes_it() {
    use std::os::unix::fs::FileExt;
    let overwrite = |file: &std::fs::File| file.write_all_at(b"changed", 20).unwrap();
    let append = |file: &std::fs::File| file.write_all_at(b"appended", 10_000).unwrap();
    let cut = |file: &std::fs::File| file.set_len(5000).unwrap();
    let touch = |file: &std::fs::File| file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    let changes: [&dyn Fn(&std::fs::File); 4] = [&overwrite, &append, &cut, &touch];
    with_journal_beside("deferred-kill-changed", |folder, domain| {
        for change in changes {
            let mut a = agent(folder, domain);
            deferred(&mut a, folder, &[]);
            a.kill();
            change(&std::fs::File::options().write(true).open(folder.path().join("atomic")).unwrap());
            let mut expected = folder.read("atomic");
            let mut b = agent(folder, domain);
            b.each(&["open atomic", "write 0 next", "close"]);
            wait_until_closed(folder);
            b.end();
            expected[..4].copy_from_slice(b"next");
            assert!(folder.read("atomic") == expected);
            nothing_left(folder);
        }
    });
}

/// Also what it changes at the very moment of the session's end.
#[test]
fn what_another_program_appends_meanwhile_stays() {
    with_journal_beside("deferred-appended", |folder, domain| {
        let mut a = agent(folder, domain);
        let mut file = File::options().append(true).open(folder.path().join("atomic")).unwrap();
        let mut length = 10_000;
        for _ in 0..5 {
            deferred(&mut a, folder, &[]);
            while has_pool(folder) {
                file.write_all(b"+").unwrap();
                length += 1;
            }
        }
        a.end();
        assert_eq!(folder.read("atomic").len(), length);
    });
}

#[test]
fn the_time_that_another_program_sets_stays() {
    let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    with_journal_beside("deferred-times", |folder, domain| {
        let mut a = agent(folder, domain);
        deferred(&mut a, folder, &[]);
        let file = File::options().write(true).open(folder.path().join("atomic")).unwrap();
        file.set_modified(set).unwrap();
        wait_until_closed(folder);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), set);
        deferred(&mut a, folder, &[]);
        let before = file.metadata().unwrap().modified().unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        wait_until_closed(folder);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), before);
        a.end();
    });
}

/// One that only reads cannot end the session of a process that was killed.
#[test]
fn one_that_opens_it_to_read_again_and_again_sees_it() {
    with_journal_beside("deferred-polled", |folder, domain| {
        let (mut a, mut b) = (agent(folder, domain), agent(folder, domain));
        let text = deferred(&mut a, folder, &[]);
        for _ in 0..10 {
            b.ok("look atomic");
            b.sees(20, &text);
            b.ok("close");
        }
        a.kill();
        let mut file = File::options().append(true).open(folder.path().join("atomic")).unwrap();
        for appended in 1..=10 {
            file.write_all(b"+").unwrap();
            assert_eq!(b.tell("named atomic"), (10_000 + appended).to_string());
            b.ok("look atomic");
            b.sees(10_000, &"+".repeat(appended));
            b.ok("close");
        }
        b.end();
    });
}

/// Some processes can use it only when the session has ended.
#[test]
fn now_and_then_the_session_ends() {
    with_journal_beside("deferred-ended", |folder, domain| {
        let mut both = [agent(folder, domain), agent(folder, domain)];
        deferred(&mut both[0], folder, &[]);
        let has_journal = || {
            let names = std::fs::read_dir(folder.path().join(".famio")).into_iter().flatten().flatten();
            names.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().ends_with(".journal"))
        };
        let begun = Instant::now();
        for turn in 0.. {
            assert!(begun.elapsed() < LONG);
            both[turn % 2].each(&["open atomic", "write 20 text", "close"]);
            if !has_journal() {
                break;
            }
        }
        both.into_iter().for_each(Agent::end);
    });
}
