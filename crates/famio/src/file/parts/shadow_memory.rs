//! The memory of a shadow: made or joined, resized, filled, read, and lent to maps.

use super::cow_maps::CowMaps;
use super::shadow_notes::Notes;
use super::shadow_pages::{check_size, new_memory, size_limit};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::engine::home::copy_out;
use crate::index::SharedSize;
use crate::map::ahead::Reach;
use crate::map::{Advice, Mapping};
use crate::pmem::Domain;
use crate::sys::{InternalFd, high_duplicate};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::OFlags;
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// Address space for one, at most, where the file is no larger.
const MAPPED_MAX: u64 = 64 << 30;

/// The file's bytes in memory, or what stands for them where that would take too much. As long as the file's size, to the byte:
/// beyond its last page is a SIGBUS, as in a file.
pub(in crate::file) struct Shadow {
    backing: Backing,
    size: Size,
    /// The number of its file, if processes share it.
    number: Option<u64>,
    /// It has all of the file's bytes.
    pub(in crate::file) filled: AtomicBool,
    /// Made at the first copy into a map; `None`: there is no address space for them.
    notes: OnceLock<Option<Notes>>,
}

/// Where a shadow's bytes are.
enum Backing {
    /// In memory of their own, which the program maps, and the library, too.
    Memory { memory: InternalFd, ours: Mapping },
    /// In the program's maps: copied pages over the file.
    Cow(CowMaps),
}

/// Bytes that a shadow has.
enum Size {
    Own(AtomicU64),
    Shared(SharedSize),
}

impl Shadow {
    /// An empty one of this process's own. `ENOMEM`: the file takes too much of this machine's memory.
    pub(in crate::file) fn own(size: u64, limit: u64) -> Result<Self> {
        check_size(size, limit)?;
        Self::of(new_memory(size)?, Size::Own(AtomicU64::new(size)), None, size, limit)
    }

    /// That of a file which processes share, as the size says that they share.
    pub(in crate::file) fn shared(memory: InternalFd, size: SharedSize, number: u64, limit: u64) -> Result<Self> {
        let now = size.word().load(Ordering::Acquire);
        check_size(now, limit.max(size_limit()))?; // who made it may have another limit
        Self::of(memory, Size::Shared(size), Some(number), now, limit)
    }

    fn of(memory: InternalFd, size: Size, number: Option<u64>, now: u64, limit: u64) -> Result<Self> {
        // It stays where it is: as far as it may grow.
        let most = usize::try_from(limit.max(now).min(MAPPED_MAX.max(now))).unwrap_or(usize::MAX);
        let mut ours = Mapping::reserve(memory.as_fd(), Domain::Process, now, true, most)?;
        ours.map_ahead(now, Reach::Touch);
        Ok(Self::with(Backing::Memory { memory, ours }, size, number))
    }

    fn with(backing: Backing, size: Size, number: Option<u64>) -> Self {
        Self { backing, size, number, filled: AtomicBool::new(false), notes: OnceLock::new() }
    }

    /// One without memory of its own: the program's maps are private ones of the file.
    ///
    /// # Errors
    /// The kernel can't say which pages of them were copied.
    pub(in crate::file) fn cow(size: u64) -> Result<Self> {
        Ok(Self::with(Backing::Cow(CowMaps::new()?), Size::Own(AtomicU64::new(size)), None))
    }

    /// What is known of the program's maps, if they are private ones of the file.
    #[inline]
    pub(in crate::file) fn cow_maps(&self) -> Option<&CowMaps> {
        match &self.backing {
            Backing::Cow(maps) => Some(maps),
            Backing::Memory { .. } => None,
        }
    }

    fn ours(&self) -> Option<&Mapping> {
        match &self.backing {
            Backing::Memory { ours, .. } => Some(ours),
            Backing::Cow(_) => None,
        }
    }

    /// The number of its file, if it was made to be shared.
    pub(in crate::file) fn number(&self) -> Option<u64> {
        self.number
    }

    #[inline]
    fn size_word(&self) -> &AtomicU64 {
        match &self.size {
            Size::Own(size) => size,
            Size::Shared(size) => size.word(),
        }
    }

