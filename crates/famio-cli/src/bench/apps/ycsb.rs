//! YCSB's core workloads A to F, on records of 1 KiB.

use super::store::{Engine, Store};
use crate::bench::io::content::{Content, stamp_of};
use crate::bench::io::stream::{zipf, zipf_rank};
use crate::bench::window::{Call, work};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// A store with a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ycsb {
    pub engine: Engine,
    pub letter: Letter,
    pub records: u64,
}

/// Which mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Letter {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the newest, 5 % inserts.
    D,
    /// 95 % scans of up to 100 records, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl Letter {
    pub const ALL: [Letter; 6] = [Letter::A, Letter::B, Letter::C, Letter::D, Letter::E, Letter::F];

    pub fn title(self) -> &'static str {
        match self {
            Letter::A => "A: 50 % updates",
            Letter::B => "B: 5 % updates",
            Letter::C => "C: reads only",
            Letter::D => "D: newest read, 5 % inserts",
            Letter::E => "E: scans, 5 % inserts",
            Letter::F => "F: 50 % read and changed",
        }
    }
}

/// Bytes of a record.
const RECORD: u64 = 1024;
const LONGEST_SCAN: u64 = 100;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read(u64),
    Update(u64),
    Insert(u64),
    Scan(u64, u64),
    Modify(u64),
}

impl Op {
    /// The record that it writes.
    fn written(self) -> Option<u64> {
        match self {
            Op::Update(key) | Op::Insert(key) | Op::Modify(key) => Some(key),
            Op::Read(_) | Op::Scan(..) => None,
        }
    }
}

/// The calls, one after another: the same in each stream of a load.
struct Stream {
    letter: Letter,
    /// Records that are there now.
    records: u64,
    random: fastrand::Rng,
}

impl Stream {
    fn new(app: &Ycsb) -> Self {
        Self { letter: app.letter, records: app.records, random: fastrand::Rng::with_seed(app.letter as u64) }
    }

    fn next(&mut self) -> Op {
        let (share, place) = (self.random.u32(0..100), self.random.f64());
        let key = zipf(self.records, place);
        match (self.letter, share) {
            (Letter::D | Letter::E, 95..) => {
                self.records += 1;
                Op::Insert(self.records - 1)
            }
            (Letter::D, _) => Op::Read(self.records - 1 - zipf_rank(self.records, place)),
            (Letter::E, _) => Op::Scan(key, self.random.u64(1..=LONGEST_SCAN)),
            (Letter::A, 50..) | (Letter::B, 95..) => Op::Update(key),
            (Letter::F, 50..) => Op::Modify(key),
            _ => Op::Read(key),
        }
    }
}

/// The stamp of what a record has at first, and of what call number `call` writes.
fn first(key: u64) -> u64 {
    key + 1
}

fn stamp(call: u64) -> u64 {
    1 << 40 | call
}

impl Ycsb {
    pub fn version(&self) -> Result<String, String> {
        self.engine.version()
    }

    pub fn data(&self) -> String {
        format!("{}-{}", self.engine.files(), self.records)
    }

    fn bytes(&self) -> u64 {
        self.records * RECORD
    }

    pub fn prepare(&self, folder: &Path) -> Result<(), String> {
        let mut content = Content::new(RECORD);
        let records = (0..self.records).map(|key| (key.to_be_bytes(), content.piece(first(key))));
        self.engine.fill(folder, records, self.bytes())
    }

    pub fn work(&self, folder: &Path) -> Result<(), String> {
        let mut store = self.engine.open(folder, self.bytes())?;
        let (mut stream, mut content, mut calls) = (Stream::new(self), Content::new(RECORD), 0);
        let mut value = Vec::new();
        work(None, |_| {
            let op = stream.next();
            calls += 1;
            let began = Instant::now();
            one(&mut *store, op, calls, &mut content, &mut value).map_err(|error| format!("{op:?}: {error}"))?;
            Ok(Some(Call::of(began.elapsed())))
        })
    }

    /// Each record must have what the last call wrote to it.
    pub fn check(&self, folder: &Path, calls: u64) -> Result<(), String> {
        let mut stream = Stream::new(self);
        let mut last: Vec<u64> = (0..self.records).map(first).collect();
        for call in 1..=calls {
            match stream.next() {
                Op::Insert(_) => last.push(stamp(call)),
                op => op.written().into_iter().for_each(|key| last[key as usize] = stamp(call)),
            }
        }
        let content = Content::new(RECORD);
        let mut seen = 0;
        self.engine.open(folder, self.bytes())?.each(&mut |key, value| {
            seen += 1;
            let key = key.try_into().map(u64::from_be_bytes).map_err(|_| "a key that was never written")?;
            let expected = last.get(key as usize).ok_or_else(|| format!("record {key} was never written"))?;
            match value.len() as u64 == RECORD && content.is_whole(value) && stamp_of(value) == *expected {
                true => Ok(()),
                false => Err(format!("record {key} has {:#x}, and should have {expected:#x}", stamp_of(value))),
            }
        })?;
        if seen == last.len() { Ok(()) } else { Err(format!("{seen} records are there, and should be {}", last.len())) }
    }
}

fn one(store: &mut dyn Store, op: Op, call: u64, content: &mut Content, value: &mut Vec<u8>) -> Result<(), String> {
    let mut read = |store: &mut dyn Store, key: u64| match store.get(&key.to_be_bytes(), value)? {
        true if value.len() as u64 == RECORD => Ok(()),
        _ => Err(format!("record {key} is not there")),
    };
    let mut write = |store: &mut dyn Store, key: u64| {
        // SAFETY: a piece is that long.
        content.with(stamp(call), |piece| unsafe {
            store.put(&key.to_be_bytes(), std::slice::from_raw_parts(piece, RECORD as usize))
        })
    };
    match op {
        Op::Read(key) => read(store, key),
        Op::Update(key) | Op::Insert(key) => write(store, key),
        Op::Modify(key) => read(store, key).and_then(|()| write(store, key)),
        Op::Scan(key, most) => match store.scan(&key.to_be_bytes(), most)? {
            0 => Err("no record there".into()),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(letter: Letter) -> Ycsb {
        Ycsb { engine: Engine::Lmdb, letter, records: 200 }
    }

    #[test]
    fn mixes_are_what_they_say() {
        for (letter, writes) in Letter::ALL.into_iter().zip([50, 5, 0, 5, 5, 50]) {
            let mut stream = Stream::new(&app(letter));
            let written = (0..10_000).filter(|_| stream.next().written().is_some()).count();
            assert!(written.abs_diff(writes * 100) < 200, "{letter:?}: {written}");
        }
    }

    #[test]
    fn a_lost_write_is_found() {
        if let Err(missing) = Engine::Lmdb.version() {
            return eprintln!("skipped: {missing}");
        }
        let (folder, app) = (tempfile::tempdir_in("/dev/shm").unwrap(), app(Letter::F));
        app.prepare(folder.path()).unwrap();
        app.check(folder.path(), 0).unwrap();
        let mut store = app.engine.open(folder.path(), app.bytes()).unwrap();
        let (mut stream, mut content, mut value) = (Stream::new(&app), Content::new(RECORD), Vec::new());
        let calls = (1..).find(|&call| {
            let op = stream.next();
            one(&mut *store, op, call, &mut content, &mut value).unwrap();
            call > 100 && op.written().is_some()
        });
        drop(store);
        let calls = calls.unwrap();
        app.check(folder.path(), calls).unwrap();
        assert!(app.check(folder.path(), calls - 1).unwrap_err().contains("should have"));
    }
}
