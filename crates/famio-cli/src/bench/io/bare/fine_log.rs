//! A redo log of exactly the bytes that are written: logged, committed, and then copied home. Everything is written
//! twice.

use super::map::{Map, fence};
use std::collections::HashMap;
use std::io::Error;
use std::path::Path;

/// Before each logged piece: its place in the file, and its length.
const HEAD: usize = 16;
/// The first line of the log: where the committed part of it ends.
const START: usize = 64;
const LOG: usize = 16 << 20;

pub struct FineLog {
    home: Map,
    log: Map,
    end: usize,
    /// Of each piece by its place in the file, where its newest bytes are in the log, and how many.
    pending: HashMap<usize, (usize, usize)>,
}

impl FineLog {
    pub fn new(home: Map, beside: &Path) -> Result<Self, Error> {
        let log = Map::beside(beside, "log", LOG)?;
        Ok(Self { home, log, end: START, pending: HashMap::new() })
    }

    pub fn read(&self, at: usize, to: &mut [u8]) {
        // Pieces of one workload have one size, and do not overlap in part.
        match self.pending.get(&at) {
            Some(&(place, length)) if length == to.len() => self.log.read(place, to),
            _ => self.home.read(at, to),
        }
    }

    pub fn write(&mut self, at: usize, from: &[u8]) {
        let needed = (HEAD + from.len()).next_multiple_of(8);
        if self.end + needed > self.log.len() {
            self.sync();
        }
        let place = self.end + HEAD;
        self.log.store(self.end, at as u64);
        self.log.store(self.end + 8, from.len() as u64);
        self.log.write(place, from);
        self.log.write_back(self.end, HEAD + from.len());
        self.end += needed;
        self.pending.insert(at, (place, from.len()));
    }

    /// Commits, and empties the log.
    pub fn sync(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        fence();
        self.log.store(0, self.end as u64);
        self.log.write_back(0, 8);
        fence();
        for (at, (place, length)) in self.pending.drain() {
            self.home.copy(at, self.log.place(place, length), length);
            self.home.write_back(at, length);
        }
        fence();
        self.log.store(0, START as u64);
        self.log.write_back(0, 8);
        fence();
        self.end = START;
    }

    pub fn written_back(&self) -> u64 {
        self.home.written_back() + self.log.written_back()
    }
}
