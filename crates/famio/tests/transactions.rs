//! Transactions of one file: complete or not at all, for readers, for other processes, and after kills.

mod common;
#[path = "common/everywhere.rs"]
mod everywhere;

use common::Scratch;
use everywhere::settings_of;
use famio::{AtomicFile, PolicyChoice, Settings};
use famio_test_support::random::Random;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCK: u64 = 4096;

/// It gave zeros for what another thread had just appended.
#[test]
fn a_read_shows_no_zeros_while_the_file_grows() {
    for (name, settings, dir) in everywhere("transactions-grow") {
        let file = open(&dir.path().join("file"), &settings);
        file.write_at(&[b'x'; 100], 0).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..4000).for_each(|piece| file.write_at(&[b'x'; 100], 100 * piece).unwrap());
                is_over.store(true, Ordering::Relaxed);
            });
            let mut tx = file.transaction().unwrap();
            tx.write_at(b"y", 0).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let (mut seen, at) = ([0; 2000], file.len() - 50);
                let len = tx.read_at(&mut seen, at).unwrap();
                assert!(seen[..len].iter().all(|&byte| byte == b'x'), "{name}: {len} bytes at {at}");
            }
        });
    }
}

/// The policies in place, with and without flushes and fences, and records: a name and a place for each.
fn everywhere(name: &str) -> [(&'static str, Settings, Scratch); 11] {
    let all = [
        "undo",
        "redo",
        "alternate",
        "auto",
        "undo-emulated",
        "redo-emulated",
        "alternate-emulated",
        "records",
        "tiered",
        "tiered-tight",
        "keep",
    ];
    everywhere::everywhere(name, all)
}

fn open(path: &Path, settings: &Settings) -> AtomicFile {
    AtomicFile::options().create(true).settings(settings.clone()).open(path).unwrap()
}

fn errno<T>(result: famio::Result<T>) -> i32 {
    result.map(drop).expect_err("an error").errno()
}

fn put(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(bytes);
}

fn content(file: &AtomicFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Random transactions, ordinary writes, SYNCs, aborts and reopenings, compared with vectors of bytes.
#[test]
fn it_is_as_a_model_says() {
    for (which, settings, dir) in everywhere("tx-model") {
        let path = dir.path().join("file");
        let mut file = open(&path, &settings);
        let mut model = Vec::new();
        let mut random = Random::new(which.len() as u64 * 77 + 3);
        let mut commits = 0;
        for round in 0..400u64 {
            match random.below(10) {
                0 => {
                    let bytes = vec![round as u8; random.below(9000) as usize + 1];
                    let offset = random.below(60_000);
                    file.write_at(&bytes, offset).unwrap();
                    put(&mut model, offset, &bytes);
                }
                1 => file.sync().unwrap(),
                2 => {
                    let len = random.below(60_000);
                    file.set_len(len).unwrap();
                    model.resize(len as usize, 0);
                }
                3 if round % 5 == 0 => {
                    file.close().unwrap();
                    assert!(std::fs::read(&path).unwrap() == model, "{which}, round {round}");
                    file = open(&path, &settings);
                }
                what => {
                    let (mut tx, mut after) = (file.transaction().unwrap(), model.clone());
                    let is_checked = random.below(2) == 0;
                    if is_checked {
                        tx.check().unwrap();
                    }
                    // A block that the background has moved since counts as changed.
                    let is_conflict = |error: &famio::Error| is_checked && error.errno() == libc::EAGAIN;
                    let mut has_conflict = false;
                    for _ in 0..random.below(40) {
                        match random.below(12) {
                            0 => {
                                let len = random.below(60_000);
                                tx.set_len(len).unwrap();
                                after.resize(len as usize, 0);
                            }
                            1..4 => {
                                let (offset, mut bytes) = (random.below(70_000), vec![1; random.below(9000) as usize]);
                                let read = match tx.read_at(&mut bytes, offset) {
                                    Err(e) if is_conflict(&e) => {
                                        has_conflict = true;
                                        break;
                                    }
                                    read => read.unwrap(),
                                };
                                let there = after.get(offset as usize..).unwrap_or(&[]);
                                assert!(
                                    bytes[..read] == there[..there.len().min(bytes.len())],
                                    "{which}, round {round}"
                                );
                                assert_eq!(tx.len().unwrap(), after.len() as u64);
                            }
                            _ => {
                                let granules = random.below(2) == 0;
                                let unit = if granules { 64 } else { 1 };
                                let offset = random.below(60_000) / unit * unit;
                                let bytes =
                                    vec![random.below(256) as u8; (random.below(600) / unit * unit + unit) as usize];
                                tx.write_at(&bytes, offset).unwrap();
                                put(&mut after, offset, &bytes);
                            }
                        }
                    }
                    assert!(content(&file) == model, "{which}, round {round}: no reader sees it before");
                    if what == 4 || has_conflict {
                        drop(tx);
                    } else {
                        if what == 5 {
                            tx.no_sync();
                        }
                        match tx.commit() {
                            Err(e) if is_conflict(&e) => {}
                            committed => {
                                committed.unwrap();
                                model = after;
                                commits += 1;
                            }
                        }
                    }
                }
            }
            assert!(content(&file) == model, "{which}, round {round}");
        }
        file.close().unwrap();
        assert!(std::fs::read(&path).unwrap() == model, "{which}");
        assert!(commits > 100, "{which}: {commits} commits");
    }
}

#[test]
fn one_that_checks_fails_when_what_it_relies_on_has_changed() {
    for (which, settings, dir) in everywhere("tx-check") {
        let file = open(&dir.path().join("file"), &settings);
        file.write_at(&[1; 4 * BLOCK as usize], 0).unwrap();
        file.sync().unwrap();
        let commit_at = |block: u64, value: u8| {
            let mut tx = file.transaction().unwrap();
            tx.write_at(&[value; 100], block * BLOCK).unwrap();
            tx.commit().unwrap();
        };
        let checked = || {
            let mut tx = file.transaction().unwrap();
            tx.check().unwrap();
            tx
        };
        let mut byte = [0];

        let mut tx = checked();
        tx.read_at(&mut byte, 0).unwrap();
        tx.write_at(b"x", BLOCK).unwrap();
        commit_at(0, 2);
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: what it read");

        let mut tx = checked();
        tx.write_at(b"x", BLOCK).unwrap();
        commit_at(1, 3);
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: what it overwrites");

        let mut tx = checked();
        commit_at(1, 4);
        tx.write_at(b"x", BLOCK).unwrap();
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: before it came to it, and since it began");

        let mut tx = checked();
        tx.read_at(&mut byte, 2 * BLOCK).unwrap();
        file.write_at(b"y", 2 * BLOCK + 7).unwrap();
        tx.write_at(b"x", BLOCK).unwrap();
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: by a write without one");

        let mut tx = checked();
        let mut many = [0; 20_000];
        tx.read_at(&mut many, 3 * BLOCK).unwrap(); // to the end
        file.append(b"z").unwrap();
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: the end of the file");

        let mut tx = checked();
        tx.read_at(&mut byte, 0).unwrap();
        file.set_len(3 * BLOCK).unwrap();
        file.set_len(4 * BLOCK).unwrap();
        assert_eq!(errno(tx.commit()), libc::EAGAIN, "{which}: a cut");

        let mut tx = checked();
        tx.read_at(&mut byte, 0).unwrap();
        commit_at(0, 5);
        commit_at(1, 5);
        assert_eq!(errno(tx.read_at(&mut byte, BLOCK)), libc::EAGAIN, "{which}: its reads would be of two moments");

        let mut tx = checked();
        tx.read_at(&mut byte, 0).unwrap();
        tx.write_at(b"x", BLOCK).unwrap();
        commit_at(2, 6);
        assert_eq!(tx.commit().map_err(|e| e.errno()), Ok(()), "{which}: others, elsewhere");

        let mut tx = file.transaction().unwrap();
        tx.read_at(&mut byte, 0).unwrap();
        commit_at(0, 7);
        tx.write_at(b"x", 0).unwrap();
        tx.commit().unwrap(); // it does not check
        let mut tx = file.transaction().unwrap();
        tx.write_at(b"x", 0).unwrap();
        assert_eq!(errno(tx.check()), libc::EINVAL);
        drop(tx);
        file.close().unwrap();
    }
}

#[test]
fn errors_are_told_apart_and_change_nothing() {
    let dir = Scratch::on_tmpfs("tx-errors");
    let path = dir.path().join("file");
    let file = open(&path, &Settings::default());
    file.write_at(b"as it was", 0).unwrap();
    file.sync().unwrap();

    let mut tx = file.transaction().unwrap();
    tx.write_at(b"x", 0).unwrap();
    tx.set_time_limit(Some(Duration::ZERO));
    assert_eq!(errno(tx.write_at(b"x", 0)), libc::ETIMEDOUT);
    tx.set_time_limit(None);
    assert_eq!(errno(tx.read_at(&mut [0], 0)), libc::ETIMEDOUT, "it stays so");
    assert_eq!(errno(tx.commit()), libc::ETIMEDOUT);

    let mut tx = file.transaction().unwrap();
    assert_eq!(errno(tx.write_at(b"x", u64::MAX)), libc::EFBIG);
    assert_eq!(errno(tx.set_len(u64::MAX)), libc::EFBIG);
    drop(tx);

    let reader = AtomicFile::options().read_only(true).open(&path).unwrap();
    assert_eq!(errno(reader.transaction()), libc::EBADF);
    assert_eq!(errno(reader.rollback()), libc::EBADF);
    drop(reader);
    assert_eq!(content(&file), b"as it was");
    file.close().unwrap();
}

/// A child that has the parent's transaction in its memory.
#[test]
fn a_forked_child_is_refused() {
    let dir = Scratch::on_tmpfs("tx-fork");
    let file = open(&dir.path().join("file"), &Settings::default());
    let mut tx = file.transaction().unwrap();
    tx.write_at(b"the parent's", 0).unwrap();
    // SAFETY: the child makes a call of the library's, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = errno(tx.write_at(b"x", 0)) == libc::ECHILD && errno(tx.commit()) == libc::ECHILD;
        // SAFETY: ends at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    tx.commit().unwrap();
    assert_eq!(content(&file), b"the parent's");
    file.close().unwrap();
}

/// A journal with space for a part only.
#[test]
fn no_room_for_all_changes_nothing() {
    for (which, dir) in [("in place", Scratch::on_tmpfs("tx-full")), ("records", Scratch::on_disk("tx-full"))] {
        let settings = Settings { journal_limit: 3 << 20, policy: PolicyChoice::Redo, ..Settings::default() };
        let (path, size) = (dir.path().join("file"), 8 << 20);
        std::fs::write(&path, vec![1; size]).unwrap();
        let file = open(&path, &settings);
        let mut tx = file.transaction().unwrap();
        for at in (0..size).step_by(4096) {
            tx.write_at(&[2; 4096], at as u64).unwrap();
        }
        assert_eq!(errno(tx.commit()), libc::ENOSPC, "{which}");
        assert!(content(&file) == vec![1; size], "{which}");
        let mut tx = file.transaction().unwrap();
        for at in (0..size / 32).step_by(4096) {
            tx.write_at(&[3; 4096], at as u64).unwrap();
        }
        tx.commit().unwrap();
        assert!(content(&file)[..size / 32] == vec![3; size / 32], "{which}");
        file.close().unwrap();
    }
}

const ACCOUNTS: u64 = 64;
const WEALTH: u64 = ACCOUNTS * 1000;

/// Offset of account `n`: some share a block, most do not.
fn account(n: u64) -> u64 {
    n * 1000
}

/// Moves an amount between two accounts, with as many attempts as needed.
fn transfer(file: &AtomicFile, random: &mut Random) {
    let (from, to, amount) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(50));
    loop {
        let mut tx = file.transaction().unwrap();
        tx.check().unwrap();
        let done = (|| {
            let mut balance = [[0; 8]; 2];
            tx.read_at(&mut balance[0], account(from))?;
            tx.write_at(&(u64::from_le_bytes(balance[0]).wrapping_sub(amount)).to_le_bytes(), account(from))?;
            tx.read_at(&mut balance[1], account(to))?;
            tx.write_at(&(u64::from_le_bytes(balance[1]).wrapping_add(amount)).to_le_bytes(), account(to))?;
            tx.commit()
        })();
        match done {
            Err(e) if e.errno() == libc::EAGAIN => {}
            done => return done.unwrap(),
        }
    }
}

fn wealth(bytes: &[u8]) -> u64 {
    let balance = |n| u64::from_le_bytes(bytes[account(n) as usize..][..8].try_into().unwrap());
    (0..ACCOUNTS).fold(0, |sum: u64, n| sum.wrapping_add(balance(n)))
}

fn open_bank(path: &Path, settings: &Settings) -> AtomicFile {
    let file = open(path, settings);
    if file.is_empty() {
        let mut tx = file.transaction().unwrap();
        for n in 0..ACCOUNTS {
            tx.write_at(&1000u64.to_le_bytes(), account(n)).unwrap();
        }
        tx.commit().unwrap();
    }
    file
}

/// Threads transfer while others read everything by one call each: the sum is the same at every moment.
#[test]
fn threads_see_transfers_as_a_whole() {
    for (which, settings, dir) in everywhere("tx-threads") {
        let file = open_bank(&dir.path().join("bank"), &settings);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|n| {
                    let file = &file;
                    scope.spawn(move || {
                        (0..if which == "records" { 60 } else { 1500 })
                            .for_each(|i| transfer(file, &mut Random::new(n * 7919 + i)))
                    })
                })
                .collect();
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    assert_eq!(wealth(&content(&file)), WEALTH, "{which}");
                }
            });
            let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            ended.store(true, Ordering::SeqCst);
            joined.into_iter().for_each(|writer| writer.unwrap());
        });
        file.close().unwrap();
    }
}

