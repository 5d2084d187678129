//! The memory of a shadow: made, resized, filled, read, and lent to maps.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::bits::GRANULE;
use crate::file::home::copy_out;
use crate::map::Mapping;
use crate::pmem::Domain;
use crate::sys::{high_duplicate, identity, syscall};
use crate::thread::{Guard, Mutex, current};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub(super) const PAGE: usize = 4096;
/// Bytes that are read, compared or copied at a time.
pub(super) const PIECE: usize = 64 << 10;

/// The file's bytes in memory. As long as the file's size, to the byte: beyond its last page is a SIGBUS, as in a file.
pub(in crate::file) struct Shadow {
    memory: OwnedFd,
    identity: (u64, u64),
    ours: Mapping,
    size: AtomicU64,
    /// See [`Changing`].
    changing: Mutex<()>,
    /// It has all of the file's bytes.
    pub(super) filled: AtomicBool,
}

/// Held while bytes of the file and the shadow change, or are compared: this thread may change the file meanwhile.
pub(super) struct Changing<'a> {
    _told: Told,
    _lock: Guard<'a, ()>,
}

/// This thread does what is to be done at a change: it may change the file meanwhile.
pub(in crate::file) struct Told(());

/// See [`Told`].
pub(in crate::file) fn told() -> Told {
    let count = &current().with_shadow;
    count.set(count.get() + 1);
    Told(())
}

impl Drop for Told {
    fn drop(&mut self) {
        let count = &current().with_shadow;
        count.set(count.get() - 1);
    }
}

impl Shadow {
    /// An empty one. `ENOMEM`: the file takes too much of this machine's memory.
    pub(super) fn new(size: u64) -> Result<Self> {
        check_size(size)?;
        let memory = new_memory(size)?;
        let ours = Mapping::read_write(memory.as_fd(), Domain::Process, size)?;
        Ok(Self {
            identity: identity(memory.as_fd())?,
            memory,
            ours,
            size: AtomicU64::new(size),
            changing: Mutex::default(),
            filled: AtomicBool::new(false),
        })
    }

    pub(super) fn lock(&self) -> Changing<'_> {
        let lock = self.changing.lock();
        Changing { _told: told(), _lock: lock }
    }

    /// The memory, if its descriptor is still ours: the program may have closed what it did not open.
    pub(super) fn memory(&self) -> Result<&OwnedFd> {
        if identity(self.memory.as_fd()).ok() == Some(self.identity) {
            return Ok(&self.memory);
        }
        Err(Error::with(libc::EBADF, "the descriptor of a mapped file's shadow was closed by the program"))
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Where its bytes lie, below its size.
    pub(super) fn at(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.ours.ptr(offset, len).ok_or(Error::new(libc::EFBIG))
    }

    /// The file has another size. What the program stored behind its end shows as zeros when it grows.
    pub(super) fn resize(&self, size: u64) -> Result<()> {
        let old = self.size();
        if size > old {
            // Cut to the byte first: that zeroes the rest of the last page.
            rustix::fs::ftruncate(self.memory()?, old)?;
        }
        if size < old {
            // First: who reads meanwhile finds the bytes that stay, and an end where it is.
            self.size.store(size, Ordering::Release);
        }
        if size != old {
            rustix::fs::ftruncate(self.memory()?, size)?;
            self.size.store(size, Ordering::Release);
        }
        Ok(())
    }

    /// Reads into the caller's buffers.
    ///
    /// # Safety
    /// As [`AtomicFile::read`].
    pub(super) unsafe fn read(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        let (mut done, mut unchanging) = (0, None);
        for buf in bufs {
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
                        unchanging = Some(self.lock());
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
    pub(super) fn descriptor(&self, writable: bool) -> Result<OwnedFd> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let link = format!("/proc/thread-self/fd/{}", self.memory()?.as_raw_fd());
        match rustix::fs::openat(CWD, &link, access | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(fd),
            // Without /proc: the kernel then does not refuse a later mprotect(PROT_WRITE) of a map that may not have it.
            Err(_) => Ok(rustix::io::fcntl_dupfd_cloexec(self.memory()?, 0)?),
        }
    }
}

/// Takes over a range of what `read` gives; pages of zeros are left out where nothing is.
pub(super) fn fill(
    memory: &OwnedFd,
    range: Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    // Up to here nothing was ever stored in the memory: it reads as zeros.
    let mut hole = 0;
    while at < range.end {
        let want = PIECE.min((range.end - at) as usize);
        let got = read(at, &mut piece[..want])?;
        if got == 0 {
            break; // cut meanwhile
        }
        for (index, page) in piece[..got].chunks(PAGE).enumerate() {
            let (offset, zeros) = (at + (index * PAGE) as u64, page.iter().all(|&byte| byte == 0));
            let end = offset + page.len() as u64;
            if zeros && hole < end {
                hole = next_data(memory, offset)?.unwrap_or(u64::MAX);
            }
            if !zeros || hole < end {
                // By the kernel: no memory left is an error here, and not a SIGBUS.
                write_all(memory.as_fd(), page, offset)?;
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// Where from `at` on something was stored; `None`: nowhere.
pub(super) fn next_data(memory: &OwnedFd, at: u64) -> Result<Option<u64>> {
    match rustix::fs::seek(memory, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Memory of `size` bytes, which costs nothing as long as nothing is stored in it.
pub(super) fn new_memory(size: u64) -> Result<OwnedFd> {
    let memory = rustix::fs::memfd_create(c"famio-shadow", MemfdFlags::CLOEXEC)?;
    let memory = high_duplicate(memory.as_fd())?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(memory)
}

/// `ENOMEM` for what would take more than a quarter of the machine's memory.
pub(super) fn check_size(size: u64) -> Result<()> {
    let limit = crate::pmem::Lab::current().shadow_limit.unwrap_or_else(|| {
        // SAFETY: plain words, filled in by the kernel.
        let info = unsafe {
            let mut info: libc::sysinfo = core::mem::zeroed();
            syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]);
            info
        };
        info.totalram.saturating_mul(info.mem_unit.into()) / 4
    });
    if size <= limit {
        return Ok(());
    }
    Err(Error::with(libc::ENOMEM, format!("a map of a file of {size} bytes takes more memory than {limit} bytes")))
}

fn write_all(memory: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        let done = rustix::io::pwrite(memory, bytes, offset)?;
        bytes = &bytes[done..];
        offset += done as u64;
    }
    Ok(())
}

const _: () = assert!(PIECE.is_multiple_of(GRANULE));
