//! The memory of a shadow: made or joined, resized, filled, read, and passed to maps.

use super::cow_maps::CowMaps;
use super::shadow_notes::Notes;
use super::shadow_pages::{PIECE, check_size, new_memory, next_data};
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::base::bits::GRANULE;
use crate::file::engine::home::{copy_in, copy_out};
use crate::index::SharedSize;
use crate::map::ahead::Reach;
use crate::map::guard;
use crate::map::{Advice, GrowingMapping, Mapping};
use crate::pmem::Domain;
use crate::sys::internal::InUse;
use crate::sys::{InternalFd, high_duplicate, write_at};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::OFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

/// Words with a bit for each granule of a piece.
pub(in crate::file) const WORDS: usize = PIECE / GRANULE / 64;

/// The most address space for one, unless the file is larger.
const MAPPED_MAX: u64 = 64 << 30;

/// The file's bytes in memory, or their substitute if that would take too much. It has exactly the file's size: an
/// access beyond its last page is a SIGBUS, as in a file.
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
    /// In memory of their own, which both the program and the library map.
    Memory { memory: InternalFd, ours: GrowingMapping },
    /// In the program's maps: copied pages over the file.
    Cow(CowMaps),
}

/// A map of `size` bytes of memory and more: `reserved`, or twice the size.
fn map_memory(memory: BorrowedFd<'_>, size: u64, reserved: usize) -> Result<Mapping> {
    let mut map = Mapping::reserve(memory, Domain::Process, size, true, reserved)?;
    map.map_ahead(size, Reach::Touch);
    Ok(map)
}

/// The size of a shadow in bytes.
enum Size {
    Own(AtomicU64),
    Shared(SharedSize),
}

impl Shadow {
    /// An empty shadow of this process alone. `ENOMEM`: the file takes too much of this machine's memory.
    pub(in crate::file) fn own(size: u64, limit: u64) -> Result<Self> {
        check_size(size, limit)?;
        Self::of(new_memory(size)?, Size::Own(AtomicU64::new(size)), None, size, limit)
    }

    /// A shared shadow, of the size on the control page.
    pub(in crate::file) fn shared(memory: InternalFd, size: SharedSize, number: u64, limit: u64) -> Result<Self> {
        let now = size.word().load(Ordering::Acquire);
        Self::of(memory, Size::Shared(size), Some(number), now, limit)
    }

    fn of(memory: InternalFd, size: Size, number: Option<u64>, now: u64, limit: u64) -> Result<Self> {
        // As much as it is likely to grow to.
        let most = usize::try_from(limit.max(now).min(MAPPED_MAX.max(now))).unwrap_or(usize::MAX);
        let ours = GrowingMapping::new(map_memory(memory.as_fd(), now, most)?);
        Ok(Self::with(Backing::Memory { memory, ours }, size, number))
    }

    fn with(backing: Backing, size: Size, number: Option<u64>) -> Self {
        Self { backing, size, number, filled: AtomicBool::new(false), notes: OnceLock::new() }
    }

    /// A shadow without memory of its own: the program's maps are private maps of the file.
    ///
    /// # Errors
    /// The kernel cannot say which of their pages were copied.
    pub(in crate::file) fn cow(size: u64) -> Result<Self> {
        Ok(Self::with(Backing::Cow(CowMaps::new()?), Size::Own(AtomicU64::new(size)), None))
    }

    /// The program's maps, if they are private maps of the file.
    #[inline]
    pub(in crate::file) fn cow_maps(&self) -> Option<&CowMaps> {
        match &self.backing {
            Backing::Cow(maps) => Some(maps),
            Backing::Memory { .. } => None,
        }
    }

    #[inline]
    fn ours(&self) -> Option<&Mapping> {
        match &self.backing {
            Backing::Memory { ours, .. } => Some(ours.current()),
            Backing::Cow(_) => None,
        }
    }

    /// Our map, which reaches `end`.
    #[cold]
    fn ours_to(&self, end: u64) -> Result<&Mapping> {
        let Backing::Memory { memory, ours } = &self.backing else { return Err(Error::new(libc::EFBIG)) };
        ours.reach(end, || memory.run(|memory| map_memory(memory.as_fd(), end, 0)))
    }