/// Reads came from the map's memory, where a commit's bytes arrive later than in the journal: increments were lost.
#[test]
fn checked_transactions_lose_nothing_beside_a_map() {
    const EACH: u64 = 10_000;
    for (which, settings, dir) in everywhere("tx-mapped").into_iter().filter(|(which, ..)| *which != "records") {
        let file = open(&dir.path().join("file"), &settings);
        file.set_len(2 * BLOCK).unwrap();
        let region = file.map(..).unwrap();
        let increment = || {
            let mut tx = file.transaction().unwrap();
            tx.check()?;
            let mut count = [[0; 8]; 2];
            tx.read_at(&mut count[0], 0)?;
            tx.read_at(&mut count[1], BLOCK)?;
            let next = (u64::from_le_bytes(count[0]) + 1).to_le_bytes();
            tx.write_at(&next, 0)?;
            tx.write_at(&next, BLOCK)?;
            tx.commit().map(|()| assert_eq!(count[0], count[1], "{which}: torn"))
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < EACH {
                        match increment() {
                            Ok(()) => done += 1,
                            Err(e) => assert_eq!(e.errno(), libc::EAGAIN, "{which}: {e}"),
                        }
                    }
                });
            }
        });
        let mut count = [0; 8];
        file.read_exact_at(&mut count, 0).unwrap();
        assert_eq!(u64::from_le_bytes(count), 2 * EACH, "{which}");
        drop(region);
        file.close().unwrap();
    }
}

