//! A medium that cuts the power of the virtual machine at an exact operation, and simulates what QEMU lacks: a cache
//! in front of persistent memory. It keeps every version of each line that was not yet written back *and* fenced. At
//! the cut, it gives each of those lines an older version, the oldest that the hardware could have left or one in
//! between, in the mapped file itself; then it cuts the power, and no instruction of this machine follows (it has one
//! CPU).
//!
//! For a disk, nothing is simulated: the page cache is lost with the machine.

use crate::options::Broken;
use core::sync::atomic::{AtomicU64, Ordering};
use famio::pmem::{Domain, LINE, Medium, medium};
use famio_test_support::random::Random;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// What a cut does to lines that are not persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lose {
    /// Nothing: every store had left the cache.
    Nothing,
    /// Everything: each line is as when it was last written back and fenced.
    All,
    /// Each line has any of its versions.
    Some,
}

/// The medium. One per process.
pub struct Cache {
    real: &'static dyn Medium,
    broken: Option<Broken>,
    lose: Lose,
    /// Operations until the cut; for a broken Famio, commits.
    left: AtomicU64,
    port: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: HashMap<usize, Line>,
    mappings: Vec<Mapping>,
    /// Commit slots were written back, and this thread's next fence is theirs.
    slot_flushed: Option<ThreadId>,
    /// For a broken Famio: operations until the cut, after the last commit.
    after_commit: Option<u64>,
    random: Option<Random>,
}

/// A line that is newer in the cache than on the medium.
struct Line {
    /// The first one is persistent.
    versions: Vec<[u8; LINE]>,
    /// Written back: the version, for each thread that has to fence.
    flushed: Vec<(ThreadId, usize)>,
}

struct Mapping {
    base: usize,
    len: usize,
    file: (u64, u64),
    is_journal: bool,
}

/// The slots' page of a journal in place: `docs/format.md`.
const SLOTS: core::ops::Range<usize> = 4096..6144;
/// The line between the slots that counts segments.
const EXTENT: usize = 4160;

impl Cache {
    /// In front of this domain's medium; never freed. `cut_after`: operations until the cut, 0 for none.
    pub fn new(
        domain: Domain,
        cut_after: u64,
        lose: Lose,
        seed: u64,
        broken: Option<Broken>,
    ) -> Result<&'static Self, String> {
        let port = File::options().write(true).open("/dev/port").map_err(|error| format!("/dev/port: {error}"))?;
        Ok(Box::leak(Box::new(Self {
            real: medium(domain, false),
            broken,
            lose: if domain == Domain::Pmem { lose } else { Lose::Nothing },
            left: AtomicU64::new(if cut_after == 0 { u64::MAX } else { cut_after }),
            port,
            state: Mutex::new(State { random: Some(Random::new(seed)), ..State::default() }),
        })))
    }

    /// Called before every operation. The state stays locked until the operation is done, so that it is consistent at
    /// a cut.
    fn begin(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match &mut state.after_commit {
            Some(left) => {
                *left -= 1;
                *left == 0
            }
            None => self.broken.is_none() && self.left.fetch_sub(1, Ordering::Relaxed) == 1,
        };
        if now {
            self.cut(&mut state);
        }
        state
    }

    /// A broken commit: the effect shows in the next few operations, so the cut comes there.
    fn broken_commit(&self, state: &mut State) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            state.after_commit = state.random.as_mut().map(|random| 1 + random.below(4));
        }
    }

    fn cut(&self, state: &mut State) -> ! {
        let mut random = state.random.take().unwrap_or_else(|| Random::new(0));
        for (&address, line) in &state.lines {
            let version = match self.lose {
                Lose::Nothing => continue,
                Lose::All => 0,
                Lose::Some => random.below(line.versions.len() as u64) as usize,
            };
            // SAFETY: the line is in a mapping that lives as long as its file is open; ranges that were cut off are
            // forgotten.
            unsafe { (address as *mut [u8; LINE]).write_volatile(line.versions[version]) };
        }
        // A write of one byte: the machine is off before the call returns.
        let _ = self.port.write_at(b"\x15", 0xf4);
        eprintln!("famio-power: the power is still on");
        std::process::abort();
    }

    /// Around stores to `address..address + len`: records the lines' versions before and after.
    fn stored(&self, state: &mut State, address: usize, len: usize, written_back: bool, store: impl FnOnce()) {
        let lines = || (address / LINE * LINE..address + len).step_by(LINE);
        if self.lose == Lose::Nothing {
            return store();
        }
        for line in lines() {
            state.lines.entry(line).or_insert_with(|| Line { versions: vec![read(line)], flushed: Vec::new() });
        }
        store();
        for at in lines() {
            if let Some(line) = state.lines.get_mut(&at) {
                line.versions.push(read(at));
                if written_back {
                    line.flushed.push((thread::current().id(), line.versions.len() - 1));
                }
            }
        }
    }
}

