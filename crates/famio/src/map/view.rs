//! A file mapped for reading, with map-ahead and the mapping cache: the API for programs.

use super::ahead::Reach;
use super::{Advice, cache, guard};
use crate::error::{Error, Result};
use crate::map::cache::mapped::Map;
use crate::sys::{InternalFd, open_again, openat};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

const PAGE: usize = 4096;

/// A file mapped into memory, in the size that it had when it was opened. Reads are copies from the map, without
/// system calls; pages are mapped before they are needed (`docs/mapping.md`). After a drop the map is kept, and the
/// next `View` of the same file gets it back with its page tables.
///
/// It is for ordinary files: of an atomic file it shows the bytes on the medium, without those in the journal.
///
/// Writes of other processes show at once. If the file is cut, reads of the missing part return an error and raise no
/// signal. While a `View` exists, and as long as its map is kept, the file counts as open: it cannot be leased, and
/// one that is open for writing cannot be executed. Kept maps are dropped when the file loses a name, and by
/// [`cache::clear`].
///
/// A forked child can read a `View` of its parent, without background threads.
///
/// ```
/// # fn main() -> Result<(), famio::Error> {
/// # let path = format!("/dev/shm/famio-view-{}", std::process::id());
/// # std::fs::write(&path, vec![7; 1 << 20]).unwrap();
/// use famio::map::View;
/// let view = View::open(&path)?;
/// let mut record = [0; 4096];
/// for at in (0..view.len()).step_by(record.len()) {
///     assert_eq!(view.read_at(&mut record, at)?, record.len());
/// }
/// drop(view); // the map stays
/// let again = View::open(&path)?; // and is here again
/// # drop(again);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct View {
    /// `None` after the drop, and for an empty file, which cannot be mapped.
    map: Option<Map>,
    key: cache::Key,
    keep: AtomicBool,
    /// The kernel was told that reads are random: the next user of the map has not said so.
    random: AtomicBool,
    /// The file had no holes.
    full: bool,
}

