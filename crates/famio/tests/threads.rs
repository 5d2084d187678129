//! Several threads on one atomic file: a thread that knows of another's write reads it; appends are contiguous; a
//! SYNC by any thread cuts between writes, also when the process is killed.

mod common;
#[path = "common/everywhere.rs"]
mod everywhere;

use common::{Opened, Scratch};
use everywhere::settings_of;
use famio::Settings;
use famio::file::UserBuf;
use famio_test_support::random::Random;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BLOCK: u64 = 4096;

/// The policies in place, with and without flushes and fences, and records: a name and a place for each.
fn everywhere(name: &str) -> [(&'static str, Settings, Scratch); 9] {
    let all = [
        "undo",
        "redo",
        "alternate",
        "undo-emulated",
        "redo-emulated",
        "alternate-emulated",
        "records",
        "tiered",
        "tiered-tight",
    ];
    everywhere::everywhere(name, all)
}

/// A range of the file that one writer rewrites repeatedly, always completely; within one block, so that it is read
/// completely.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    len: usize,
}

/// The pieces of writer `writer` of two, in the order in which it writes them: blocks, halves of blocks, granules
/// (several per block in sequence; the other writer's are between them), and pieces that share granules with nothing.
fn pieces(writer: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = |offset, len| pieces.push(Piece { offset, len });
    (0..4).for_each(|i| piece((2 * i + writer) * BLOCK, BLOCK as usize));
    (8..12).for_each(|block| piece(block * BLOCK + writer * 2048, 2048));
    for block in 12..18 {
        (0..6).for_each(|i| piece(block * BLOCK + (2 * i + writer) * 64, 64));
    }
    (18..22).for_each(|block| piece(block * BLOCK + 10 + writer * 1024, 100 + 700 * (block % 2) as usize));
    pieces
}

const SIZE: usize = 22 * BLOCK as usize;

/// The content of a piece after its write number `number` (from 1).
fn filled(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// The last write, up to number `number`, to piece `piece` of `count`; 0: none.
fn last_to(piece: usize, count: usize, number: u64) -> u64 {
    let (piece, count) = (piece as u64, count as u64);
    number.saturating_sub((number + count - 1 - piece) % count)
}

/// A writer's progress, for readers.
struct Progress {
    pieces: Vec<Piece>,
    /// The last finished write; stored after it.
    done: AtomicU64,
    /// The last write begun; stored before it.
    begun: AtomicU64,
}

impl Progress {
    fn new(writer: u64) -> Self {
        Self { pieces: pieces(writer), done: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }

    fn write_on(&self, opened: &Opened, up_to: u64, sync_every: u64) {
        for number in self.done.load(Ordering::Relaxed) + 1..=up_to {
            let piece = self.pieces[(number - 1) as usize % self.pieces.len()];
            self.begun.store(number, Ordering::Release);
            opened.write(piece.offset, &filled(number, piece.len));
            self.done.store(number, Ordering::Release);
            if number % sync_every == 0 {
                opened.atomic().sync().unwrap();
            }
        }
    }

    /// Reads one piece: complete, not older than the write that `seen` names, nor than what was read before; `seen`
    /// grows.
    fn read(&self, opened: &Opened, which: usize, seen: &mut u64, what: &str) {
        *seen = (*seen).max(self.done.load(Ordering::Acquire));
        let piece = self.pieces[which];
        let found = opened.read(piece.offset, piece.len);
        let begun = self.begun.load(Ordering::Acquire);
        let first: [u8; 8] = found[..8].try_into().unwrap();
        let number = u64::from_le_bytes(first);
        assert!(found == filled(number, piece.len), "{what}: piece {which} is torn");
        let least = last_to(which, self.pieces.len(), *seen);
        assert!(number >= least, "{what}: piece {which} is stale: write {number} of it, after {least} was done");
        assert!(number <= begun, "{what}: piece {which} is of write {number}, when {begun} was the last");
        assert!(number == 0 || (number - 1) as usize % self.pieces.len() == which, "{what}: {which} has {number}");
        *seen = (*seen).max(number);
    }

    /// The expected final contents.
    fn check(&self, bytes: &[u8], what: &str) {
        let done = self.done.load(Ordering::Acquire);
        for (which, piece) in self.pieces.iter().enumerate() {
            let number = last_to(which, self.pieces.len(), done);
            let found = &bytes[piece.offset as usize..][..piece.len];
            assert!(found == filled(number, piece.len), "{what}: piece {which} in the end");
        }
    }
}

/// Reads until `stop`, from piece to piece; sometimes the same one twice in a row.
fn read_on(opened: &Opened, writers: &[&Progress], seed: u64, stop: &AtomicBool, what: &str) {
    let mut random = Random::new(seed);
    let mut seen = vec![0; writers.len()];
    while !stop.load(Ordering::Acquire) {
        for (writer, seen) in writers.iter().zip(&mut seen) {
            // Near what is being written, or anywhere.
            let count = writer.pieces.len();
            let fast_path = (writer.begun.load(Ordering::Relaxed) as usize).wrapping_sub(random.below(3) as usize);
            let which = if random.below(2) == 0 { fast_path % count } else { random.below(count as u64) as usize };
            writer.read(opened, which, seen, what);
        }
    }
}

#[test]
fn the_last_write_to_a_piece() {
    assert_eq!([1, 2, 3, 4, 5, 6].map(|n| last_to(0, 3, n)), [1, 1, 1, 4, 4, 4]);
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|n| last_to(2, 3, n)), [0, 0, 0, 3, 3, 3, 6]);
}

