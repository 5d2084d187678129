//! A file, mapped to be read: what a program gets of map-ahead and the mapping cache.

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

/// A file mapped into memory, as long as it was when it was opened. Reads are copies from the map, without system calls; pages
/// are mapped before they are needed (`docs/mapping.md`). Dropping it keeps the map, and the next `View` of the same file
/// gets it back with its page tables.
///
/// It is for ordinary files: of an atomic file it shows the bytes on the medium, without what the journal holds.
///
/// What others write to the file shows at once. A file that somebody cuts gives an error, and no signal, where it has no
/// bytes any more. While there is a `View`, and as long as its map is kept, the file counts as open: it can't be leased, and one
/// opened for writing can't be executed. Kept maps go when the file loses a name, or on [`cache::clear`].
///
/// In a forked child a `View` of the parent's can be read, without background threads.
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
    /// `None` for an empty file, which can't be mapped, and once it was dropped.
    map: Option<Map>,
    key: cache::Key,
    keep: AtomicBool,
    /// The kernel was told that it is read at random: the next who gets the map has not said so.
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

    /// Maps the file at `path` for reading and writing.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path.as_ref(), true)
    }

    fn open_as(path: &Path, writable: bool) -> Result<Self> {
        let tell = |e: Error| e.context(format_args!("mapping {}", path.display()));
        let fd = openat(CWD, path, access(writable), Mode::empty()).map_err(|e| tell(e.into()))?;
        Self::map(fd.as_fd(), Some(fd.as_fd()), writable).map_err(tell)
    }

    /// Maps an open file for reading. The descriptor may be closed then.
    ///
    /// # Errors
    /// As [`View::open`]; `EACCES`: the descriptor is not open for reading.
    pub fn of(fd: impl AsFd) -> Result<Self> {
        Self::of_as(fd.as_fd(), false)
    }

    /// Maps an open file for reading and writing; `fd` is open for both.
    ///
    /// # Errors
    /// As [`View::of`].
    pub fn of_writable(fd: impl AsFd) -> Result<Self> {
        Self::of_as(fd.as_fd(), true)
    }

    fn of_as(fd: BorrowedFd<'_>, writable: bool) -> Result<Self> {
        let tell = |e: Error| e.context(format_args!("mapping descriptor {}", fd.as_raw_fd()));
        // A map that is kept holds what it was made from, and with the caller's open file description that one's locks.
        Self::map(fd, None, writable).map_err(tell)
    }

    /// `own`: an open file description that nobody else has.
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
        // An open file description of our own; none where this process may not open the file.
        let again: Option<InternalFd> =
            if wanted && own.is_none() { open_again(fd, access(writable)).ok() } else { None };
        let lasting = own.or(again.as_ref().map(AsFd::as_fd)).filter(|fd| wanted && cache::may_keep(*fd));
        let watched = lasting.and_then(cache::Watched::new);
        // Asked again, now that it is watched: what came between was not heard.
        let asked = cache::ask(fd, writable)?;
        if asked.key.size == 0 {
            return Ok(view(None, asked));
        }
        let len = usize::try_from(asked.key.size).map_err(|_| Error::new(libc::EFBIG))?;
        let reach = if asked.dax { Reach::PopulateRead } else { Reach::Touch };
        let source = lasting.unwrap_or(fd);
        let mut map = match Map::new(source, len, writable, reach) {
            // Kept maps take address space, and places of `vm.max_map_count`.
            Err(Errno::NOMEM) => {
                cache::clear();
                Map::new(source, len, writable, reach)?
            }
            map => map?,
        };
        map.watched = watched.filter(|_| asked.linked);
        Ok(view(Some(map), asked))
    }

    /// The file's size when it was opened, in bytes: what is mapped.
    pub fn len(&self) -> u64 {
        self.key.size
    }

    /// Whether the file was empty.
    pub fn is_empty(&self) -> bool {
        self.key.size == 0
    }

    /// Copies bytes from `offset` on to `buffer`; fewer where the map ends. Bytes that others write meanwhile arrive in either
    /// state.
    ///
    /// # Errors
    /// `EIO`: the file was cut since, or its medium is bad. What of `buffer` is filled then is not said.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some((map, at, len)) = self.find(offset, buffer.len()) else { return Ok(0) };
        map.ahead().touch(at, len);
        // SAFETY: `at..at + len` is mapped; the buffer is the caller's alone; the guard was installed.
        unsafe { guard::copy(buffer.as_mut_ptr(), map.base().wrapping_add(at), len) }.map_err(|_| cut(at))?;
        Ok(len)
    }

    /// Copies `bytes` to the file from `offset` on; fewer where the map ends. The kernel writes them back as any others.
    ///
    /// # Errors
    /// `EBADF`: mapped for reading. `EIO`: the file was cut since, its medium is bad, or there is no room for a hole.
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

    /// Writes back what was written, and waits until the medium has it (`msync`).
    ///
    /// # Errors
    /// The kernel's: `EIO` above all.
    pub fn sync(&self) -> Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        // SAFETY: our map; no byte of it changes.
        Ok(unsafe { rustix::mm::msync(map.base().cast(), map.len(), rustix::mm::MsyncFlags::SYNC) }?)
    }

    /// Says how `len` bytes from `offset` on will be used; of the map, or 0 for all that follows. Never an error: advice.
    ///
    /// - `Sequential`: the window is at its widest at once, and the first of it is mapped in the background.
    /// - `WillNeed`: the range is read in and mapped in the background.
    /// - `Random`: nothing is mapped ahead any more. `Normal`: what is seen decides again.
    /// - `DontNeed`: the map is not kept when it is dropped; what the range had of page tables goes now.
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
            // How far it reads ahead of a fault, where pages are not in memory. The whole map: a part would split it.
            Advice::Normal | Advice::Sequential => kernel(0..map.len(), Kernel::Normal),
            Advice::Random => {
                self.random.store(true, Relaxed);
                kernel(0..map.len(), Kernel::Random);
            }
            Advice::WillNeed => kernel(at..at + len, Kernel::WillNeed),
            Advice::DontNeed => {
                self.keep.store(false, Relaxed);
                let _ = map.ahead().advise(at, len, advice); // first: nobody builds again what goes
                return kernel(at..at + len, Kernel::LinuxDontNeed);
            }
        }
        let _ = map.ahead().advise(at, len, advice);
    }

    /// Reads in and maps `len` bytes from `offset` on, and returns when that is done. Background threads help.
    pub fn prefetch(&self, offset: u64, len: u64) {
        if let Some((map, at, len)) = self.find(offset, usize::try_from(len).unwrap_or(usize::MAX)) {
            map.ahead().prefetch(at..at + len);
        }
    }

    /// Puts the file's pages into huge pages (tmpfs, Linux 6.1), for all who map it, until it is cut or memory runs short. It
    /// takes as long as to map and read the file, once: worth while for one that is mapped again. Whether it was done; a file
    /// with holes is left alone, since they would take memory.
    pub fn gather(&self) -> bool {
        let Some(map) = &self.map else { return false };
        self.full && super::huge::gather(map.base(), map.len())
    }

    /// What of `offset..offset + len` is mapped, if anything.
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
    Error::with(libc::EIO, format!("the mapped file was cut below byte {at}, or its medium is bad: map it again"))
}

fn access(writable: bool) -> OFlags {
    OFlags::CLOEXEC | if writable { OFlags::RDWR } else { OFlags::RDONLY }
}

/// What `mmap` would ask: the map may come from the cache.
fn may_access(fd: BorrowedFd<'_>, writable: bool) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let mode = flags & OFlags::RWMODE;
    let may = !flags.contains(OFlags::PATH) && (mode == OFlags::RDWR || mode == OFlags::RDONLY && !writable);
    if may { Ok(()) } else { Err(Error::with(libc::EACCES, "the descriptor is not open for that")) }
}