/// The child of the test below: transfers until it is killed. Runs only when told to.
#[test]
fn child() {
    let Ok(path) = std::env::var("FAMIO_TX_FILE") else { return };
    let settings = settings_of(&std::env::var("FAMIO_TX_SETTINGS").unwrap());
    let mut random = Random::new(std::env::var("FAMIO_TX_SEED").unwrap().parse().unwrap());
    let file = open_bank(Path::new(&path), &settings);
    let mut out = std::io::stdout();
    for round in 0u64.. {
        transfer(&file, &mut random);
        if random.below(4) == 0 {
            assert_eq!(wealth(&content(&file)), WEALTH, "seen by a process");
        }
        if round % 8 == 0 {
            writeln!(out, "{round}").unwrap();
            out.flush().unwrap();
        }
    }
}

struct Child(std::process::Child, BufReader<std::process::ChildStdout>);

impl Child {
    fn start(path: &Path, which: &str, seed: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("FAMIO_TX_FILE", path)
            .env("FAMIO_TX_SETTINGS", which)
            .env("FAMIO_TX_SEED", seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self(child, said)
    }

    /// Waits until it has printed this many lines.
    fn listen(&mut self, lines: u64) {
        for _ in 0..lines {
            let mut line = String::new();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "a child ended by itself");
        }
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Two processes transfer, and are killed and restarted alternately. The total must always be complete.
fn kills(which: &str, dir: &Scratch, rounds: u64) {
    let path: PathBuf = dir.path().join("bank");
    open_bank(&path, &settings_of(which)).close().unwrap();
    let mut random = Random::new(rounds + 5);
    let mut children = [Child::start(&path, which, 1), Child::start(&path, which, 2)];
    for round in 0..rounds {
        let place = random.below(2) as usize;
        children[place].listen(2 + random.below(4));
        let new = Child::start(&path, which, round + 3);
        std::mem::replace(&mut children[place], new).kill();
        if round % 4 == 3 {
            // Kill both, so that no process is left.
            let [a, b] = children;
            a.kill();
            b.kill();
            open(&path, &settings_of(which)).close().unwrap();
            assert_eq!(wealth(&std::fs::read(&path).unwrap()), WEALTH, "{which}, round {round}");
            children = [Child::start(&path, which, round * 2 + 100), Child::start(&path, which, round * 2 + 101)];
        }
    }
    children.into_iter().for_each(Child::kill);
    open(&path, &settings_of(which)).close().unwrap();
    assert_eq!(wealth(&std::fs::read(&path).unwrap()), WEALTH, "{which}");
}

#[test]
fn processes_that_are_killed_leave_whole_transfers() {
    for (which, _, dir) in everywhere("tx-kills") {
        if ["undo", "alternate-emulated", "records", "tiered", "tiered-tight", "keep"].contains(&which) {
            kills(which, &dir, 12);
        }
    }
}

#[test]
fn a_rollback_discards_what_was_not_committed() {
    for (which, settings, dir) in everywhere("tx-rollback") {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![b'-'; 50_000]).unwrap();
        let file = open(&path, &settings);
        file.rollback().unwrap(); // nothing is open
        let mut random = Random::new(9);
        let mut model = content(&file);
        for round in 0..60u8 {
            for _ in 0..random.below(20) {
                let (offset, bytes) = (random.below(60_000), vec![round; random.below(5000) as usize + 1]);
                file.write_at(&bytes, offset).unwrap();
                if random.below(8) == 0 {
                    file.set_len(random.below(60_000)).unwrap();
                }
            }
            match random.below(3) {
                0 => {
                    file.sync().unwrap();
                    model = content(&file);
                }
                1 => {
                    let mut tx = file.transaction().unwrap();
                    tx.write_at(&[round; 100], 7777).unwrap();
                    tx.commit().unwrap();
                    model = content(&file);
                }
                _ => {
                    file.rollback().unwrap();
                    assert!(content(&file) == model, "{which}, round {round}");
                }
            }
        }
        file.rollback().unwrap();
        file.close().unwrap();
        assert!(std::fs::read(&path).unwrap() == model, "{which}");
    }
}

/// Rollbacks beside commits: what a commit has reported as durable is not undone.
#[test]
fn a_rollback_takes_no_commit_back() {
    for (which, settings, dir) in everywhere("tx-rollback-threads") {
        let file = open(&dir.path().join("file"), &settings);
        file.write_at(&[0; 3 * BLOCK as usize], 0).unwrap();
        file.sync().unwrap();
        std::thread::scope(|scope| {
            let file = &file;
            let committer = scope.spawn(move || {
                for round in 1..40u64 {
                    let mut tx = file.transaction().unwrap();
                    tx.write_at(&round.to_le_bytes(), 0).unwrap();
                    tx.write_at(&round.to_le_bytes(), 2 * BLOCK).unwrap();
                    tx.commit().unwrap();
                    let mut found = [[0; 8]; 2];
                    file.read_at(&mut found[0], 0).unwrap();
                    file.read_at(&mut found[1], 2 * BLOCK).unwrap();
                    assert_eq!(found, [round.to_le_bytes(); 2], "{which}");
                }
            });
            let writer = scope.spawn(move || {
                for round in 0..40u8 {
                    file.write_at(&[round; 50], BLOCK).unwrap();
                    file.rollback().unwrap();
                }
            });
            writer.join().unwrap();
            committer.join().unwrap();
        });
        file.close().unwrap();
    }
}

/// The child of the tests below: writes, reports that, and waits for the end of its input. Runs only when told to.
#[test]
fn writing_child() {
    let Ok(path) = std::env::var("FAMIO_TX_WRITE") else { return };
    let file = open(Path::new(&path), &Settings::default());
    file.write_at(b"the child's", 0).unwrap();
    println!("written");
    let _ = std::io::stdin().read_line(&mut String::new());
    file.sync().unwrap();
    file.close().unwrap();
}

#[test]
fn what_another_process_has_written_is_not_rolled_back() {
    for dir in [Scratch::on_tmpfs("tx-rollback-processes"), Scratch::on_disk("tx-rollback-processes")] {
        let path = dir.path().join("file");
        std::fs::write(&path, [b'-'; 10_000]).unwrap();
        let file = open(&path, &Settings::default());
        file.write_at(b"x", 5000).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writing_child", "--nocapture"])
            .env("FAMIO_TX_WRITE", &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("written")));
        assert_eq!(errno(file.rollback()), libc::EBUSY);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        file.write_at(b"y", 5000).unwrap();
        file.rollback().unwrap();
        let mut found = [0; 11];
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"the child's");
        file.read_at(&mut found[..1], 5000).unwrap();
        assert_eq!(found[0], b'x');
        file.close().unwrap();
    }
}

