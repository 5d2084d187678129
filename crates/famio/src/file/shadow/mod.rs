//! Files that the program maps shared: a **shadow**, memory with the file's bytes as they are now, is what it maps in place of
//! the file. What it stores there is compared with the file at a SYNC, and what differs is written to the open epoch, a granule
//! at a time. So no store of the program's reaches the file before its epoch is committed, on any domain; there is no signal
//! handler, and no store or system call fails that would not on a file (design, "Mapped regions").
//!
//! While a file has a shadow, reads come from it, and every write goes to the file and to the shadow under one lock.

mod maps;
mod ranges;
mod stores;
mod watch;

pub(crate) use maps::{MapRequest, Mapped, discard, map, msync, protect, remap};
pub(crate) use ranges::{any, disown, files, may_touch, touches};

use super::atomic::AtomicFile;
use super::bits::GRANULE;
use super::home::copy_out;
use super::{Access, UserBuf};
use crate::error::{Error, Result};
use crate::map::Mapping;
use crate::pmem::Domain;
use crate::sys::{high_duplicate, identity, syscall};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Bytes that are read, compared or copied at a time.
const PIECE: usize = 64 << 10;

/// The file's bytes in memory. As long as the file's size, to the byte: beyond its last page is a SIGBUS, as in a file.
pub(super) struct Shadow {
    memory: OwnedFd,
    identity: (u64, u64),
    ours: Mapping,
    size: AtomicU64,
    /// Held while the file's bytes change, or are compared.
    changing: Mutex<()>,
    /// It has all of the file's bytes.
    filled: AtomicBool,
}

/// Before a fork: a child shares the maps, and what it stores is the parent's to commit.
pub(crate) fn before_fork() {
    if any() {
        ranges::lock().all().for_each(watch::end);
    }
}

/// Whether the program has maps of this file that are not the kernel's.
pub(crate) fn is_mapped(key: (u64, u64)) -> bool {
    ranges::any() && ranges::has(key, |range| range.shadow)
}

