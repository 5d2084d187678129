//! A file, its journal, and what the file should hold after each epoch.

use super::super::{BLOCK, Batch, Block, GRANULE, Geometry, Keeper, PAGE, RecordLog, Replayed, replay};
use crate::error::{Error, Result};
use crate::journal::header::LEN;
use crate::journal::testing::{KERNEL, Scratch, kernels_memory};
use crate::journal::{BootId, Header, Identity, Kind, State};
use crate::pmem::{Domain, Medium};
use crate::sys::{InternalFd, high_duplicate};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Segments of a few pages.
pub const SMALL: Geometry = Geometry { first: 8 * 4096, next: 8 * 4096, max: 16 * 4096 };

/// Segments that hold a few blocks.
pub const MIDDLE: Geometry = Geometry { first: 24 * 4096, next: 24 * 4096, max: 48 * 4096 };

/// A kernel medium that can fail a write, as if the process died, or a flush; and records the durable state of one
/// file.
pub struct Failing {
    watched: AtomicU64,
    /// The watched file as of its last flush.
    pub durable: Mutex<Vec<u8>>,
    /// Bytes that may still be written to it before the process "dies".
    pub bytes_to_live: AtomicI64,
    /// Flushes of it that succeed before one fails.
    pub flushes_to_fail: AtomicI64,
    dead: AtomicBool,
}

impl Failing {
    pub fn new(watched: &File) -> &'static Failing {
        Box::leak(Box::new(Failing {
            watched: AtomicU64::new(rustix::fs::fstat(watched).unwrap().st_ino),
            durable: Mutex::new(Vec::new()),
            bytes_to_live: AtomicI64::new(i64::MAX),
            flushes_to_fail: AtomicI64::new(i64::MAX),
            dead: AtomicBool::new(false),
        }))
    }
    fn watches(&self, fd: BorrowedFd<'_>) -> bool {
        rustix::fs::fstat(fd).unwrap().st_ino == self.watched.load(Ordering::Relaxed)
    }
    fn alive(&self) -> Result<()> {
        if self.dead.load(Ordering::Relaxed) { Err(Error::with(libc::EIO, "dead")) } else { Ok(()) }
    }
}

// SAFETY: moves the bytes that it is asked to, or fails.
unsafe impl Medium for Failing {
    kernels_memory!();
    fn fence(&self) {}
    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> Result<()> {
        self.alive()?;
        if !self.watches(fd) {
            return KERNEL.pwritev(fd, bufs, offset);
        }
        let all = bufs.concat();
        let left = self.bytes_to_live.fetch_sub(all.len() as i64, Ordering::Relaxed);
        if left < all.len() as i64 {
            // A prefix, up to a page boundary of the file.
            let reached = (offset as i64 + left.max(0)) / PAGE as i64 * PAGE as i64 - offset as i64;
            KERNEL.pwritev(fd, &[&all[..reached.clamp(0, all.len() as i64) as usize]], offset)?;
            self.dead.store(true, Ordering::Relaxed);
            return self.alive();
        }
        KERNEL.pwritev(fd, &[&all], offset)
    }
    fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.fdatasync(fd)
    }
    fn fdatasync(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.alive()?;
        if self.watches(fd) {
            if self.flushes_to_fail.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(Error::new(libc::EIO));
            }
            *self.durable.lock().unwrap() = contents(fd);
        }
        Ok(())
    }
    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> Result<()> {
        self.alive()?;
        KERNEL.ftruncate(fd, size)
    }
}

pub fn contents(fd: BorrowedFd<'_>) -> Vec<u8> {
    let mut bytes = vec![0; rustix::fs::fstat(fd).unwrap().st_size as usize];
    let mut at = 0;
    while at < bytes.len() {
        at += rustix::io::pread(fd, &mut bytes[at..], at as u64).unwrap();
    }
    bytes
}

