//! Reading a file that was not written yet: the kernel does it at first; a file that is read more goes through a mapping,
//! which spares the system call.

use super::home::copy_out;
use super::turn::Turns;
use super::{Descriptors, UserBuf};
use crate::map::Mapping;
use crate::pmem::Domain;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Reads that the kernel does before the file is mapped: a program that looks at a file's header needs no mapping.
const BY_KERNEL: u32 = 16;
/// Larger reads are the kernel's: it reads ahead, and one system call matters little.
const LARGE: usize = 256 << 10;

/// The mapping of a file that is only read, and the size that it was last seen with.
#[derive(Default)]
pub(super) struct PlainReads {
    count: AtomicU32,
    /// `None`: it can't be mapped.
    map: OnceLock<Option<Mapping>>,
    size: AtomicU64,
    /// The door's state with which that was so: another process may have made the file shorter since.
    as_of: AtomicU64,
    looking: Mutex<()>,
}

impl PlainReads {
    /// Reads through the mapping. `None`: the kernel has to do it, because the file is new to us, or ends near there, or
    /// was cut by somebody else, or a buffer is bad.
    ///
    /// # Safety
    /// The buffers are the caller's to be overwritten; they may be bad.
    #[inline]
    pub unsafe fn read(
        &self,
        fds: &Descriptors,
        turns: &Turns,
        quiet: u64,
        offset: u64,
        bufs: &[UserBuf],
    ) -> Option<usize> {
        let total = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.len));
        let end = offset.checked_add(total as u64)?;
        if total > LARGE {
            return None;
        }
        if self.as_of.load(Ordering::Acquire) != quiet || end > self.size.load(Ordering::Acquire) {
            // Whoever wrote more to it since: what lies there is looked at before the size is believed again.
            self.look(fds, turns, quiet, end)?;
        }
        let map = self.map.get()?.as_ref()?;
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
    fn look(&self, fds: &Descriptors, turns: &Turns, quiet: u64, end: u64) -> Option<()> {
        if self.count.fetch_add(1, Ordering::Relaxed) < BY_KERNEL {
            return None;
        }
        let size = fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_size as u64)).ok()?;
        self.map.get_or_init(|| fds.with(false, |fd| Mapping::read_only(fd, Domain::PageCache, size)).ok());
        // Not after one who has looked later.
        let _looking = self.looking.lock();
        if turns.still(quiet) {
            self.size.store(size, Ordering::Release);
            self.as_of.store(quiet, Ordering::Release);
        }
        (end <= size).then_some(())
    }

    /// The file was changed by us: its size is to be looked at again.
    pub fn forget_size(&self) {
        self.size.store(0, Ordering::Release);
    }
}