impl View {
    /// Maps the file at `path` for reading.
    ///
    /// # Errors
    /// Those of `open(2)` and `mmap(2)`; `EINVAL`: not a regular file; `EFBIG`: larger than the address space.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), false)
    }

    /// For tests: maps the file at `path` for reading and writing.
    ///
    /// # Errors
    /// As [`View::open`].
    #[doc(hidden)]
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), true)
    }

    fn open_as(path: &Path, writable: bool) -> Result<Self> {
        let tell = |e: Error| e.context(format_args!("mapping {}", path.display()));
        let fd = openat(CWD, path, access(writable), Mode::empty()).map_err(|e| tell(e.into()))?;
        Self::map(fd.as_fd(), Some(fd.as_fd()), writable).map_err(tell)
    }

    /// Maps an open file for reading. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// As [`View::open`]; `EACCES`: the descriptor is not open for reading.
    pub fn of(fd: impl AsFd) -> Result<Self> {
        Self::of_as(fd.as_fd(), false)
    }

    /// For tests: maps an open file for reading and writing; `fd` is open for both.
    ///
    /// # Errors
    /// As [`View::of`].
    #[doc(hidden)]
    pub fn of_writable(fd: impl AsFd) -> Result<Self> {
        Self::of_as(fd.as_fd(), true)
    }

    fn of_as(fd: BorrowedFd<'_>, writable: bool) -> Result<Self> {
        let tell = |e: Error| e.context(format_args!("mapping descriptor {}", fd.as_raw_fd()));
        // A kept map holds the open file description that it was made from; the caller's would keep the caller's
        // locks.
        Self::map(fd, None, writable).map_err(tell)
    }

    /// `own`: an open file description that nothing else uses.
    fn map(fd: BorrowedFd<'_>, own: Option<BorrowedFd<'_>>, writable: bool) -> Result<Self> {
        guard::install()?;
        let asked = cache::ask(fd, writable)?;
        if !asked.regular {
            return Err(Error::with(libc::EINVAL, "not a regular file"));
        }
        if own.is_none() {
            may_access(fd, writable)?;
        }
        let view = |map, asked: cache::Asked| {
            let (keep, random) = (AtomicBool::new(true), AtomicBool::new(false));
            Self { map, key: asked.key, keep, random, full: asked.full }
        };
        if asked.key.size == 0 {
            return Ok(view(None, asked));
        }
        if let Some(map) = cache::take(&asked) {
            return Ok(view(Some(map), asked));
        }
        let wanted = asked.linked && cache::would_keep(asked.key.size);
        // An open file description of our own; none if this process may not open the file.
        let again: Option<InternalFd> =
            if wanted && own.is_none() { open_again(fd, access(writable)).ok() } else { None };
        let lasting = own.or(again.as_ref().map(AsFd::as_fd)).filter(|fd| wanted && cache::may_keep(*fd));
        let watched = lasting.and_then(cache::Watched::new);
        // Asked again now that it is watched: earlier changes were not noticed.
        let asked = cache::ask(fd, writable)?;
        if asked.key.size == 0 {
            return Ok(view(None, asked));
        }
        let len = usize::try_from(asked.key.size).map_err(|_| Error::new(libc::EFBIG))?;
        let reach = if asked.dax { Reach::PopulateRead } else { Reach::Touch };
        let source = lasting.unwrap_or(fd);
        let mut map = match Map::new(source, len, writable, reach) {
            // Kept maps take address space, and count for `vm.max_map_count`.
            Err(Errno::NOMEM) => {
                cache::clear();
                Map::new(source, len, writable, reach)?
            }
            map => map?,
        };
        map.watched = watched.filter(|_| asked.linked);
        Ok(view(Some(map), asked))
    }

    /// The mapped size in bytes: the file's when it was opened.
    pub fn len(&self) -> u64 {
        self.key.size
    }

    /// Whether the file was empty.
    pub fn is_empty(&self) -> bool {
        self.key.size == 0
    }

    /// Copies bytes from `offset` on to `buffer`, fewer if the map ends; returns their number. Bytes that others
    /// write meanwhile arrive in either state.
    ///
    /// # Errors
    /// `EIO`: the file was cut since, or its medium is bad. The contents of `buffer` are then unspecified.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some((map, at, len)) = self.find(offset, buffer.len()) else { return Ok(0) };
        map.ahead().touch(at, len);
        // SAFETY: `at..at + len` is mapped; the buffer is the caller's alone; the guard was installed.
        unsafe { guard::copy(buffer.as_mut_ptr(), map.base().wrapping_add(at), len) }.map_err(|_| cut(at))?;
        Ok(len)
    }

    /// Copies `bytes` to the file from `offset` on, fewer if the map ends; returns their number. The kernel writes
    /// them back later; [`sync`](Self::sync) waits for that.
    ///
    /// # Errors
    /// `EBADF`: mapped for reading. `EIO`: the file was cut since, its medium is bad, or there is no room to fill a
    /// hole.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        if !self.key.writable {
            return Err(Error::with(libc::EBADF, "the view is for reading only"));
        }
        let Some((map, at, len)) = self.find(offset, bytes.len()) else { return Ok(0) };
        map.ahead().touch(at, len);
        // SAFETY: `at..at + len` is mapped for writing, and no reference to it exists; the guard was installed.
        unsafe { guard::copy(map.base().wrapping_add(at), bytes.as_ptr(), len) }.map_err(|_| cut(at))?;
        Ok(len)
    }

    /// Writes back what was written, and waits until it is on the medium (`msync`).
    ///
    /// # Errors
    /// Those of `msync(2)`, `EIO` above all.
    pub fn sync(&self) -> Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        // SAFETY: our map; no byte of it changes.
        Ok(unsafe { rustix::mm::msync(map.base().cast(), map.len(), rustix::mm::MsyncFlags::SYNC) }?)
    }

    /// Advises how `len` bytes from `offset` on will be used; 0 for all that follow. Failures are ignored.
    ///
    /// - `Sequential`: the window has its full width at once, and its first part is mapped in the background.
    /// - `WillNeed`: the range is read in and mapped in the background.
    /// - `Random`: nothing is mapped ahead any more. `Normal`: the observed accesses decide again.
    /// - `DontNeed`: the map is not kept after the drop; the page tables of the range are dropped now.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) {
        let len = if len == 0 { self.len() } else { len };
        let Some((map, at, len)) = self.find(offset, usize::try_from(len).unwrap_or(usize::MAX)) else { return };
        use rustix::mm::Advice as Kernel;
        let kernel = |range: Range<usize>, advice| {
            let (start, end) = (range.start & !(PAGE - 1), range.end.next_multiple_of(PAGE));
            // SAFETY: of a shared map of a file: no byte of it changes.
            let _ = unsafe { rustix::mm::madvise(map.base().wrapping_add(start).cast(), end - start, advice) };
        };
        match advice {
            // Sets the kernel's read-ahead at faults. For the whole map: a part would split it.
            Advice::Normal | Advice::Sequential => kernel(0..map.len(), Kernel::Normal),
            Advice::Random => {
                self.random.store(true, Relaxed);
                kernel(0..map.len(), Kernel::Random);
            }
            Advice::WillNeed => kernel(at..at + len, Kernel::WillNeed),
            Advice::DontNeed => {
                self.keep.store(false, Relaxed);
                let _ = map.ahead().advise(at, len, advice); // first, so that no thread builds them again
                return kernel(at..at + len, Kernel::LinuxDontNeed);
            }
        }
        let _ = map.ahead().advise(at, len, advice);
    }

    /// Reads in and maps `len` bytes from `offset` on; returns when that is done. Background threads help.
    pub fn prefetch(&self, offset: u64, len: u64) {
        if let Some((map, at, len)) = self.find(offset, usize::try_from(len).unwrap_or(usize::MAX)) {
            map.ahead().prefetch(at..at + len);
        }
    }

    /// Collapses the file's pages into huge pages (tmpfs, Linux 6.1) for all processes that map it, until it is cut
    /// or memory runs short. Takes as long as mapping and reading the file once, so it pays for a file that is mapped
    /// again. Returns whether it was done; not for a file with holes, which would get memory.
    pub fn gather(&self) -> bool {
        let Some(map) = &self.map else { return false };
        self.full && super::huge::gather(map.base(), map.len())
    }

    /// The part of `offset..offset + len` that is mapped, if any.
    #[inline]
    fn find(&self, offset: u64, len: usize) -> Option<(&Map, usize, usize)> {
        let map = self.map.as_ref()?;
        let at = usize::try_from(offset).ok().filter(|&at| at < map.len())?;
        Some((map, at, len.min(map.len() - at)))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.random.load(Relaxed) {
            self.advise(0, 0, Advice::Normal);
        }
        if let Some(map) = self.map.take()
            && self.keep.load(Relaxed)
        {
            cache::keep(self.key, map);
        }
    }
}

#[cold]
fn cut(at: usize) -> Error {
    Error::with(libc::EIO, format!("the mapped file was truncated below byte {at}, or its medium is bad: map it again"))
}

fn access(writable: bool) -> OFlags {
    OFlags::CLOEXEC | if writable { OFlags::RDWR } else { OFlags::RDONLY }
}

/// The permission that `mmap` would check: the map may come from the cache.
fn may_access(fd: BorrowedFd<'_>, writable: bool) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let mode = flags & OFlags::RWMODE;
    let may = !flags.contains(OFlags::PATH) && (mode == OFlags::RDWR || mode == OFlags::RDONLY && !writable);
    if may { Ok(()) } else { Err(Error::with(libc::EACCES, "the descriptor is not open for that")) }
}
