//! Regions: memory over an atomic file.
//!
//! A *shared* region is a read-only map that shows what is committed, by any process. A *private* one is the
//! program's own memory, which begins as the file ([`AtomicFile::map_isolated`]): it keeps what is stored there, and
//! takes memory only for that.
//!
//! The descriptor is the library's. Its `flock` keeps a second process from a file with a private region.

use crate::error::{Error, Result};
use crate::file::shadow::may_drop_copies;
use crate::file::{Access, AtomicFile, open_latest};
use crate::journal::folder_of;
use crate::kernel::try_address_space;
use crate::posix::descriptors::table::Unlisted;
use crate::posix::raw;
use crate::posix::runtime::file_size;
use crate::region;
use crate::settings::Settings;
use crate::sys::{InternalFd, openat};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Larger than any process's address space, and than the files of most file systems.
const MAX_REGION_LEN: usize = 1 << 47;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Private,
    Shared,
}

enum Memory {
    Private(usize),
    Shared(region::Region),
}

pub(super) struct Region {
    opened: Opened,
    memory: Memory,
    len: usize,
    /// Device and inode of the folder with the pool; `None`: the pool that was named, which all regions have.
    folder: Option<(u64, u64)>,
    /// Open transactions that have written to it, and a trim.
    pub users: AtomicUsize,
    /// Bytes that transactions have copied here since copies were dropped last, and the bytes of copies left then.
    written: AtomicU64,
    kept: AtomicU64,
}

/// The file of a region, with the library's descriptor.
struct Opened {
    file: Arc<AtomicFile>,
    fd: InternalFd,
    _unlisted: Unlisted,
}

impl Opened {
    /// Opens the file, or creates it.
    fn new(path: &CStr, kind: Kind, settings: &Settings) -> Result<Self> {
        // Checked first: opening a pipe or a device may do more than that.
        if let Ok(stat) = rustix::fs::stat(path) {
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Error::with(libc::ENODEV, "not a regular file"));
            }
            if let Some(file) = AtomicFile::find(stat.st_dev, stat.st_ino) {
                let _ = file.give_up_lease(); // which would make this open wait
            }
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = open_latest(path, || openat(CWD, path, flags, Mode::from_raw_mode(0o666)))?;
        let file = AtomicFile::open(fd.as_fd(), Access::Write, path, settings)?;
        let opened = Self { file, fd, _unlisted: Unlisted::new() };
        match opened.check(kind, settings) {
            Ok(()) => Ok(opened),
            Err(error) => {
                let _ = opened.close(); // nothing was changed
                Err(error)
            }
        }
    }

    fn check(&self, kind: Kind, settings: &Settings) -> Result<()> {
        let lock = match kind {
            Kind::Private => FlockOperation::NonBlockingLockExclusive,
            Kind::Shared => FlockOperation::NonBlockingLockShared,
        };
        // Not every file system has such locks.
        if let Err(Errno::WOULDBLOCK) = rustix::fs::flock(&self.fd, lock) {
            return Err(Error::with(libc::EBUSY, "there is another region of this file, and one of them is private"));
        }
        if self.file.settings().pool != settings.pool {
            return Err(Error::with(libc::EXDEV, "the program has this file open with another pool"));
        }
        Ok(())
    }

    /// Makes the file as long as the region, durably.
    fn extend(&self, size: u64) -> Result<()> {
        file_size::read(); // a program without hooks may have changed the limit unseen
        file_size::check_size(size)?;
        // Whether the file system has such an offset: the position of this description means nothing.
        rustix::fs::seek(&self.fd, SeekFrom::Start(size)).map_err(|_| Error::new(libc::EFBIG))?;
        self.file.set_size(size)?;
        self.file.sync()
    }

    fn close(self) -> Result<()> {
        // A duplicate may stay open for a moment, for work in the background.
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
        self.file.close_ours(self.fd)
    }
}

