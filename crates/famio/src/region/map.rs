//! A region as an owned value.

use super::advise::advise;
use crate::error::{Error, Result};
use crate::file::shadow::{self, Bytes, MapRequest, Mapped};
use crate::file::{AtomicFile, UserBuf};
use crate::map::Advice;
use crate::sys::syscall;
use core::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

const PAGE: u64 = 4096;

/// A part of an atomic file, mapped to memory.
///
/// Made by [`AtomicFile::map`](crate::AtomicFile::map). What is [written](Self::write) to it, or stored through
/// [`as_ptr`](Self::as_ptr), belongs to the file's open epoch, like writes to the file: the next
/// [`sync`](crate::AtomicFile::sync), of the file or [of the region](Self::sync), makes all of it durable as a whole.
///
/// A region may extend beyond the end of the file; that part can be used after the file has grown. It keeps the file
/// open: its stores are committed, at the latest, when it is dropped and the file is closed. Any thread may use it.
///
/// ```
/// # fn main() -> Result<(), famio::Error> {
/// # let path = format!("/dev/shm/famio-doc-region-{}", std::process::id());
/// let file = famio::AtomicFile::options().create(true).open(&path)?;
/// file.set_len(1 << 20)?;
/// let region = file.map(0..1 << 20)?;
/// region.write_at(b"all of it", 4096)?;
/// file.write_at(b"or nothing", 8192)?;
/// region.sync()?; // both, as a whole
///
/// let mut back = [0; 10];
/// region.read_at(&mut back, 8192)?;
/// assert_eq!(&back, b"or nothing");
/// drop(region);
/// file.close()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Region {
    file: Arc<AtomicFile>,
    /// Null after `unmap`.
    base: *mut u8,
    /// Length that was asked for.
    len: usize,
    /// Its offset in the file.
    offset: u64,
    purpose: Purpose,
}

/// What a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// No changes.
    Reading,
    /// Stores through pointers, copies, transactions.
    Stores,
    /// Copies and transactions.
    Copies,
}