#[test]
fn a_file_that_was_demoted_has_none() {
    let dir = Scratch::on_tmpfs("tx-handed-back");
    let opened = common::Opened::new(&dir.path().join("file"), &Settings::default());
    opened.write(0, b"x");
    opened.atomic().demote().unwrap();
    assert_eq!(errno(opened.atomic().rollback()), libc::EOPNOTSUPP);
}

/// In the map, and in reads, which come from there, were the bytes that had been cut off.
#[test]
fn what_is_cut_off_and_grown_again_is_zeros_in_a_map() {
    const SIZE: usize = 10_000;
    for (which, settings, dir) in everywhere("tx-cut-map") {
        let path = dir.path().join("file");
        std::fs::write(&path, [b'x'; SIZE]).unwrap();
        let file = open(&path, &settings);
        let region = file.map(..).unwrap();
        region.write(10, b"before").unwrap();
        let mut tx = file.transaction().unwrap();
        tx.write_at(&[b'y'; 1000], 4500).unwrap();
        tx.set_len(5000).unwrap();
        tx.set_len(SIZE as u64 + 5000).unwrap();
        tx.write_at(b"z", SIZE as u64 - 1).unwrap();
        tx.commit().unwrap();
        let mut expected = vec![b'x'; SIZE];
        expected[10..16].copy_from_slice(b"before");
        expected[4500..5000].fill(b'y');
        expected[5000..].fill(0);
        expected[SIZE - 1] = b'z';
        let mut mapped = vec![0; SIZE];
        region.read(0, &mut mapped).unwrap();
        assert!(mapped == expected, "{which}");
        expected.resize(SIZE + 5000, 0);
        assert!(content(&file) == expected, "{which}");
        file.sync().unwrap();
        drop((region, file));
        assert!(std::fs::read(&path).unwrap() == expected, "{which}");
    }
}