/// A single thread writes, in exclusive mode after its first SYNC: other threads must read what it has reported as
/// written.
#[test]
fn readers_see_what_the_only_writer_has_announced() {
    for (what, settings, dir) in everywhere("announced") {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; SIZE]).unwrap();
        let opened = Opened::new(&path, &settings);
        let (writer, stop) = (Progress::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (opened, writer, stop) = (&opened, &writer, &stop);
                scope.spawn(move || read_on(opened, &[writer], reader, stop, what));
            }
            let up_to = if what == "records" { 4_000 } else { 30_000 };
            let _stopping = Stop(&stop);
            writer.write_on(&opened, up_to, 97);
        });
        writer.check(&opened.read(0, SIZE), what);
        drop(opened);
        writer.check(&std::fs::read(&path).unwrap(), what);
    }
}

/// A block that was never written is read from the file itself: its first writer may be faster than the reader.
#[test]
fn a_block_is_read_whole_when_it_is_written_for_the_first_time() {
    // Cells are created for 512 blocks at a time.
    const FIRSTS: u64 = 1500;
    const APART: u64 = 512 * BLOCK;
    // An epoch of all of them does not fit the journal of the last setting.
    for (what, settings, dir) in everywhere("first").into_iter().filter(|(what, ..)| *what != "tiered-tight") {
        let path = dir.path().join("file");
        std::fs::File::create(&path).unwrap().set_len(FIRSTS * APART).unwrap();
        let opened = Opened::new(&path, &settings);
        let (at, reads_at, stop) = (AtomicU64::new(0), AtomicU64::new(FIRSTS), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _stopping = Stop(&stop);
                while !stop.load(Ordering::Acquire) {
                    let at = at.load(Ordering::Acquire);
                    reads_at.store(at, Ordering::Release);
                    let found = opened.read(at * APART, BLOCK as usize);
                    assert!(found.iter().all(|&byte| byte == found[0]), "{what}: a block of two writes");
                }
            });
            let _stopping = Stop(&stop);
            for first in 0..FIRSTS {
                at.store(first, Ordering::Release);
                while reads_at.load(Ordering::Acquire) != first && !stop.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                opened.write(first * APART, &[1; BLOCK as usize]);
            }
        });
    }
}

