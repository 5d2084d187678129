//! A tiered journal, and what its file should hold after each epoch.

use super::super::{MOST_EARLY, TieredLog, scan};
use crate::error::Result;
use crate::index::BLOCK;
use crate::journal::inplace::Key;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::records::{Batch, Block, GRANULE, Geometry};
use crate::journal::testing::{KERNEL, Scratch};
use crate::journal::{Header, Identity, Kind, State};
use crate::pmem::{Domain, Medium};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Segments of a few blocks.
pub const SMALL: Geometry = Geometry { first: 8 * 4096, next: 8 * 4096, max: 16 * 4096 };

pub struct TestHooks {
    pub dir: Scratch,
    pub journal: File,
    pub header: Header,
    pub log: TieredLog,
    /// The file after each epoch; no epoch has number 0.
    pub states: Vec<Vec<u8>>,
    /// The file now, with the open epoch.
    pub now: Vec<u8>,
    dirty: BTreeMap<u64, u64>,
    cut: u64,
    /// The file has everything up to this epoch.
    pub checkpointed: usize,
    /// Blocks that were stored early.
    pub early: usize,
}

impl TestHooks {
    pub fn new(limit: u64, medium: &'static dyn Medium) -> Self {
        let dir = Scratch::new();
        let open = |name| File::options().read(true).write(true).create_new(true).open(dir.path(name)).unwrap();
        let (data, journal) = (open("data"), open("journal"));
        let first = b"as found".repeat(30);
        let identity = Identity::of_fd(data.as_fd()).unwrap();
        let domain = Domain::Emulated;
        let mut header = Header::new(Kind::Tiered, domain, Domain::PageCache, identity, &dir.path("data")).unwrap();
        header.state = State::Active;
        SMALL.put(0, &mut header.geometry);
        header.store(journal.as_fd(), &KERNEL).unwrap();
        let key = Key::of(header.journal_id);
        let mapped = Mapped::create(journal.as_fd(), domain, medium, key, limit).unwrap();
        let log = TieredLog::create(mapped, first.len() as u64, SMALL).unwrap();
        let cut = first.len() as u64;
        let states = vec![Vec::new(), first.clone()];
        Self { dir, journal, header, log, states, now: first, dirty: BTreeMap::new(), cut, checkpointed: 1, early: 0 }
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let (from, to) = (offset, offset + bytes.len());
        if self.now.len() < to {
            self.now.resize(to, 0);
        }
        self.now[offset..to].copy_from_slice(bytes);
        for granule in from / GRANULE..to.div_ceil(GRANULE) {
            *self.dirty.entry((granule / 64) as u64).or_default() |= 1 << (granule % 64);
        }
        for block in from / BLOCK..to.div_ceil(BLOCK) {
            self.store_early(block, from <= block * BLOCK && (block + 1) * BLOCK <= to);
        }
    }

    /// As a thread in exclusive mode that has written to a block, or to the whole of it.
    fn store_early(&mut self, block: usize, whole: bool) {
        if self.log.is_early(block as u64) {
            self.log.overwrite_early(block as u64);
        } else if whole && let Some(place) = self.log.place_early(block as u64, MOST_EARLY) {
            let bytes = &self.now[block * BLOCK..(block + 1) * BLOCK];
            self.early += 1;
            // SAFETY: a whole block, and the place is the open epoch's.
            unsafe { self.log.area().store_early(place, bytes.as_ptr()) }.unwrap();
        }
    }

    pub fn truncate(&mut self, size: usize) {
        if size >= self.now.len() {
            self.now.resize(size, 0);
            return;
        }
        let old = self.now.len();
        self.log.forget_early();
        self.now.truncate(size);
        self.cut = self.cut.min(size as u64);
        for granule in size.div_ceil(GRANULE)..old.div_ceil(GRANULE) {
            if let Some(mask) = self.dirty.get_mut(&((granule / 64) as u64)) {
                *mask &= !(1 << (granule % 64));
            }
        }
        self.dirty.retain(|_, mask| *mask != 0);
    }

    pub fn commit(&mut self) -> Result<()> {
        let mut padded = self.now.clone();
        padded.resize(padded.len().next_multiple_of(BLOCK) + BLOCK, 0);
        let block = |(&number, &mask): (&u64, &u64)| {
            let at = number as usize * BLOCK;
            Block { number, mask, data: padded[at..at + BLOCK].try_into().unwrap() }
        };
        let blocks: Vec<Block<'_>> = self.dirty.iter().map(block).collect();
        let granules = blocks.iter().map(|b| u64::from(b.mask.count_ones())).sum();
        self.log.reserve(TieredLog::cost(blocks.len() as u64, granules))?;
        let (epoch, size) = (self.log.committed() + 1, self.now.len() as u64);
        self.log.append(&Batch { epoch, size, cut: self.cut, commit: true, blocks: &blocks })?;
        self.dirty.clear();
        self.cut = size;
        self.states.push(self.now.clone());
        Ok(())
    }

    /// The result of a recovery with these bytes and a file that has everything up to `checkpointed`: the epoch and the
    /// file.
    pub fn recovered(&self, journal: &[u8], checkpointed: usize) -> Result<(u64, Vec<u8>)> {
        let open = |name| {
            File::options().read(true).write(true).create(true).truncate(true).open(self.dir.path(name)).unwrap()
        };
        let (copy, file) = (open("copy"), open("file"));
        copy.write_all_at(journal, 0).unwrap();
        file.write_all_at(&self.states[checkpointed], 0).unwrap();
        let scan = scan(copy.as_fd(), journal.len() as u64, &self.header, &KERNEL)?;
        // Twice: after a crash, recovery is repeated.
        for _ in 0..2 {
            scan.apply(file.as_fd(), &KERNEL, 1, &|_| ())?;
        }
        Ok((scan.epoch(), std::fs::read(self.dir.path("file")).unwrap()))
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.dir.path("journal")).unwrap()
    }

    /// Recovers the journal as it is; the file must then be at its last epoch.
    pub fn recovers(&self) {
        let (epoch, file) = self.recovered(&self.bytes(), self.checkpointed).unwrap();
        assert_eq!(epoch as usize, self.states.len() - 1);
        assert!(file == self.states[epoch as usize], "epoch {epoch} is not what it was");
    }
}