/// Commits once went on while a backup waited for the next SYNC, and the backup ended with `EAGAIN`.
#[test]
fn a_copy_is_of_one_commit_while_threads_commit() {
    const APART: u64 = 64 * BLOCK;
    // Commits without a pause fill a tier's journal faster than it can be copied: that may be `EAGAIN`.
    for (name, settings, scratch) in everywhere("backup").into_iter().filter(|(name, ..)| !name.starts_with("tier")) {
        for threads in [1, 2] {
            let path = scratch.path().join(format!("file-{threads}"));
            let file = open(&path, &settings);
            // So large that it changes while it is copied.
            file.set_len(64 * APART).unwrap();
            let done = AtomicBool::new(false);
            let commit = |letter: u8| {
                let mut transaction = file.transaction().unwrap();
                for block in 0..64 {
                    transaction.write_at(&[letter; BLOCK as usize], block * APART).unwrap();
                }
                transaction.commit().unwrap();
            };
            commit(0);
            let copied = std::thread::scope(|scope| {
                for first in 0..threads {
                    let (commit, done) = (&commit, &done);
                    scope.spawn(move || {
                        (first..=u8::MAX).cycle().take_while(|_| !done.load(Ordering::Relaxed)).for_each(commit);
                    });
                }
                let copy = |round| {
                    let to = scratch.path().join(format!("copy-{threads}-{round}"));
                    let copied = famio::recovery::backup(&path, &to, false, &settings, &|_| {});
                    copied.map(|_| std::fs::read(to).unwrap())
                };
                let copied: Vec<_> = (0..5).map(copy).collect();
                done.store(true, Ordering::Relaxed);
                copied
            });
            for copied in copied {
                let bytes = copied.unwrap_or_else(|error| panic!("{name}, {threads} threads: {error}"));
                let mut blocks = bytes.chunks(APART as usize).map(|part| &part[..BLOCK as usize]);
                assert!(blocks.len() == 64 && blocks.all(|block| block.iter().all(|&byte| byte == bytes[0])), "{name}");
            }
        }
    }
}