    #[cold]
    fn at_beyond(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.ours_to(offset.saturating_add(len as u64))?.ptr(offset, len).ok_or(Error::new(libc::EFBIG))
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

    /// The notes of copies into its maps, if there are any.
    #[inline]
    pub(in crate::file) fn notes(&self) -> Option<&Notes> {
        self.notes.get()?.as_ref()
    }

    /// As [`notes`](Self::notes), for a copy. `None` if the library has no map of its own to copy by.
    #[inline]
    pub(in crate::file) fn notes_for_copy(&self) -> Option<&Notes> {
        if self.notes.get().is_none() {
            let _held = crate::thread::Held::of_process(); // uninterrupted: a signal handler would wait for it
            self.notes.get_or_init(|| Notes::new(self.ours()?.reserved() as u64).ok());
        }
        self.notes()
    }

    /// The memory's descriptor, confirmed: the program may have closed it.
    pub(in crate::file) fn memory(&self) -> Result<&InternalFd> {
        let Backing::Memory { memory, .. } = &self.backing else { return Err(Error::new(libc::ENXIO)) };
        memory.get().map_err(|e| e.context("the shadow of a mapped file"))?;
        Ok(memory)
    }

    pub(in crate::file) fn size(&self) -> u64 {
        self.size_word().load(Ordering::Acquire)
    }

    /// The address of its bytes below its size.
    #[inline]
    pub(in crate::file) fn at(&self, offset: u64, len: usize) -> Result<*mut u8> {
        if let Backing::Memory { ours, .. } = &self.backing
            && let Some(at) = ours.ptr(offset, len)
        {
            return Ok(at);
        }
        self.at_beyond(offset, len)
    }

    /// As [`at`](Self::at), for `len` bytes at each of two offsets, which overlap as they do in the file.
    #[inline(never)]
    pub(in crate::file) fn at_both(&self, offsets: [u64; 2], len: usize) -> Result<[*mut u8; 2]> {
        let [first, second] = offsets;
        let ours = self.ours_to(first.max(second).saturating_add(len as u64))?;
        match (ours.ptr(first, len), ours.ptr(second, len)) {
            (Some(first), Some(second)) => Ok([first, second]),
            _ => Err(Error::new(libc::EFBIG)),
        }
    }

    /// Bytes at `offset` are about to be read or written through our map: sequential accesses are mapped ahead.
    #[inline]
    pub(in crate::file) fn touch(&self, offset: u64, len: usize) {
        if let Some(ours) = self.ours() {
            ours.touch(offset, len, || self.size());
        }
    }

    /// Advises how a range will be used through our map.
    pub(in crate::file) fn advise(&self, range: Range<u64>, advice: Advice) {
        let end = range.end.min(self.size());
        if let Some(ours) = self.ours() {
            ours.advise(range.start, end.saturating_sub(range.start) as usize, advice);
        }
    }

    /// Moves only the end: the caller has laid out the maps for it.
    pub(in crate::file) fn set_size(&self, size: u64) {
        self.size_word().store(size, Ordering::Release);
    }

    /// Sets the file's new size. When it grows, bytes that the program stored beyond the old end show as zeros.
    pub(in crate::file) fn resize(&self, size: u64) -> Result<()> {
        let old = self.size();
        if size > old {
            // Cut to the exact size first, which zeroes the rest of the last page.
            self.set_length(old)?;
        }
        if size < old {
            // First, so that concurrent readers find the new end, and bytes up to it.
            self.set_size(size);
        }
        if size != old {
            self.set_length(size)?;
            self.set_size(size);
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        Ok(rustix::fs::ftruncate(self.confirmed()?, length)?)
    }

    /// The memory's descriptor, for a call or two: each is confirmed once.
    fn confirmed(&self) -> Result<InUse<'_>> {
        let Backing::Memory { memory, .. } = &self.backing else { return Err(Error::new(libc::ENXIO)) };
        memory.get().map_err(|e| e.context("the shadow of a mapped file"))
    }

    /// The first offset from `at` on at which something was stored; `None`: nothing was.
    pub(in crate::file) fn next_data(&self, at: u64) -> Result<Option<u64>> {
        next_data(self.confirmed()?, at)
    }

    /// A bit for each granule that differs from `bytes`, at most a [`PIECE`], which lie below its size. The program may be
    /// storing there.
    ///
    /// # Errors
    /// `ENOSPC`: there is no memory for a page to which nothing was stored.
    pub(in crate::file) fn differing(&self, at: u64, bytes: &[u8]) -> Result<[u64; WORDS]> {
        let (base, all) = (self.at(at, bytes.len())?.cast_const(), bytes.as_ptr());
        // SAFETY: below the shadow's size, which cannot change under its lock and, if it is shared, with ownership; as raw
        // memory, compared by libc.
        let is_same = |at: usize, len: usize| unsafe {
            libc::memcmp(base.wrapping_add(at).cast(), all.wrapping_add(at).cast(), len) == 0
        };
        let compare = || {
            let mut bits = [0; WORDS];
            // Most pieces are the same.
            if !is_same(0, bytes.len()) {
                for (index, start) in (0..bytes.len()).step_by(GRANULE).enumerate() {
                    let differs = !is_same(start, GRANULE.min(bytes.len() - start));
                    bits[index / 64 % WORDS] |= u64::from(differs) << (index % 64);
                }
            }
            bits
        };
        // SAFETY: it only compares and sets bits of its own.
        let compared = unsafe { guard::run_on(base, bytes.len(), compare) };
        compared.map_err(|_| Error::with(libc::ENOSPC, "there is no memory left to compare its map with the file"))
    }

    /// Stores bytes of the file that lie below its size. By our map, without a system call.
    pub(in crate::file) fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if let Ok(to) = self.at(at, bytes.len()) {
            // SAFETY: `to` is in our mapping; guarded, since there may be no memory left for its page.
            if unsafe { copy_in(to, bytes.as_ptr(), bytes.len()) }.is_ok() {
                return Ok(());
            }
        }
        // The kernel says what is wrong.
        write_at(self.confirmed()?, at, bytes)
    }

    /// Stores bytes that make the file longer, from its end on or from before it: one system call makes room for them
    /// and stores them. What the program stored beyond the end is overwritten, or still beyond it.
    pub(in crate::file) fn put_at_end(&self, at: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(at <= self.size());
        write_at(self.confirmed()?, at, bytes)?;
        self.set_size(self.size().max(at + bytes.len() as u64));
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
                    // Cut meanwhile: again, with no other thread at it.
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

    /// A descriptor of the memory for a map; `writable`: the map may become writable.
    pub(in crate::file) fn descriptor(&self, writable: bool) -> Result<InternalFd> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        match self.memory()?.open_again(access) {
            Ok(fd) => Ok(fd),
            // Without /proc: then the kernel does not refuse a later mprotect(PROT_WRITE) of a read-only map.
            Err(_) => Ok(high_duplicate(self.memory()?.as_fd())?),
        }
    }
}