/// A line's current content.
fn read(address: usize) -> [u8; LINE] {
    // SAFETY: the medium was asked to store to this line, or near it in the same page.
    unsafe { (address as *const [u8; LINE]).read_volatile() }
}

impl State {
    fn is_slot(&self, address: usize) -> bool {
        let inside = |m: &&Mapping| m.is_journal && (m.base..m.base + m.len).contains(&address);
        self.mappings.iter().find(inside).is_some_and(|m| {
            let at = address - m.base;
            SLOTS.contains(&at) && at / LINE * LINE != EXTENT
        })
    }

    fn fenced(&mut self) {
        let me = thread::current().id();
        self.lines.retain(|_, line| {
            let done = line.flushed.iter().filter(|(thread, _)| *thread == me).map(|&(_, version)| version).max();
            if let Some(version) = done {
                line.versions.drain(..version);
                line.flushed.retain(|&(thread, _)| thread != me);
                for (_, other) in &mut line.flushed {
                    *other = other.saturating_sub(version);
                }
            }
            line.versions.len() > 1
        });
    }
}

fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let stat = std::fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    Some((stat.dev(), stat.ino()))
}

fn is_journal(fd: BorrowedFd<'_>) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .is_ok_and(|path| path.extension().is_some_and(|extension| extension == "journal"))
}

// SAFETY: the real medium moves the bytes; before the cut nothing else is stored.
unsafe impl Medium for Cache {
    unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        let mut state = self.begin();
        // SAFETY: the caller's promise.
        self.stored(&mut state, dst as usize, len, true, || unsafe { self.real.copy(dst, src, len) });
    }

    unsafe fn zero(&self, dst: *mut u8, len: usize) {
        let mut state = self.begin();
        // SAFETY: the caller's promise.
        self.stored(&mut state, dst as usize, len, true, || unsafe { self.real.zero(dst, len) });
    }

    unsafe fn stage(&self, dst: *mut u8, src: *const u8, len: usize, hot: bool) {
        let mut state = self.begin();
        // SAFETY: the caller's promise.
        self.stored(&mut state, dst as usize, len, false, || unsafe { self.real.stage(dst, src, len, hot) });
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        let mut state = self.begin();
        self.stored(&mut state, word.as_ptr() as usize, 8, false, || self.real.store(word, value));
    }

    unsafe fn flush(&self, addr: *const u8, len: usize) {
        let mut state = self.begin();
        let address = addr as usize;
        if state.is_slot(address) {
            if self.broken == Some(Broken::Flush) {
                self.broken_commit(&mut state);
                return;
            }
            state.slot_flushed = Some(thread::current().id());
        }
        for at in (address / LINE * LINE..address + len).step_by(LINE) {
            if let Some(line) = state.lines.get_mut(&at) {
                line.flushed.push((thread::current().id(), line.versions.len() - 1));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.real.flush(addr, len) }
    }

    fn fence(&self) {
        let mut state = self.begin();
        if state.slot_flushed == Some(thread::current().id()) {
            state.slot_flushed = None;
            if self.broken == Some(Broken::Fence) {
                self.broken_commit(&mut state);
                return;
            }
        }
        self.real.fence();
        state.fenced();
    }

    fn pwritev(&self, fd: BorrowedFd<'_>, bufs: &[&[u8]], offset: u64) -> famio::Result<()> {
        drop(self.begin());
        self.real.pwritev(fd, bufs, offset)
    }

    fn fdatasync(&self, fd: BorrowedFd<'_>) -> famio::Result<()> {
        let mut state = self.begin();
        let left_out = match self.broken {
            Some(Broken::Fdatasync) => is_journal(fd),
            Some(Broken::WriteBack) => !is_journal(fd),
            _ => false,
        };
        if left_out {
            self.broken_commit(&mut state);
            return Ok(());
        }
        drop(state);
        self.real.fdatasync(fd)
    }

    fn fsync(&self, fd: BorrowedFd<'_>) -> famio::Result<()> {
        drop(self.begin());
        self.real.fsync(fd)
    }

    fn ftruncate(&self, fd: BorrowedFd<'_>, size: u64) -> famio::Result<()> {
        let mut state = self.begin();
        if let Some(file) = identity(fd) {
            let State { lines, mappings, .. } = &mut *state;
            for mapping in mappings.iter().filter(|mapping| mapping.file == file) {
                // Bytes that are cut off cannot be stored to any more.
                let gone = mapping.base + (size as usize).next_multiple_of(4096)..mapping.base + mapping.len;
                lines.retain(|at, _| !gone.contains(at));
            }
        }
        self.real.ftruncate(fd, size)
    }

    fn watch(&self, fd: BorrowedFd<'_>, base: *const u8, len: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = identity(fd) {
            state.mappings.push(Mapping { base: base as usize, len, file, is_journal: is_journal(fd) });
        }
        drop(state);
        self.real.watch(fd, base, len);
    }
}