impl Shadow {
    /// An empty one. `ENOMEM`: the file takes too much of this machine's memory.
    fn new(size: u64) -> Result<Self> {
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

    /// The memory, if its descriptor is still ours: the program may have closed what it did not open.
    fn memory(&self) -> Result<&OwnedFd> {
        if identity(self.memory.as_fd()).ok() == Some(self.identity) {
            return Ok(&self.memory);
        }
        Err(Error::with(libc::EBADF, "the descriptor of a mapped file's shadow was closed by the program"))
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Where its bytes lie, below its size.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.ours.ptr(offset, len).ok_or(Error::new(libc::EFBIG))
    }

    /// The file has another size. What the program stored behind its end shows as zeros when it grows.
    fn resize(&self, size: u64) -> Result<()> {
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
    unsafe fn read(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
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
                        unchanging = Some(self.changing.lock());
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
}

impl AtomicFile {
    /// The shadow, when it has all bytes.
    #[inline]
    pub(super) fn shadow(&self) -> Option<&Shadow> {
        self.any_shadow().filter(|shadow| shadow.filled.load(Ordering::Acquire))
    }

    /// The shadow, also while it is being filled.
    #[inline(always)]
    fn any_shadow(&self) -> Option<&Shadow> {
        if self.shadowed.load(Ordering::Acquire) { self.shadow.get().map(|shadow| &**shadow) } else { None }
    }

    fn set_shadow(&self, made: Shadow) -> &Shadow {
        let shadow = self.shadow.get_or_init(|| Box::new(made));
        self.shadowed.store(true, Ordering::SeqCst);
        shadow
    }

    /// The shadow, made now if there is none; attaches the file. `None`: it was handed back.
    fn need_shadow(&self) -> Result<Option<&Shadow>> {
        if self.shadow().is_none() {
            // By attaching, if there are maps of the file itself.
            let Some(session) = self.session_for_write()? else { return Ok(None) };
            if self.shadow().is_none() {
                let made = Shadow::new(self.size())?;
                // Known before it is filled: a write that comes to its end later looks for it, and does its part again.
                let shadow = self.set_shadow(made);
                let _changing = shadow.changing.lock();
                // What came in before has left now, and is seen.
                drop(session.close_gate(&self.fds)?);
                drop(session);
                if !shadow.filled.load(Ordering::Acquire) {
                    shadow.resize(self.size())?;
                    self.copy_to(shadow, 0..u64::MAX)?;
                    shadow.filled.store(true, Ordering::Release);
                }
            }
        }
        Ok(self.shadow())
    }

    /// Before the file is attached, with maps of it as it is: those get the shadow. Nobody writes to it yet.
    pub(super) fn shadow_for_maps(&self) -> Result<()> {
        if !ranges::any() || !ranges::has(self.key(), |range| !range.shadow) {
            return Ok(());
        }
        if self.shadow.get().is_none() {
            let size = self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_size as u64))?;
            let shadow = Shadow::new(size)?;
            let read =
                |fd: BorrowedFd<'_>| fill(shadow.memory()?, 0..size, |at, piece| Ok(rustix::io::pread(fd, piece, at)?));
            self.fds.with(false, read)?;
            shadow.filled.store(true, Ordering::Release);
            self.set_shadow(shadow);
        }
        // Not full: there was no memory for it.
        let shadow = self.shadow().ok_or(Error::new(libc::ENOMEM))?;
        maps::replace(self.key(), |writable| shadow.descriptor(writable))
    }

    /// Brings part of the file to the shadow, as far as the file reaches. Its lock is held.
    fn copy_to(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(shadow.size());
        // SAFETY: the piece is ours.
        fill(shadow.memory()?, range, |at, piece| unsafe { self.read_file(at, &[UserBuf::of(piece)]) })
    }

    /// A change of the file's bytes: of the shadow as well, if there is one. `again` is `change` once more, for that case: so a
    /// caller can have its own change in line.
    #[inline(always)]
    pub(super) fn changing<T>(
        &self,
        change: impl FnOnce() -> Result<T>,
        again: impl FnOnce() -> Result<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        if let Some(shadow) = self.any_shadow() {
            return self.change_both(shadow, again, changed);
        }
        let done = change();
        match self.any_shadow() {
            None => done,
            Some(shadow) => self.catch_up(shadow, done, changed),
        }
    }

    #[cold]
    #[inline(never)]
    fn change_both<T>(
        &self,
        shadow: &Shadow,
        change: impl FnOnce() -> Result<T>,
        changed: impl FnOnce(&T) -> Range<u64>,
    ) -> Result<T> {
        let _changing = shadow.changing.lock();
        let done = change()?;
        self.follow(shadow, changed(&done))?;
        Ok(done)
    }

    /// The shadow was made while the change was under way: it may have missed it.
    #[cold]
    #[inline(never)]
    fn catch_up<T>(&self, shadow: &Shadow, done: Result<T>, changed: impl FnOnce(&T) -> Range<u64>) -> Result<T> {
        let done = done?;
        let _changing = shadow.changing.lock();
        self.follow(shadow, changed(&done))?;
        Ok(done)
    }

    fn follow(&self, shadow: &Shadow, range: Range<u64>) -> Result<()> {
        let old = shadow.size();
        let followed = shadow.resize(self.size()).and_then(|()| self.copy_to(shadow, range.start.min(old)..range.end));
        followed.map_err(|e| {
            // File and shadow differ: back to the last SYNC, rather than a commit of what nobody wrote.
            self.with_session(|session| session.arena.shared().poisoned.store(1, Ordering::Release));
            let why = format!("what was written could not be shown in its maps ({e}): no more writes are taken");
            Error::with(libc::EIO, why)
        })
    }

    /// Reads from the shadow.
    ///
    /// # Safety
    /// As [`AtomicFile::read`].
    #[cold]
    pub(super) unsafe fn read_shadow(&self, shadow: &Shadow, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        if self.is_disowned() {
            return Err(super::process::disowned());
        }
        // SAFETY: the caller's promise.
        unsafe { shadow.read(offset, bufs) }
    }

    /// The program closes its last descriptor, and has the file mapped: one of ours stays, so that what it stores is not
    /// lost. Whether it is so.
    pub(super) fn keep_for_maps(&self, fd: RawFd) -> bool {
        if !ranges::any() || !ranges::has(self.key(), |range| range.shadow || range.may_store) {
            return false;
        }
        // SAFETY: the program's descriptor, which it closes after this.
        let Ok(keeper) = high_duplicate(unsafe { BorrowedFd::borrow_raw(fd) }) else { return false };
        let writable = rustix::fs::fcntl_getfl(&keeper).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let access = if writable { Access::Write } else { Access::Read };
        self.fds.add(keeper.as_raw_fd(), access);
        *self.keeper.lock() = Some(keeper);
        true
    }

    /// Whether a map of the program's is, or may become, writable: that takes a writable descriptor.
    pub(super) fn may_be_stored_to(&self) -> bool {
        ranges::any() && ranges::has(self.key(), |range| range.may_store)
    }

    /// A map of the file is gone. With the last one the descriptor that was kept for it goes, too.
    fn maps_are_gone(&self) -> Result<()> {
        if ranges::has(self.key(), |_| true) {
            return Ok(());
        }
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        if self.fds.is_last(keeper.as_raw_fd()) {
            return self.remove_descriptor(keeper.as_raw_fd());
        }
        // The program has opened the file again, and may hold locks that a close of ours would drop.
        self.fds.leave(keeper);
        Ok(())
    }
}

impl Shadow {
    /// A descriptor of the memory, as the map that is made of it may be used.
    fn descriptor(&self, writable: bool) -> Result<OwnedFd> {
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
fn fill(memory: &OwnedFd, range: Range<u64>, mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let want = PIECE.min((range.end - at) as usize);
        let got = read(at, &mut piece[..want])?;
        if got == 0 {
            break; // cut meanwhile
        }
        for (index, page) in piece[..got].chunks(4096).enumerate() {
            let offset = at + (index * 4096) as u64;
            if page.iter().any(|&byte| byte != 0) || !is_hole(memory, offset, page.len()) {
                // By the kernel: no memory left is an error here, and not a SIGBUS.
                write_all(memory.as_fd(), page, offset)?;
            }
        }
        at += got as u64;
    }
    Ok(())
}

/// Whether nothing was ever stored there: it reads as zeros.
fn is_hole(memory: &OwnedFd, offset: u64, len: usize) -> bool {
    let data = rustix::fs::seek(memory, SeekFrom::Data(offset));
    data.map_or_else(|errno| errno == rustix::io::Errno::NXIO, |data| data >= offset + len as u64)
}

/// Memory of `size` bytes, which costs nothing as long as nothing is stored in it.
fn new_memory(size: u64) -> Result<OwnedFd> {
    let memory = rustix::fs::memfd_create(c"famio-shadow", MemfdFlags::CLOEXEC)?;
    let memory = high_duplicate(memory.as_fd())?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(memory)
}

/// `ENOMEM` for what would take more than a quarter of the machine's memory.
fn check_size(size: u64) -> Result<()> {
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
