//! Reads a file that was not written yet: first by the kernel; a file that is read more through a mapping, which
//! saves the system call.

use crate::file::engine::home::copy_out;
use crate::file::{Descriptors, UserBuf};
use crate::map::ahead::Reach;
use crate::map::{Advice, Mapping, cache};
use crate::pmem::{Domain, is_in_memory};
use crate::thread::{Held, Mutex};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Reads by the kernel before the file is mapped: a program that only looks at a file's header needs no mapping.
const BY_KERNEL: u32 = 16;
/// Larger reads of a file on a disk are the kernel's: it reads ahead, and one system call matters little. In memory
/// our copy is quicker at any size.
const LARGE: usize = 256 << 10;

/// A smaller file is read by the kernel at first, whatever was advised: to make a mapping and to remove it takes as long
/// as some large reads.
pub(in crate::file) const WORTH_MAPPING: u64 = 256 << 10;

/// The mapping of a file that is only read, and its last known size.
#[derive(Default)]
pub(in crate::file) struct PlainReads {
    count: AtomicU32,
    /// `None`: it cannot be mapped.
    map: OnceLock<Option<Mapping>>,
    /// Whether its file system is in memory.
    in_memory: OnceLock<bool>,
    size: AtomicU64,
    /// The state (`AtomicFile::quiet`) in which it has that size: another process may have cut the file since.
    as_of: AtomicU64,
    /// The advice was that reads are random, perhaps before it was mapped.
    random: AtomicBool,
    looking: Mutex<()>,
}

impl PlainReads {
    /// Reads through the mapping. `None`: the kernel has to read, because the file is new to us, ends near there, was
    /// cut by an outsider, or a buffer is bad.
    ///
    /// # Safety
    /// The buffers may be overwritten; they may be bad.
    #[inline]
    pub unsafe fn read(
        &self,
        fds: &Descriptors,
        (quiet, still): (u64, impl Fn() -> bool),
        offset: u64,
        bufs: &[UserBuf],
    ) -> Option<usize> {
        let total = UserBuf::total(bufs);
        let end = offset.checked_add(total as u64)?;
        if total > LARGE && !self.is_in_memory(fds) {
            return None;
        }
        if self.as_of.load(Ordering::Acquire) != quiet || end > self.size.load(Ordering::Acquire) {
            // Another process may have written since: look again before the size is trusted.
            self.look(fds, (quiet, still), end)?;
        }
        let map = self.map.get()?.as_ref()?;
        map.touch(offset, total, || self.size.load(Ordering::Relaxed));
        let mut done = 0;
        for buf in bufs {
            let from = map.ptr(offset + done as u64, buf.len)?;
            // SAFETY: the caller's promise; the source is our mapping, and a fault there is an error.
            unsafe { copy_out(buf.base, from, buf.len) }.ok()?;
            done += buf.len;
        }
        Some(done)
    }

    #[cold]
    fn is_in_memory(&self, fds: &Descriptors) -> bool {
        let _held = Held::of_process(); // as in `see`
        *self.in_memory.get_or_init(|| fds.with(false, |fd| Ok(is_in_memory(fd))).unwrap_or(false))
    }

    /// Whether the next read is the kernel's, as one of the first.
    pub fn is_for_kernel(&self) -> bool {
        self.count.load(Ordering::Relaxed) < BY_KERNEL && {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.map.get().is_none()
        }
    }

    #[cold]
    fn look(&self, fds: &Descriptors, quiet: (u64, impl Fn() -> bool), end: u64) -> Option<()> {
        if self.count.fetch_add(1, Ordering::Relaxed) < BY_KERNEL {
            return None;
        }
        let size = self.see(fds, quiet)?;
        (end <= size).then_some(())
    }

    /// Maps the file, if needed; returns its size, which is trusted while the state is `quiet`.
    #[cold]
    fn see(&self, fds: &Descriptors, (quiet, still): (u64, impl Fn() -> bool)) -> Option<u64> {
        // Uninterrupted: a signal handler would wait for the mapping that it interrupted.
        let _held = Held::of_process();
        let asked = fds.with(false, |fd| Ok(cache::ask(fd, false)?)).ok()?;
        let size = asked.key.size;
        self.map.get_or_init(|| {
            let mut map = fds.with(false, |fd| Mapping::read_only(fd, Domain::PageCache, size)).ok()?;
            if asked.full {
                map.map_ahead(size, if asked.dax { Reach::PopulateRead } else { Reach::Touch });
            }
            if self.random.load(Ordering::Relaxed) {
                map.advise(0, size as usize, Advice::Random);
            }
            Some(map)
        });
        // Not after a thread that has looked later.
        let _looking = self.looking.lock();
        if still() {
            self.size.store(size, Ordering::Release);
            self.as_of.store(quiet, Ordering::Release);
        }
        Some(size)
    }

    /// Advises how a range will be read. Advice to read soon maps the file at once, instead of after some reads;
    /// advice of random reads is remembered.
    pub fn advise(
        &self,
        fds: &Descriptors,
        quiet: Option<(u64, impl Fn() -> bool)>,
        range: core::ops::Range<u64>,
        advice: Advice,
    ) {
        self.note(advice);
        let wanted = matches!(advice, Advice::Sequential | Advice::WillNeed);
        let seen = match quiet {
            Some(quiet) if wanted => self.see(fds, quiet),
            _ => None,
        };
        if let Some(map) = self.map.get().and_then(Option::as_ref) {
            let end = range.end.min(seen.unwrap_or_else(|| self.size.load(Ordering::Acquire)));
            map.advise(range.start, end.saturating_sub(range.start) as usize, advice);
        }
    }

    /// Remembers advice for a mapping that is made later.
    pub fn note(&self, advice: Advice) {
        match advice {
            Advice::Random => self.random.store(true, Ordering::Relaxed),
            Advice::Normal | Advice::Sequential => self.random.store(false, Ordering::Relaxed),
            Advice::WillNeed | Advice::DontNeed => {}
        }
    }

    /// This process has changed the file: its size has to be looked at again.
    pub fn forget_size(&self) {
        self.size.store(0, Ordering::Release);
    }
}