pub struct JournalFile {
    file: InternalFd,
    header: Mutex<Header>,
    medium: &'static dyn Medium,
}

impl JournalFile {
    pub fn new(file: File, header: Header, medium: &'static dyn Medium) -> Self {
        JournalFile { file: high_duplicate(file.as_fd()).unwrap(), header: Mutex::new(header), medium }
    }
}

impl Keeper for JournalFile {
    fn journal(&self) -> &InternalFd {
        &self.file
    }
    fn header(&self) -> Header {
        self.header.lock().unwrap().clone()
    }
    fn stores(&self) -> u64 {
        self.header.lock().unwrap().stores()
    }
    fn read_again(&self) -> Result<()> {
        *self.header.lock().unwrap() = Header::load(self.file.get()?.as_fd())?.0;
        Ok(())
    }
    fn change(&self, journal: &dyn AsFd, change: &mut dyn FnMut(&mut Header)) -> Result<()> {
        let mut header = self.header.lock().unwrap();
        change(&mut header);
        header.store(journal, self.medium)
    }
    fn flush(&self, _: Option<BorrowedFd<'_>>) -> Result<()> {
        self.file.run(|journal| self.medium.fdatasync(journal.as_fd()))
    }
}

pub struct TestHooks {
    pub dir: Scratch,
    pub data: File,
    pub log: RecordLog,
    pub medium: &'static Failing,
    /// The file after each epoch.
    pub states: Vec<Vec<u8>>,
    /// The file now, with the open epoch.
    pub now: Vec<u8>,
    /// What the open epoch has written and not appended.
    dirty: BTreeMap<u64, u64>,
    cut: u64,
    pub checkpointed: u64,
    /// The lowest size ever.
    pub low: usize,
}

impl TestHooks {
    pub fn new() -> TestHooks {
        TestHooks::with(SMALL, 1 << 30, true)
    }

    /// `same_boot`: as if only the process can die.
    pub fn with(geometry: Geometry, limit: u64, same_boot: bool) -> TestHooks {
        let dir = Scratch::new();
        let open = |name| File::options().read(true).write(true).create_new(true).open(dir.path(name)).unwrap();
        let (data, journal) = (open("data"), open("journal"));
        let first = b"as found".repeat(30);
        data.write_all_at(&first, 0).unwrap();
        let identity = Identity::of_fd(data.as_fd()).unwrap();
        let page_cache = Domain::PageCache;
        let mut header = Header::new(Kind::Records, page_cache, page_cache, identity, &dir.path("data")).unwrap();
        header.state = State::Active;
        header.boot_id.0[0] ^= u8::from(!same_boot);
        let medium = Failing::new(&journal);
        header.store(journal.as_fd(), medium).unwrap();
        let keeper = Arc::new(JournalFile::new(journal, header, medium));
        let log = RecordLog::create(keeper, first.len() as u64, geometry, limit, medium).unwrap();
        let cut = first.len() as u64;
        TestHooks {
            dir,
            data,
            log,
            medium,
            states: vec![first.clone()],
            now: first,
            dirty: BTreeMap::new(),
            cut,
            checkpointed: 0,
            low: cut as usize,
        }
    }

    pub fn journal_path(&self) -> PathBuf {
        self.dir.path("journal")
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        // A gap need not be written as zeros: replay cuts the file before it grows.
        let (from, to) = (offset, offset + bytes.len());
        if self.now.len() < to {
            self.now.resize(to, 0);
        }
        self.now[offset..to].copy_from_slice(bytes);
        for granule in from / GRANULE..to.div_ceil(GRANULE) {
            *self.dirty.entry((granule / 64) as u64).or_default() |= 1 << (granule % 64);
        }
    }