    /// What copies into its maps have noted, if there are any.
    #[inline]
    pub(in crate::file) fn notes(&self) -> Option<&Notes> {
        self.notes.get()?.as_ref()
    }

    /// The same, for a copy. None where the library has no map of its own to copy by.
    #[inline]
    pub(in crate::file) fn notes_for_copy(&self) -> Option<&Notes> {
        if self.notes.get().is_none() {
            let _held = crate::thread::Held::of_process(); // in one piece: a handler in the middle would wait for it
            self.notes.get_or_init(|| Notes::new(self.ours()?.reserved() as u64).ok());
        }
        self.notes()
    }

    /// The memory, if its descriptor is still ours: the program may have closed what it did not open.
    pub(in crate::file) fn memory(&self) -> Result<&InternalFd> {
        let Backing::Memory { memory, .. } = &self.backing else { return Err(Error::new(libc::ENXIO)) };
        memory.get().map_err(|e| e.context("the shadow of a mapped file"))?;
        Ok(memory)
    }

    pub(in crate::file) fn size(&self) -> u64 {
        self.size_word().load(Ordering::Acquire)
    }

    /// Where its bytes lie, below its size.
    pub(in crate::file) fn at(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.ours().and_then(|ours| ours.ptr(offset, len)).ok_or(Error::new(libc::EFBIG))
    }

    /// Bytes at `offset` are about to be read or written through our map: what follows is mapped ahead, if that is done in order.
    #[inline]
    pub(in crate::file) fn touch(&self, offset: u64, len: usize) {
        if let Some(ours) = self.ours() {
            ours.touch(offset, len, || self.size());
        }
    }

    /// Says how a range will be used through our map.
    pub(in crate::file) fn advise(&self, range: Range<u64>, advice: Advice) {
        let end = range.end.min(self.size());
        if let Some(ours) = self.ours() {
            ours.advise(range.start, end.saturating_sub(range.start) as usize, advice);
        }
    }

    /// The file's end moves, and nothing else: the caller has laid the maps out for it.
    pub(in crate::file) fn set_size(&self, size: u64) {
        self.size_word().store(size, Ordering::Release);
    }

    /// The file has another size. What the program stored behind its end shows as zeros when it grows.
    pub(in crate::file) fn resize(&self, size: u64) -> Result<()> {
        let old = self.size();
        if size > old {
            // Cut to the byte first: that zeroes the rest of the last page.
            rustix::fs::ftruncate(self.memory()?, old)?;
        }
        if size < old {
            // First: who reads meanwhile finds the bytes that stay, and an end where it is.
            self.size_word().store(size, Ordering::Release);
        }
        if size != old {
            rustix::fs::ftruncate(self.memory()?, size)?;
            self.size_word().store(size, Ordering::Release);
        }
        Ok(())
    }

    /// Reads into the caller's buffers. `lock`: keeps others from changing it.
    ///
    /// # Safety
    /// As [`AtomicFile::read`].
    pub(in crate::file) unsafe fn read<L>(&self, lock: impl Fn() -> L, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        let (mut done, mut unchanging) = (0, None);
        for buf in bufs {
            self.touch(offset + done as u64, buf.len);
            loop {
                let len = (self.size().saturating_sub(offset + done as u64)).min(buf.len as u64) as usize;
                if len == 0 {
                    break;
                }
                let from = self.at(offset + done as u64, len)?;
                // SAFETY: the source is our mapping; the caller's promise for the rest.
                match unsafe { copy_out(buf.base, from, len) } {
                    Ok(()) => done += len,
                    // Cut meanwhile: once more, with nobody else at it.
                    Err(e) if e.errno() == libc::EIO && unchanging.is_none() => {
                        unchanging = Some(lock());
                        continue;
                    }
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => return Ok(done),
                }
                break;
            }
        }
        Ok(done)
    }

    /// A descriptor of the memory, as the map that is made of it may be used.
    pub(in crate::file) fn descriptor(&self, writable: bool) -> Result<InternalFd> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        match self.memory()?.open_again(access) {
            Ok(fd) => Ok(fd),
            // Without /proc: the kernel then does not refuse a later mprotect(PROT_WRITE) of a map that may not have it.
            Err(_) => Ok(high_duplicate(self.memory()?.as_fd())?),
        }
    }
}