/// Ends the waiting threads even if the thread that sets it panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A second writer joins the one in exclusive mode, in the same blocks, and leaves again, several times; a third
/// thread SYNCs throughout.
#[test]
fn a_second_writer_joins() {
    for (what, settings, dir) in everywhere("joins") {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; SIZE]).unwrap();
        let opened = Opened::new(&path, &settings);
        let writers = [Progress::new(0), Progress::new(1)];
        let (stop, stop_sync) = (AtomicBool::new(false), AtomicBool::new(false));
        let rounds = if what == "records" { 4 } else { 10 };
        std::thread::scope(|scope| {
            let _stopping = Stop(&stop);
            let (opened, writers, stop, stop_sync) = (&opened, &writers, &stop, &stop_sync);
            scope.spawn(move || read_on(opened, &[&writers[0], &writers[1]], 7, stop, what));
            scope.spawn(move || {
                while !stop_sync.load(Ordering::Acquire) {
                    opened.atomic().sync().unwrap();
                    std::thread::yield_now();
                }
            });
            let _stopping = Stop(stop_sync);
            for round in 1..=rounds {
                // Alone, with its own SYNCs, it gets exclusive mode.
                writers[0].write_on(opened, round * 2000 - 1000, 50);
                let second = scope.spawn(move || writers[1].write_on(opened, round * 800, 61));
                writers[0].write_on(opened, round * 2000, 50);
                second.join().unwrap();
            }
        });
        for writer in &writers {
            writer.check(&opened.read(0, SIZE), what);
        }
        drop(opened);
        let left = std::fs::read(&path).unwrap();
        writers.iter().for_each(|writer| writer.check(&left, what));
    }
}

/// Record `index` of a thread: its length, thread, index, and a filling.
fn record(thread: u64, index: u64) -> Vec<u8> {
    let long = index % 16 == thread;
    let len = 16 + (index * 37 + thread * 11) % if long { 6000 } else { 250 };
    let mut bytes = vec![(thread * 61 + index) as u8; len as usize];
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(thread as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// Every record is there once, complete, and each thread's are in order.
fn check_records(bytes: &[u8], counts: [u64; 4], what: &str) {
    let mut next = [0u64; 4];
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        assert!(rest.len() >= 16, "{what}: half a record at {at}");
        let thread = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        assert!(thread < 4, "{what}: no record at {at}");
        let wanted = record(thread as u64, next[thread]);
        assert!(rest.starts_with(&wanted), "{what}: not record {} of thread {thread} at {at}", next[thread]);
        next[thread] += 1;
        rest = &rest[wanted.len()..];
    }
    assert_eq!(next, counts, "{what}");
}

#[test]
fn appends_land_whole() {
    for (what, settings, dir) in everywhere("appends") {
        let path = dir.path().join("file");
        let opened = Opened::new(&path, &settings);
        let count = if what == "records" { 300 } else { 1500 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let opened = &opened;
                scope.spawn(move || {
                    for index in 0..count {
                        let bytes = record(thread, index);
                        let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
                        // SAFETY: a live buffer.
                        let (at, n) = unsafe { opened.atomic().append(&buf) }.unwrap();
                        assert_eq!(n, bytes.len(), "{what}");
                        assert!(opened.atomic().size() >= at + n as u64, "{what}");
                        assert!(opened.read(at, n) == bytes, "{what}: record {index} of thread {thread} at {at}");
                        if index % 40 == 10 * thread {
                            opened.atomic().sync().unwrap();
                        }
                    }
                });
            }
        });
        check_records(&opened.read(0, opened.atomic().size() as usize), [count; 4], what);
        drop(opened);
        check_records(&std::fs::read(&path).unwrap(), [count; 4], what);
    }
}

const THREADS: u64 = 3;
/// Writes of a thread in a round.
const WRITES: u64 = 8;
/// Offset and length of write `write` of a thread; the second half spans blocks.
fn stamp_at(thread: u64, write: u64) -> (u64, usize) {
    let area = (thread * 16 + write) * 2 * BLOCK;
    if write < WRITES / 2 { (area + 64 * thread, 64 * (1 + 7 * write as usize)) } else { (area + 1000, 5000) }
}

fn stamp(opened: &Opened, thread: u64, write: u64, round: u64) {
    let (offset, len) = stamp_at(thread, write);
    opened.write(offset, &filled(round, len));
}

/// The round of each write of a thread. A write must be complete: it belongs to one epoch.
fn stamps(bytes: &[u8], thread: u64, what: &str) -> Vec<u64> {
    let of = |write| {
        let (offset, len) = stamp_at(thread, write);
        let found = &bytes[offset as usize..][..len];
        let round = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(found == filled(round, len), "{what}: write {write} of thread {thread} is not whole");
        round
    };
    (0..WRITES).map(of).collect()
}

const FILE: &str = "FAMIO_THREADS_FILE";