    pub fn truncate(&mut self, size: usize) {
        if size > self.now.len() {
            self.write(size, &[]);
            return;
        }
        self.now.truncate(size);
        self.cut = self.cut.min(size as u64);
        self.low = self.low.min(size);
        for granule in size.div_ceil(GRANULE)..(size + 1000).div_ceil(BLOCK) * 64 {
            if let Some(mask) = self.dirty.get_mut(&((granule / 64) as u64)) {
                *mask &= !(1 << (granule % 64));
            }
        }
        let end = (size + 1000).div_ceil(BLOCK) as u64;
        self.dirty.retain(|&block, mask| block < end && *mask != 0);
    }

    /// Appends what the open epoch wrote.
    pub fn append(&mut self, commit: bool) -> Result<()> {
        let mut padded = self.now.clone();
        padded.resize(padded.len().next_multiple_of(BLOCK) + BLOCK, 0);
        let block = |(&number, &mask): (&u64, &u64)| {
            let at = number as usize * BLOCK;
            Block { number, mask, data: padded[at..at + BLOCK].try_into().unwrap() }
        };
        let blocks: Vec<Block<'_>> = self.dirty.iter().map(block).collect();
        let granules = blocks.iter().map(|b| u64::from(b.mask.count_ones())).sum();
        self.log.reserve(RecordLog::cost(blocks.len() as u64, granules))?;
        let epoch = self.log.committed() + 1;
        let (size, cut) = (self.now.len() as u64, self.cut);
        self.log.append(&Batch { epoch, size, cut, commit, blocks: &blocks })?;
        self.dirty.clear();
        self.cut = size;
        if commit {
            self.states.push(self.now.clone());
        }
        Ok(())
    }

    /// Commits a change of size alone.
    pub fn append_unreserved(&mut self) -> Result<()> {
        let epoch = self.log.committed() + 1;
        let size = self.now.len() as u64;
        self.log.append(&Batch { epoch, size, cut: self.cut, commit: true, blocks: &[] })?;
        self.cut = size;
        self.states.push(self.now.clone());
        Ok(())
    }

    pub fn commit(&mut self) -> Result<()> {
        self.append(true)
    }

    /// Copies everything up to `epoch` to the file.
    pub fn checkpoint(&mut self, epoch: u64) {
        let state = &self.states[epoch as usize];
        self.data.set_len(state.len() as u64).unwrap();
        self.data.write_all_at(state, 0).unwrap();
        self.log.release(epoch);
        self.checkpointed = epoch;
    }

    /// A copy of the journal, as a recovery would find it.
    pub fn copy(&self) -> PathBuf {
        let copy = self.dir.path("copy");
        fs::copy(self.journal_path(), &copy).unwrap();
        copy
    }

    pub fn file(&self) -> Vec<u8> {
        contents(self.data.as_fd())
    }

    /// Recovers, twice; the file must then be as after `epoch`.
    pub fn recovers_to(&self, epoch: usize) {
        let copy = self.copy();
        for _ in 0..2 {
            let replayed = recover(&copy, &self.data, &KERNEL).unwrap();
            assert_eq!(replayed.epoch, epoch as u64);
            assert!(self.file() == self.states[epoch], "epoch {epoch} is not what it was");
        }
    }
}

pub fn recover(journal: &Path, data: &File, medium: &dyn Medium) -> Result<Replayed> {
    let journal = File::options().read(true).write(true).open(journal).unwrap();
    let (mut header, _) = Header::load(journal.as_fd())?;
    replay(journal.as_fd(), &mut header, data.as_fd(), medium, 2, &|_| ())
}

/// A journal of these bytes, as if from another boot or from this one.
pub fn rewrite(path: &Path, mut bytes: Vec<u8>, same_boot: bool) {
    if let Ok((mut header, _)) = Header::read(&bytes) {
        header.boot_id = BootId::current().unwrap();
        header.boot_id.0[0] ^= u8::from(!same_boot);
        let copy = header.encode();
        bytes[..LEN].copy_from_slice(&[copy, copy].concat());
    }
    fs::write(path, bytes).unwrap();
}