impl Region {
    /// Opens the file, or creates it; makes it at least as long; and maps this much of it.
    pub fn new(path: &CStr, len: usize, kind: Kind, settings: &Settings) -> Result<Self> {
        if len == 0 {
            return Err(Error::with(libc::EINVAL, "a region has at least one byte"));
        }
        if len > MAX_REGION_LEN {
            return Err(Error::with(libc::EFBIG, "a region is smaller than an address space"));
        }
        // Before the file is made, or made longer.
        try_address_space(len)
            .map_err(|e| Error::with(e.raw_os_error(), "there is no address space for a region of this size"))?;
        let size = len as u64;
        let mut opened = Opened::new(path, kind, settings)?;
        if opened.file.size() < size {
            if let Err(error) = opened.extend(size) {
                let _ = opened.close(); // the first error counts
                return Err(error);
            }
            // The file then has no journal, and the kernel's file has everything: a private region needs that, and a
            // shared one takes no memory before the first commit.
            opened.close()?;
            opened = Opened::new(path, kind, settings)?;
        }
        let mapped = opened.map(size, kind).and_then(|memory| Ok((memory, opened.folder()?)));
        match mapped {
            Ok((memory, folder)) => {
                let [written, kept] = [const { AtomicU64::new(0) }; 2];
                Ok(Self { opened, memory, len, folder, users: AtomicUsize::new(0), written, kept })
            }
            Err(error) => {
                let _ = opened.close(); // the first error counts
                Err(error)
            }
        }
    }

    pub fn range(&self) -> Range<usize> {
        let start = match &self.memory {
            Memory::Private(start) => *start,
            Memory::Shared(region) => region.as_ptr().addr(),
        };
        start..start + self.len
    }

    pub fn file(&self) -> &Arc<AtomicFile> {
        &self.opened.file
    }

    pub fn is_private(&self) -> bool {
        matches!(self.memory, Memory::Private(_))
    }

    /// Whether one transaction can have both.
    pub fn has_pool_of(&self, other: &Self) -> bool {
        self.folder == other.folder
    }

    /// A transaction with this many bytes for it was committed: drops copies, if there are many.
    pub fn has_committed(&self, bytes: u64) {
        if !self.is_private() {
            return;
        }
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // What could not be dropped is not looked at again for every few bytes.
        if written >= self.kept.load(Ordering::Relaxed) && may_drop_copies(written) {
            let _ = self.trim(); // without it, the region only takes more memory
        }
    }

    /// Drops copied pages of a private region that the file has, too. Returns how many bytes were dropped. No thread
    /// stores to the region meanwhile.
    pub fn trim(&self) -> Result<u64> {
        if !self.is_private() {
            return Ok(0); // its memory is the file's
        }
        self.written.store(0, Ordering::Relaxed);
        let pages = self.len.next_multiple_of(4096);
        let start = self.range().start;
        let (dropped, kept) = self.opened.file.trim_isolated(start..start + pages)?;
        self.kept.store(kept, Ordering::Relaxed);
        Ok(dropped)
    }

    /// Unmaps the memory, and closes the file.
    pub fn close(self) -> Result<()> {
        let range = self.range();
        let unmapped = match self.memory {
            Memory::Shared(region) => region.unmap(),
            // SAFETY: our map, which the program does not use any more.
            Memory::Private(_) => match unsafe { raw!(SYS_munmap, range.start, range.end - range.start) } {
                0 => Ok(()),
                error => Err(Error::new(-error as i32)),
            },
        };
        let closed = self.opened.close();
        unmapped.and(closed)
    }

    /// Why a page of its memory cannot be used.
    pub fn fault(&self) -> Error {
        let size = rustix::fs::fstat(&self.opened.fd).map_or(0, |stat| stat.st_size as u64);
        self.opened.file.named(if size < self.len as u64 {
            Error::with(libc::EIO, "another program has made the file shorter than the region")
        } else {
            // On tmpfs, touching a hole of a file takes room.
            Error::with(libc::ENOSPC, "the file system has no room for a page of the region")
        })
    }
}

impl Opened {
    fn map(&self, size: u64, kind: Kind) -> Result<Memory> {
        if self.file.size() < size {
            return Err(Error::with(libc::EBUSY, "another program has made the file shorter again"));
        }
        match kind {
            Kind::Private => self.file.map_isolated(self.fd.as_fd(), size as usize).map(Memory::Private),
            Kind::Shared => region::Region::new(&self.file, self.fd.as_raw_fd(), 0..size, region::Purpose::Reading)
                .map(Memory::Shared),
        }
    }

    fn folder(&self) -> Result<Option<(u64, u64)>> {
        if self.file.settings().pool.is_some() {
            return Ok(None);
        }
        let (folder, _) = folder_of(self.fd.as_fd())?;
        let stat = rustix::fs::fstat(&folder)?;
        Ok(Some((stat.st_dev, stat.st_ino)))
    }
}