// SAFETY: an address range that only this value unmaps. It is read and written by raw copies, which other threads may
// make at the same time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `range` of the file; `fd` is a descriptor of it.
    pub(crate) fn new(file: &Arc<AtomicFile>, fd: RawFd, range: Range<u64>, purpose: Purpose) -> Result<Self> {
        let named = |errno, what: &str| Err(Error::with(errno, format!("{}: {what}", file.path().to_string_lossy())));
        if !range.start.is_multiple_of(PAGE) {
            return named(libc::EINVAL, "a region begins at a multiple of 4096 bytes");
        }
        if range.start >= range.end || range.end > i64::MAX as u64 {
            return named(libc::EINVAL, "a region has at least one byte, and ends where files may");
        }
        let protection = libc::PROT_READ | if purpose == Purpose::Stores { libc::PROT_WRITE } else { 0 };
        let len = (range.end - range.start) as usize;
        let offset = range.start;
        let request = MapRequest {
            addr: 0,
            length: len,
            prot: protection,
            flags: libc::MAP_SHARED,
            fd,
            offset: offset as i64,
            may_store: purpose != Purpose::Reading,
            copies: purpose == Purpose::Copies,
        };
        match shadow::map(file, &request)? {
            Mapped::At(base) => Ok(Self { file: file.clone(), base: base as *mut u8, len, offset, purpose }),
            Mapped::Demote => Err(shadow::too_large(file)),
        }
    }

    /// For tests of the layer below.
    #[doc(hidden)]
    pub fn of(file: &Arc<AtomicFile>, fd: BorrowedFd<'_>, range: Range<u64>, writable: bool) -> Result<Self> {
        Self::new(file, fd.as_raw_fd(), range, if writable { Purpose::Stores } else { Purpose::Reading })
    }

    /// Length in bytes, including any part beyond the end of the file.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its offset in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn check(&self, at: usize, len: usize) -> Result<()> {
        if at.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let path = self.file.path().to_string_lossy();
        let what = format!("{path}: {len} bytes at {at} do not lie in a region of {} bytes", self.len);
        Err(Error::with(libc::EINVAL, what))
    }

    fn beyond(&self, at: usize, len: usize) -> Error {
        let (path, size) = (self.file.path().to_string_lossy(), self.file.size());
        let start = self.offset + at as u64;
        let what = format!("{path}: {len} bytes at {start} lie beyond the end of the file, which has {size} bytes");
        Error::with(libc::ENXIO, what)
    }

    /// Copies bytes at offset `at` of the region to `bytes`; the arguments have the order of
    /// [`AtomicFile::read_at`](crate::AtomicFile::read_at).
    ///
    /// # Errors
    /// `EINVAL`: not in the region. `ENXIO`: a part lies beyond the end of the file. `EIO`, `EBUSY`: as
    /// [`AtomicFile::read_at`](crate::AtomicFile::read_at).
    pub fn read_at(&self, bytes: &mut [u8], at: usize) -> Result<()> {
        self.read(at, bytes)
    }

    /// Copies `bytes` to offset `at` of the region; part of the open epoch. The arguments have the order of
    /// [`AtomicFile::write_at`](crate::AtomicFile::write_at).
    ///
    /// # Errors
    /// `EINVAL`: not in the region. `EACCES`: the region is for reading. `ENXIO`: a part lies beyond the end of the
    /// file, which must be extended first. `ENOMEM`: the machine is out of memory; a part may have been copied.
    pub fn write_at(&self, bytes: &[u8], at: usize) -> Result<()> {
        self.write(at, bytes)
    }

    /// As [`read_at`](Self::read_at), with the arguments in the other order.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    #[doc(hidden)]
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        let mut done = 0;
        while done < bytes.len() {
            let offset = self.offset + (at + done) as u64;
            // SAFETY: the caller's buffer, which is borrowed.
            match unsafe { self.file.read(offset, &[UserBuf::of(&mut bytes[done..])]) }
                .map_err(|e| self.file.named(e))?
            {
                0 => return Err(self.beyond(at, bytes.len())),
                n => done += n,
            }
        }
        Ok(())
    }

    /// As [`write_at`](Self::write_at), with the arguments in the other order.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    #[doc(hidden)]
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        if self.purpose == Purpose::Reading {
            let path = self.file.path().to_string_lossy();
            return Err(Error::with(libc::EACCES, format!("{path}: the region is for reading")));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (offset, from) = (self.offset + at as u64, Bytes::From(bytes.as_ptr()));
        // SAFETY: within the map, and from a slice.
        let stored = unsafe {
            let (at, copies) = (self.base.wrapping_add(at), self.purpose == Purpose::Copies);
            self.file.store(offset, at, from, bytes.len(), copies)
        };
        stored.map_err(|e| if e.errno() == libc::ENXIO { self.beyond(at, bytes.len()) } else { self.file.named(e) })
    }

    /// The address of its first byte, for use by pointers. Stores through it belong to the epoch, as those by
    /// [`write`](Self::write); a store during a SYNC may be committed by that SYNC or by the next.
    ///
    /// Calling this is safe; using the pointer is not: an access beyond the end of the file is a SIGBUS, a store to a
    /// region [for copies](crate::AtomicFile::map_for_copies) or for reading a SIGSEGV, and other threads may store at
    /// the same address. The pointer is valid until the region is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Its bytes.
    ///
    /// # Safety
    /// While the slice lives, its bytes must not change: not through a region or a map of the file, nor by writes to
    /// the file, in this or another process; and the file must not end inside it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped, and the caller's promise for what is there.
        unsafe { core::slice::from_raw_parts(self.base, self.len) }
    }

    /// SYNC of the whole file, as [`AtomicFile::sync`](crate::AtomicFile::sync).
    ///
    /// # Errors
    /// As [`AtomicFile::sync`](crate::AtomicFile::sync).
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.file.named(e))
    }

    /// Tells how `range` of the region, in whole pages, will be used. See [`advise`].
    ///
    /// # Errors
    /// `EINVAL`: not in the region. Those of [`advise`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.check(range.start, len)?;
        if len == 0 {
            return Ok(());
        }
        let start = range.start / PAGE as usize * PAGE as usize;
        advise(self.base as usize + start, range.end - start, advice)
    }

    /// Drops the map. Its stores are committed by the next SYNC of the file, or when the file is closed.
    ///
    /// # Errors
    /// If this was the last value that kept the file open: those of its last commit.
    pub fn unmap(mut self) -> Result<()> {
        self.give_up()
    }

    fn give_up(&mut self) -> Result<()> {
        let base = core::mem::replace(&mut self.base, core::ptr::null_mut()) as usize;
        if base == 0 {
            return Ok(());
        }
        // SAFETY: a map of ours, which is not used any more.
        let kernel = || unsafe { syscall(libc::SYS_munmap, [base, self.len, 0, 0, 0, 0]) };
        shadow::discard_telling(base, self.len, kernel).1
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            crate::sys::notice(&self.file.named(error).to_string());
        }
    }
}
