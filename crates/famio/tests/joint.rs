//! Transactions of several files: everything or nothing, in all of them, whenever the process is killed.

mod common;
#[path = "common/traced.rs"]
mod traced;

use common::Scratch;
use famio::recovery::{Options, Silent, backup, recover_path};
use famio::{AtomicFile, Settings};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use traced::Traced;

fn bank(folder: &Path, what: &[&str]) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("examples").join("bank");
    let mut command = Command::new(program);
    command.arg(folder).args(what);
    command
}

fn open(path: PathBuf) -> AtomicFile {
    AtomicFile::options().create(true).open(path).unwrap()
}

fn read(file: &AtomicFile) -> String {
    let mut bytes = [0; 100];
    let read = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes[..read].to_vec()).unwrap()
}

/// The number of transfers, of which at least `known` were reported; both files must agree, and nothing of Famio's be
/// left.
fn check(folder: &Path, known: u64, at: &str) -> u64 {
    let checked = bank(folder, &["check"]).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    let count = said.trim().parse::<u64>();
    assert!(checked.status.success() && count.as_ref().is_ok_and(|&count| count >= known), "{at}: {known}: {said}");
    // The record of a process that was killed after its files were closed.
    recover_path(folder, &Settings::default(), &Options::default(), &Silent).unwrap();
    let left = Command::new("find").arg(folder.join(".famio")).output().unwrap();
    assert!(!folder.join(".famio").exists(), "{at}: left: {}", String::from_utf8_lossy(&left.stdout));
    count.unwrap()
}

/// Copies of both files, made before any recovery, have each transaction in both or in neither.
fn check_backups(folder: &Path, at: &str) {
    let copies = folder.join("copies");
    fs::create_dir(&copies).unwrap();
    let copied = ["giro", "savings"].map(|name| {
        let (from, to) = (folder.join(name), copies.join(name));
        backup(&from, &to, false, &Settings::default(), &|_| {})
    });
    if copied.iter().all(Result::is_ok) {
        let checked = bank(&copies, &["check"]).output().unwrap();
        assert!(checked.status.success(), "{at}: {}", String::from_utf8_lossy(&checked.stderr));
    }
    for error in copied.into_iter().filter_map(Result::err) {
        assert!(error.to_string().contains("transaction of several files"), "{at}: {error}");
    }
    fs::remove_dir_all(copies).unwrap();
}

/// Kills at one of these stops after the other, and some instructions later. `is_under_way`: stops are counted from
/// the first transfer on. `false`: not permitted here.
/// `false`: this is not allowed here.
#[expect(clippy::zombie_processes, reason = "where it is traced, the tracer waits for it")]
fn kill_at_calls(folder: &Path, is_under_way: bool, stops: impl Iterator<Item = (usize, usize)>) -> bool {
    for (stop, instructions) in stops {
        let transfers = if is_under_way { "1000" } else { "2" };
        let mut child = bank(folder, &["transfer", transfers]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = if is_under_way { lines.next() } else { None };
        let traced = Traced::attach(child.id() as libc::pid_t);
        let lives = traced
            .as_ref()
            .is_some_and(|traced| (0..stop).all(|_| traced.step()) && (0..instructions).all(|_| traced.instruction()));
        if let Some(traced) = traced.as_ref().filter(|_| lives) {
            child.kill().unwrap();
            while libc::WIFSTOPPED(traced.wait()) {}
        }
        if traced.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            eprintln!("NOT TESTED: kills at system calls take ptrace(2), which is refused here");
            return false;
        }
        if is_under_way {
            check_backups(folder, &format!("stop {stop}"));
        }
        let said = first.into_iter().chain(lines).map_while(Result::ok).last();
        check(
            folder,
            said.map_or(0, |line| line.parse().unwrap()),
            &format!("stop {stop}, {instructions} instructions"),
        );
        if !lives {
            println!("{stop} stops");
            return true;
        }
    }
    true
}

#[test]
fn a_kill_at_any_call_leaves_a_transaction_in_all_its_files_or_in_none() {
    let is_long = common::kills_asked().is_some_and(|kills| kills >= 100);
    for scratch in [Scratch::on_tmpfs("joint-calls"), Scratch::on_disk("joint-calls")] {
        // For some transfers, each stop; for beginning and end, some.
        let at = |stop| (stop, 0);
        let _ = kill_at_calls(scratch.path(), true, (0..if is_long { 400 } else { 60 }).map(at))
            && kill_at_calls(scratch.path(), false, (0..).step_by(if is_long { 1 } else { 61 }).map(at));
    }
}

/// On a tmpfs with journals in place, there is no system call between the record and the last file's commit.
#[test]
fn a_kill_between_two_calls_leaves_a_transaction_in_all_its_files_or_in_none() {
    let scratch = Scratch::on_tmpfs("joint-instructions");
    let stride = if common::kills_asked().is_some_and(|kills| kills >= 100) { 101 } else { 2503 };
    let stops = (0..10).flat_map(|stop| (0..16_000).step_by(stride).map(move |instructions| (stop, instructions)));
    kill_at_calls(scratch.path(), true, stops);
}

