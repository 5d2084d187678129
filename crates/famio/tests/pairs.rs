//! Two threads that commit transactions on one file at once: each transaction is there as a whole or not at all, and
//! those that change the same blocks follow each other.

mod common;

use common::{Opened, Scratch};
use famio::{AtomicFile, OnKill, PolicyChoice, Settings};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 4096;
/// Places that both threads change, and places of each thread alone; each is in a block of its own.
const COMMON: u64 = 4;
const OWN: u64 = 24;
const SIZE: u64 = (COMMON + 2 * OWN) * BLOCK;
/// Bytes at each place. Not a multiple of a granule: the rest of it has to be filled up.
const LEN: usize = 136;

fn settings() -> Settings {
    Settings { emulated: true, ..Settings::default() }
}

/// Where a thread writes.
fn places(thread: u64) -> impl Iterator<Item = u64> {
    // Some of them are whole granules.
    let place = |block: u64| block * BLOCK + if block.is_multiple_of(3) { 1024 } else { 1000 };
    (0..COMMON).chain(COMMON + thread * OWN..COMMON + (thread + 1) * OWN).map(place)
}

fn commit(file: &AtomicFile, thread: u64, round: u64) {
    let mut bytes = [0; LEN];
    bytes.as_chunks_mut().0.iter_mut().for_each(|word| *word = (2 * round + thread).to_le_bytes());
    let mut transaction = file.transaction().unwrap();
    places(thread).for_each(|place| transaction.write_at(&bytes, place).unwrap());
    transaction.commit().unwrap();
}

/// The last round of each thread, if all that a transaction writes is there.
fn rounds_of(content: &[u8]) -> [u64; 2] {
    let at = |place: u64| {
        let words = content[place as usize..][..LEN].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<_> = words.collect();
        assert!(words.iter().all(|word| *word == words[0]), "torn at {place}: {words:?}");
        words[0]
    };
    let [common, first, second] = [0..COMMON, COMMON..COMMON + OWN, COMMON + OWN..COMMON + 2 * OWN].map(|blocks| {
        let range = blocks.start * BLOCK..blocks.end * BLOCK;
        let all: Vec<_> = places(0).chain(places(1)).filter(|place| range.contains(place)).map(at).collect();
        assert!(all.iter().all(|word| *word == all[0]), "a transaction in part: {all:?}");
        all[0]
    });
    assert!(common == first || common == second, "the last transaction in part: {common}, {first}, {second}");
    [first / 2, second / 2]
}

fn read(file: &AtomicFile) -> Vec<u8> {
    let mut content = vec![0; SIZE as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

fn prepare(path: &Path) {
    std::fs::write(path, vec![0; SIZE as usize]).unwrap();
    let file = AtomicFile::options().settings(settings()).open(path).unwrap();
    (0..2).for_each(|thread| commit(&file, thread, 0));
    file.close().unwrap();
}

#[test]
fn readers_see_each_transaction_as_a_whole() {
    for policy in [PolicyChoice::Auto, PolicyChoice::Redo, PolicyChoice::Alternate] {
        for on_kill in [OnKill::Rollback, OnKill::Keep] {
            for maps in [false, true] {
                commit_beside_readers(&Settings { policy, on_kill, ..settings() }, maps);
            }
        }
    }
}

/// `maps`: while the file is mapped again and again, a reader may see a transaction in part.
fn commit_beside_readers(settings: &Settings, maps: bool) {
    const ROUNDS: u64 = 5000;
    let scratch = Scratch::on_tmpfs("pairs");
    let path = scratch.path().join("file");
    prepare(&path);
    let file = AtomicFile::options().settings(settings.clone()).open(&path).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|thread| {
            let file = &file;
            scope.spawn(move || (1..=ROUNDS).for_each(|round| commit(file, thread, round)))
        });
        scope.spawn(|| {
            let mut last = [0, 0];
            while !ended.load(Ordering::SeqCst) {
                if maps {
                    drop(file.map(..).unwrap());
                    continue;
                }
                let found = rounds_of(&read(&file));
                assert!(found[0] >= last[0] && found[1] >= last[1], "{found:?} after {last:?}");
                last = found;
            }
        });
        let joined = writers.map(std::thread::ScopedJoinHandle::join);
        ended.store(true, Ordering::SeqCst);
        joined.into_iter().for_each(|writer| writer.unwrap());
    });
    assert_eq!(rounds_of(&read(&file)), [ROUNDS; 2]);
    file.close().unwrap();
    assert_eq!(rounds_of(&std::fs::read(&path).unwrap()), [ROUNDS; 2]);
}

/// The child: both threads go on, and report each commit. Runs only when told to.
#[test]
fn child() {
    let Ok(path) = std::env::var("FAMIO_PAIRS_FILE") else { return };
    let from = [0, 1].map(|n| std::env::var(format!("FAMIO_PAIRS_FROM_{n}")).unwrap().parse::<u64>().unwrap());
    let file = AtomicFile::options().settings(settings()).open(&path).unwrap();
    std::thread::scope(|scope| {
        for (thread, from) in (0..).zip(from) {
            let file = &file;
            scope.spawn(move || {
                for round in from + 1.. {
                    commit(file, thread, round);
                    // One call per line.
                    let mut out = std::io::stdout().lock();
                    out.write_all(format!("acked {thread} {round}\n").as_bytes()).unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

#[test]
fn every_kill_leaves_whole_transactions() {
    if std::env::var("FAMIO_PAIRS_FILE").is_ok() {
        return;
    }
    let scratch = Scratch::on_tmpfs("pairs-kill");
    let path = scratch.path().join("file");
    prepare(&path);
    let mut rounds = [0; 2];
    for kill in 0..common::kills_asked().unwrap_or(12) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.env("FAMIO_PAIRS_FILE", &path);
        (0..2).for_each(|n| _ = command.env(format!("FAMIO_PAIRS_FROM_{n}"), rounds[n].to_string()));
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acked = rounds;
        let mut note = |line: &str| {
            let mut words = line.strip_prefix("acked ")?.split(' ').map(|word| word.parse::<usize>().unwrap());
            let (thread, round) = (words.next()?, words.next()?);
            acked[thread] = round as u64;
            Some(())
        };
        let mut left = 1 + kill * 7919 % 600;
        while left > 0 {
            left -= note(&lines.next().expect("the child ended by itself").unwrap()).map_or(0, |()| 1);
        }
        for _ in 0..kill * 104_729 % 20_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.for_each(|line| _ = note(&line.unwrap()));
        drop(Opened::new(&path, &settings())); // recovers, and closes clean
        assert!(!scratch.path().join(".famio").exists());
        rounds = rounds_of(&std::fs::read(&path).unwrap());
        let is_right = |n: usize| rounds[n] == acked[n] || rounds[n] == acked[n] + 1;
        assert!(is_right(0) && is_right(1), "kill {kill}: {rounds:?} after {acked:?}");
    }
}