/// The child: every thread stamps and SYNCs, and reports that. In step: no thread SYNCs before all have stamped, and
/// none stamps before all have SYNCed; otherwise each at its own pace. Runs only when told to.
#[test]
fn child() {
    let Ok(path) = std::env::var(FILE) else { return };
    let settings = settings_of(&std::env::var("FAMIO_THREADS_SETTINGS").unwrap());
    let from: u64 = std::env::var("FAMIO_THREADS_FROM").unwrap().parse().unwrap();
    let in_step = std::env::var("FAMIO_THREADS_IN_STEP").is_ok();
    let opened = Opened::new(Path::new(&path), &settings);
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (opened, barrier) = (&opened, &barrier);
            scope.spawn(move || {
                let wait = || in_step.then(|| barrier.wait());
                for round in from.. {
                    (0..WRITES).for_each(|write| stamp(opened, thread, write, round));
                    wait();
                    opened.atomic().sync().unwrap();
                    std::io::stdout().write_all(format!("acked {thread} {round}\n").as_bytes()).unwrap();
                    wait();
                }
            });
        }
    });
}

/// Kills the child repeatedly, after a number of acknowledgements.
fn campaign(dir: &Path, settings: &str, in_step: bool) {
    let path = dir.join("file");
    std::fs::write(&path, vec![0; (THREADS * 32 * BLOCK) as usize]).unwrap();
    let what = format!("{settings}, in step: {in_step}");
    let kills = common::kills_asked().unwrap_or(6);
    let mut from = 1;
    for kill in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.env(FILE, &path).env("FAMIO_THREADS_SETTINGS", settings).env("FAMIO_THREADS_FROM", from.to_string());
        if in_step {
            command.env("FAMIO_THREADS_IN_STEP", "1");
        }
        let mut child = command.spawn().unwrap();
        let mut acked = [from - 1; THREADS as usize];
        let mut note = |line: String| {
            // The test runner prints its own lines, one of them unterminated.
            let Some((_, said)) = line.split_once("acked ") else { return 0 };
            let (thread, round) = said.split_once(' ').unwrap();
            acked[thread.parse::<usize>().unwrap()] = round.parse().unwrap();
            1
        };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + kill * 7919 % 90;
        while left > 0 {
            left -= note(lines.next().expect("the child ended by itself").unwrap());
        }
        for _ in 0..kill * 104_729 % 20_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            note(line.unwrap());
        }
        drop(Opened::new(&path, &settings_of(settings))); // recovers, and closes clean
        assert!(!dir.join(".famio").exists(), "{what}");
        let found = std::fs::read(&path).unwrap();
        let all: Vec<Vec<u64>> = (0..THREADS).map(|thread| stamps(&found, thread, &what)).collect();
        for (thread, (rounds, acked)) in all.iter().zip(acked).enumerate() {
            // A cut between two writes: the first ones may be of the round after the last acknowledged one. A round
            // that was made durable by its own SYNC may not have been reported yet.
            let last = rounds[rounds.len() - 1];
            assert!(
                last == acked || last == acked + 1,
                "{what}: thread {thread}: {rounds:?}, {acked} was acknowledged"
            );
            assert!(rounds[0] <= acked + 1, "{what}: thread {thread}: {rounds:?}, {acked} was acknowledged");
            let new = rounds.iter().take_while(|round| **round == last + 1).count();
            assert!(rounds[new..].iter().all(|round| *round == last), "{what}: thread {thread}: {rounds:?} is no cut");
        }
        if in_step {
            let same = all.iter().flatten().all(|round| *round == all[0][0]);
            assert!(same, "{what}: after kill {kill} the file is no epoch: {all:?}");
        }
        // The next child begins with one round for all.
        let highest = *all.iter().flatten().max().unwrap();
        let opened = Opened::new(&path, &settings_of(settings));
        for thread in 0..THREADS {
            (0..WRITES).for_each(|write| stamp(&opened, thread, write, highest));
        }
        from = highest + 1;
    }
}

#[test]
fn a_kill_leaves_whole_epochs_of_all_threads() {
    if std::env::var(FILE).is_ok() {
        return;
    }
    for in_step in [true, false] {
        for (settings, _, dir) in everywhere("killed") {
            campaign(dir.path(), settings, in_step);
        }
    }
}