#[test]
fn a_kill_at_any_time_leaves_a_transaction_in_all_its_files_or_in_none() {
    for scratch in [Scratch::on_tmpfs("joint-kill"), Scratch::on_disk("joint-kill")] {
        let mut known = 0;
        for round in 0..common::kills_asked().unwrap_or(20) {
            let mut child = bank(scratch.path(), &["transfer", "1000000"]).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut began = Instant::now();
            let mut took = Duration::ZERO;
            for line in lines.by_ref().take(3) {
                known = line.unwrap().parse().unwrap();
                (took, began) = (began.elapsed(), Instant::now());
            }
            // Within the next transfer.
            while began.elapsed() < took * (round as u32 * 37 % 100) / 100 {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            known = lines.map_while(Result::ok).last().map_or(known, |line| line.parse().unwrap_or(known));
            known = check(scratch.path(), known, &format!("round {round}"));
        }
    }
}

/// They wait for each other's sessions, in the same order.
#[test]
fn processes_that_commit_to_the_same_files_take_turns() {
    for scratch in [Scratch::on_tmpfs("joint-turns"), Scratch::on_disk("joint-turns")] {
        assert!(bank(scratch.path(), &["transfer", "1"]).output().unwrap().status.success());
        let spawn = || bank(scratch.path(), &["transfer", "100"]).stdout(Stdio::null()).spawn().unwrap();
        let children = [spawn(), spawn(), spawn()];
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(check(scratch.path(), 301, "turns"), 301);
    }
}

/// A process that had found the files empty gave them their money once more, over the transfers of others.
#[test]
fn processes_that_begin_at_once_give_the_money_once() {
    for round in 0..20 {
        let scratch = Scratch::on_tmpfs("joint-begin");
        let spawn = |_| bank(scratch.path(), &["transfer", "5"]).stdout(Stdio::null()).spawn().unwrap();
        for mut child in [0; 6].map(spawn) {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(check(scratch.path(), 30, &format!("round {round}")), 30);
    }
}

/// Threads with separate files need separate records.
#[test]
fn commits_of_other_files_at_the_same_time_are_no_conflict() {
    let scratch = Scratch::on_tmpfs("joint-others");
    let files: Vec<_> = (0..8).map(|number| open(scratch.path().join(number.to_string()))).collect();
    std::thread::scope(|scope| {
        for pair in files.chunks(2) {
            scope.spawn(move || {
                for round in (b'a'..=b'z').cycle().take(300) {
                    let mut tx = pair[0].transaction().unwrap();
                    tx.join(&pair[1]).unwrap();
                    tx.write_at(&[round], 0).unwrap();
                    tx.on(&pair[1]).write_at(&[round], 0).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    files.chunks(2).for_each(|pair| assert_eq!(read(&pair[0]), read(&pair[1])));
    files.into_iter().for_each(|file| file.close().unwrap());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 8, "something is left");
}

/// The record was searched for where the file had been.
#[test]
fn files_that_are_moved_between_two_commits_have_their_record_with_them() {
    let scratch = Scratch::on_tmpfs("joint-moved");
    let [old, new] = ["old", "new"].map(|name| scratch.path().join(name));
    [&old, &new].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let (a, b) = (open(old.join("a")), open(old.join("b")));
    let commit = |text: &str| {
        let mut tx = a.transaction().unwrap();
        tx.join(&b).unwrap();
        tx.write_at(text.as_bytes(), 0).unwrap();
        tx.on(&b).write_at(text.as_bytes(), 0).unwrap();
        tx.commit().unwrap();
    };
    commit("before");
    ["a", "b"].into_iter().for_each(|name| fs::rename(old.join(name), new.join(name)).unwrap());
    // Whether they were moved is checked from time to time.
    let began = Instant::now();
    let is_there = |folder: &Path| folder.join(".famio/joint").exists();
    while !is_there(&new) {
        commit("behind");
        assert!(began.elapsed() < Duration::from_secs(10), "the record is not where its files are");
    }
    assert_eq!((read(&a), read(&b)), ("behind".into(), "behind".into()));
    [a, b].into_iter().for_each(|file| file.close().unwrap());
    assert!(!is_there(&new));
}

#[test]
fn all_files_or_none_change_and_nothing_is_left() {
    for scratch in [Scratch::on_tmpfs("joint"), Scratch::on_disk("joint")] {
        let (a, b, c) =
            (open(scratch.path().join("a")), open(scratch.path().join("b")), open(scratch.path().join("c")));
        a.write_at(b"before", 0).unwrap();
        let mut tx = a.transaction().unwrap();
        for file in [&b, &c, &b] {
            tx.join(file).unwrap();
        }
        tx.write_at(b"B", 0).unwrap();
        tx.on(&b).write_at(b"bytes", 0).unwrap();
        tx.on(&c).set_len(3).unwrap();
        assert_eq!((read(&a).as_str(), read(&b).as_str()), ("before", ""));
        tx.commit().unwrap();
        assert_eq!((read(&a).as_str(), read(&b).as_str(), read(&c).as_str()), ("Before", "bytes", "\0\0\0"));
        let mut dropped = b.transaction().unwrap();
        dropped.join(&a).unwrap();
        dropped.on(&a).write_at(b"nothing", 0).unwrap();
        drop(dropped);
        // A transaction without changes, and one that changes one file only.
        let mut tx = a.transaction().unwrap();
        tx.join(&b).unwrap();
        tx.on(&b).write_at(b"B", 0).unwrap();
        tx.commit().unwrap();
        let mut tx = a.transaction().unwrap();
        tx.join(&b).unwrap();
        tx.commit().unwrap();
        assert_eq!((read(&a).as_str(), read(&b).as_str()), ("Before", "Bytes"));
        [a, b, c].into_iter().for_each(|file| file.close().unwrap());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "something is left");
    }
}

/// Of files that a transaction has only read, or joined: what it writes may depend on that.
#[test]
fn what_was_written_before_to_any_of_its_files_is_committed() {
    for scratch in [Scratch::on_tmpfs("joint-before"), Scratch::on_disk("joint-before")] {
        let (a, b) = (open(scratch.path().join("a")), open(scratch.path().join("b")));
        for (round, (checks, reads, writes)) in
            [(false, false, true), (false, true, true), (true, true, true), (false, false, false), (true, true, false)]
                .into_iter()
                .enumerate()
        {
            let text = round.to_string();
            a.write_at(text.as_bytes(), 0).unwrap();
            b.write_at(text.as_bytes(), 0).unwrap();
            let mut tx = a.transaction().unwrap();
            if checks {
                tx.check().unwrap();
            }
            tx.join(&b).unwrap();
            if reads {
                tx.on(&b).read_at(&mut [0], 0).unwrap();
            }
            if writes {
                tx.write_at(b"written", 1).unwrap();
            }
            tx.commit().unwrap();
            [&a, &b].iter().for_each(|file| drop(file.rollback()));
            assert_eq!((&read(&a)[..1], &*read(&b)), (&*text, &*text), "{checks} {reads} {writes}");
        }
    }
}

#[test]
fn a_conflict_in_one_file_leaves_all_of_them_alone() {
    let scratch = Scratch::on_tmpfs("joint-conflict");
    let (a, b) = (open(scratch.path().join("a")), open(scratch.path().join("b")));
    for file in [&a, &b] {
        file.write_at(b"0123", 0).unwrap();
        file.sync().unwrap();
    }
    let mut tx = a.transaction().unwrap();
    tx.check().unwrap();
    tx.join(&b).unwrap();
    tx.on(&b).read_at(&mut [0; 4], 0).unwrap();
    tx.write_at(b"x", 0).unwrap();
    tx.on(&b).write_at(b"x", 0).unwrap();
    b.write_at(b"9", 3).unwrap();
    assert_eq!(tx.commit().unwrap_err().errno(), libc::EAGAIN);
    assert_eq!((read(&a).as_str(), read(&b).as_str()), ("0123", "0129"));
    [a, b].into_iter().for_each(|file| file.close().unwrap());
}

#[test]
fn files_of_two_pools_or_for_other_users_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::on_tmpfs("joint-pools");
    fs::create_dir(scratch.path().join("other")).unwrap();
    let (a, b) = (open(scratch.path().join("a")), open(scratch.path().join("other/b")));
    let secret = open(scratch.path().join("secret"));
    fs::set_permissions(scratch.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(scratch.path().join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    for other in [&b, &secret] {
        let mut tx = a.transaction().unwrap();
        tx.join(other).unwrap();
        tx.write_at(b"x", 0).unwrap();
        tx.on(other).write_at(b"x", 0).unwrap();
        let refused = tx.commit().unwrap_err();
        assert_eq!(refused.errno(), libc::EXDEV, "{refused}");
        assert_eq!((read(&a).as_str(), read(other).as_str()), ("", ""));
    }
    let mut tx = a.transaction().unwrap();
    assert_eq!(tx.on(&b).write_at(b"x", 0).unwrap_err().errno(), libc::EXDEV);
    tx.no_sync();
    assert_eq!(tx.join(&b).unwrap_err().errno(), libc::EINVAL);
    drop(tx);
    [a, b, secret].into_iter().for_each(|file| file.close().unwrap());
}

/// Each thread transfers between the same two files, in either direction.
#[test]
fn threads_that_commit_at_once_do_not_wait_for_each_other_for_ever() {
    let scratch = Scratch::on_tmpfs("joint-threads");
    let (a, b) = (open(scratch.path().join("a")), open(scratch.path().join("b")));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (first, second) = if thread % 2 == 0 { (&a, &b) } else { (&b, &a) };
            scope.spawn(move || {
                for round in (b'a'..=b'z').cycle().take(500) {
                    let mut tx = first.transaction().unwrap();
                    tx.join(second).unwrap();
                    tx.write_at(&[b'0' + thread, round], 0).unwrap();
                    tx.on(second).write_at(&[b'0' + thread, round], 0).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(read(&a), read(&b));
    [a, b].into_iter().for_each(|file| file.close().unwrap());
}
