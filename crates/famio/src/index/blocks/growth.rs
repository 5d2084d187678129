//! How an arena grows: its memory, in `/dev/shm` (or the folder of the setting `shm`) and beyond that on a disk, and
//! its address space. What was mapped once stays mapped.

use crate::error::{Error, Result};
use crate::map::huge;
use crate::sys::{InternalFd, address_space, memory, shm};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Address space for a new arena. An arena that outgrows it is mapped again elsewhere, with [`GROWTH`] times as much.
pub(in crate::index) const RESERVED: usize = 1 << 30;
pub(in crate::index) const GROWTH: usize = 8;
/// Bounds the index. Memory is taken only as the arena grows.
pub(in crate::index) const RESERVED_MAX: usize = 64 << 30;
/// If less is available, the program has reached its limit on address space.
pub(in crate::index) const RESERVED_MIN: usize = 4 << 20;
const HUGE: u64 = huge::HUGE as u64;

/// Bytes that a process may have without a look at what it may use, which takes some system calls.
const LITTLE: u64 = 32 << 20;
/// Bytes that each arena may have, however many others have.
const SMALL: u64 = 1 << 20;

/// Bytes of memory that this process has taken for arenas and not given back.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The files and mappings of an arena.
pub(in crate::index) struct Growth {
    /// All mappings ever made, the newest last: references may lead into any of them.
    maps: Vec<Map>,
    /// `None` in a forked child, which must not keep the parent's lock on it.
    file: Option<InternalFd>,
    /// Bytes of the arena in `file` once there is a spill, which has the rest.
    in_file: u64,
    /// Its bytes in [`TAKEN`].
    taken: u64,
    spill: Option<InternalFd>,
    /// The folder for the spill.
    beside: PathBuf,
    /// The arena is another process's, mapped for reading.
    is_joined: bool,
    /// `file` is locked together with other processes, which lasts as long as it is open.
    is_shared: bool,
}

/// Locks it together with other processes, instead of alone.
fn lock_with_others(file: &InternalFd) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Address space.
struct Map {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address range, which any thread may give back.
unsafe impl Send for Map {}

impl Growth {
    /// An arena without memory or mapping.
    pub fn new(file: InternalFd, beside: &Path) -> Self {
        Self {
            maps: Vec::new(),
            file: Some(file),
            in_file: 0,
            taken: 0,
            spill: None,
            beside: beside.to_path_buf(),
            is_joined: false,
            is_shared: false,
        }
    }

    /// The bytes that another process has taken in `file`.
    ///
    /// # Errors
    /// `EACCES`: a process that this one does not trust could change it.
    pub fn check(file: &InternalFd) -> Result<u64> {
        let stat = rustix::fs::fstat(file)?;
        if stat.st_mode & 0o022 != 0 || ![0, crate::sys::effective_user()].contains(&stat.st_uid) {
            return Err(Error::new(libc::EACCES));
        }
        Ok(u64::try_from(stat.st_size).unwrap_or(0) & !4095)
    }

    /// The bytes that all owners have taken in the file until now.
    pub fn in_file_now(&mut self) -> Result<u64> {
        let file = self.file.as_ref().ok_or(Error::new(libc::EBUSY))?;
        // Every process that may own the arena keeps it locked, so that it is not swept away while no process has it
        // mapped.
        self.is_shared = self.is_shared || lock_with_others(file);
        let stat = rustix::fs::fstat(file)?;
        self.count_taken(stat.st_blocks as u64 * 512);
        Ok(stat.st_size as u64 & !4095)
    }

    /// Lets other processes map it and lock it together with this one. False: a part has no name.
    pub fn share(&mut self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.spill.is_none()) else { return false };
        self.is_shared = self.is_shared || lock_with_others(file);
        self.is_shared
    }

    /// Maps for reading what another process has taken in `file`. Also returns the number of bytes.
    pub fn join(file: &InternalFd) -> Result<(Self, u64)> {
        let len = Self::check(file)? as usize;
        let mut joined = Self {
            maps: Vec::new(),
            file: None,
            in_file: 0,
            taken: 0,
            spill: None,
            beside: PathBuf::new(),
            is_joined: true,
            is_shared: false,
        };
        if len > 0 {
            address_space::take(len);
            // SAFETY: a new mapping. The file's owner is trusted not to cut it.
            let mapped =
                unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
            let base = mapped.inspect_err(|_| address_space::give(len))?.cast();
            crate::sys::keep_from_children(base, len);
            joined.maps.push(Map { base, len });
        }
        Ok((joined, len as u64))
    }

    /// In a forked child: the arena is the parent's.
    pub fn forget_files(&mut self) {
        (self.file, self.spill, self.is_joined, self.is_shared) = (None, None, false, false);
        self.count_taken(0);
    }

    /// Whether a part lies in a file on a disk.
    pub fn has_spill(&self) -> bool {
        self.spill.is_some()
    }

    #[cfg(test)]
    pub fn memory(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512)
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.maps.len()
    }

    /// Where the newest mapping begins.
    pub fn base(&self) -> *mut u8 {
        self.maps.last().map_or(core::ptr::null_mut(), |map| map.base)
    }

    /// Address space of the newest mapping, in bytes.
    pub fn reserved(&self) -> u64 {
        self.maps.last().map_or(0, |map| map.len as u64)
    }

    /// Maps the arena again, with `len` bytes of address space, or as much as there is, but at least `least`.
    pub fn map(&mut self, len: usize, least: usize) -> Result<()> {
        let mut len = len.clamp(RESERVED_MIN, RESERVED_MAX);
        if len < least {
            return Err(Error::with(libc::ENOSPC, "the index of an atomic file is full"));
        }
        let base = loop {
            address_space::take(len);
            match self.try_map(len).inspect_err(|_| address_space::give(len)) {
                Ok(base) => break base,
                Err(e) if len == least.max(RESERVED_MIN) => return Err(Error::from(e).context("mapping an arena")),
                Err(_) => len = (len / 4).next_multiple_of(4096).max(least).max(RESERVED_MIN), // a limit on address space
            }
        };
        crate::sys::keep_from_children(base, len);
        self.maps.push(Map { base, len });
        Ok(())
    }

    fn try_map(&self, len: usize) -> rustix::io::Result<*mut u8> {
        let first = self.file.as_ref().filter(|_| self.in_file > 0 || self.spill.is_none()).or(self.spill.as_ref());
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let base = huge::aligned(first.ok_or(Errno::BUSY)?, len, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        if self.in_file > 0
            && let Some(spill) = &self.spill
        {
            map_spill(spill, base, self.in_file, len).inspect_err(|_| {
                // SAFETY: mapped just now and not yet published.
                let _ = unsafe { rustix::mm::munmap(base.cast(), len) };
            })?;
        }
        Ok(base)
    }

    /// Takes memory for `have..want`, or at least up to `end`, before it is used: a full /dev/shm is an error here,
    /// not a SIGBUS later. Returns the new end.
    pub fn take(&mut self, have: u64, want: u64, end: u64) -> Result<u64> {
        let allocate = |file: &InternalFd, from: u64, to: u64| {
            rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from).map(|()| to)
        };
        let in_memory = |file: &InternalFd, from: u64, to: u64| {
            if self.maps.is_empty() || to / HUGE == from / HUGE {
                return allocate(file, from, to);
            }
            rustix::fs::ftruncate(file, to)?;
            let taken = huge::take(file.as_fd(), self.base().wrapping_add(from as usize), from, (to - from) as usize);
            taken.map(|_| to).inspect_err(|_| {
                let _ = rustix::fs::ftruncate(file, from); // others take the file's end for the amount there is
            })
        };
        let file = self.file.as_ref().ok_or(Error::new(libc::EBUSY))?;
        if let Some(spill) = &self.spill {
            let at = have - self.in_file;
            let got = allocate(spill, at, want - self.in_file).or_else(|_| allocate(spill, at, end - self.in_file));
            return got.map(|got| got + self.in_file).map_err(|e| self.spill_failed(e));
        }
        if leaves_room(file, self.taken, want - have)
            && let Ok(got) = in_memory(file, have, want)
        {
            self.count_taken(self.taken + (got - have));
            return Ok(got);
        }
        match self.begin_spill(have, want).or_else(|_| self.begin_spill(have, end)) {
            Ok(got) => Ok(got),
            // There can be no spill: the memory is used to its last byte; if `want` is too much, only what is needed
            // now.
            Err(spill) => {
                let file = self.file.as_ref().ok_or(Error::new(libc::EBUSY))?;
                let got = allocate(file, have, want).or_else(|_| allocate(file, have, end));
                let got = got.map_err(|e| {
                    Error::from(e).context(format_args!("growing an arena in {} ({spill})", shm::folder()))
                })?;
                self.count_taken(self.taken + (got - have));
                Ok(got)
            }
        }
    }

    /// The file that has this part of the arena, where, and whether that is memory. `None`: the part lies in two, or its
    /// file is not known.
    fn place(&self, offset: u64, len: u64) -> Option<(&InternalFd, u64, bool)> {
        match &self.spill {
            Some(spill) if offset >= self.in_file => Some((spill, offset - self.in_file, false)),
            Some(_) if offset + len > self.in_file => None,
            _ => Some((self.file.as_ref()?, offset, true)),
        }
    }

    /// Frees the memory of whole pages. Whether it has.
    pub fn give_back(&mut self, offset: u64, len: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let Some((file, at, in_memory)) = self.place(offset, len) else { return false };
        let is_given = rustix::fs::fallocate(file, flags, at, len).is_ok();
        if is_given && in_memory {
            self.count_taken(self.taken.saturating_sub(len));
        }
        is_given
    }

    /// So many bytes of it count as this process's.
    pub fn count_taken(&mut self, taken: u64) {
        TAKEN.fetch_add(taken.wrapping_sub(self.taken), Ordering::Relaxed);
        self.taken = taken;
    }

    /// Takes memory again for what has [none](Self::give_back). `any`: the last there is, too.
    pub fn take_again(&mut self, offset: u64, len: u64, any: bool) -> Result<()> {
        let (file, at, in_memory) = self.place(offset, len).ok_or(Error::new(libc::EBUSY))?;
        if in_memory && !any && !leaves_room(file, self.taken, len) {
            return Err(Error::new(libc::ENOSPC));
        }
        rustix::fs::fallocate(file, FallocateFlags::empty(), at, len)?;
        if in_memory {
            self.count_taken(self.taken + len);
        }
        self.populate(offset, offset + len);
        Ok(())
    }

    /// From now on everything above `have` lies in a file on the disk, which gets room up to `want`.
    fn begin_spill(&mut self, have: u64, want: u64) -> Result<u64> {
        let begun = open_unnamed(&self.beside).and_then(|spill| {
            rustix::fs::fallocate(&spill, FallocateFlags::empty(), 0, want - have)?;
            if let Some(map) = self.maps.last() {
                map_spill(&spill, map.base, have, map.len)?;
            }
            Ok(spill)
        });
        (self.spill, self.in_file) = (Some(begun.map_err(|e| self.spill_failed(e))?), have);
        Ok(want)
    }

    fn spill_failed(&self, e: Errno) -> Error {
        Error::from(e).context(format_args!("moving the memory of the index to {}", self.beside.display()))
    }

    /// One call instead of a page fault per page. If the kernel lacks it, the faults happen.
    pub fn populate(&self, have: u64, want: u64) {
        let at = self.base().wrapping_add(have as usize);
        // SAFETY: in our mapping, with memory.
        let _ = unsafe { rustix::mm::madvise(at.cast(), (want - have) as usize, Advice::LinuxPopulateWrite) };
    }
}

/// Whether the file's memory has room for `bytes` more and a quarter of all would still be free: other files need
/// some, and could not even be opened without. And whether this process's arenas take at most half of what it may use,
/// or this one, with `own` bytes, is small.
fn leaves_room(file: &InternalFd, own: u64, bytes: u64) -> bool {
    let all = TAKEN.load(Ordering::Relaxed).saturating_add(bytes);
    if own + bytes > SMALL && all > LITTLE && all > memory() / 2 {
        return false;
    }
    rustix::fs::fstatvfs(file)
        .is_ok_and(|all| all.f_blocks == 0 || all.f_bavail * all.f_frsize >= bytes + all.f_blocks * all.f_frsize / 4)
}

/// Maps the spill for everything above `from` in a mapping, which has nothing there yet.
fn map_spill(spill: &InternalFd, base: *mut u8, from: u64, len: usize) -> rustix::io::Result<()> {
    if from >= len as u64 {
        return Ok(());
    }
    let (at, rest) = (base.wrapping_add(from as usize), len - from as usize);
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: within our mapping, where nothing was handed out yet.
    unsafe { rustix::mm::mmap(at.cast(), rest, protection, flags | MapFlags::NORESERVE, spill, 0) }?;
    crate::sys::keep_from_children(at, rest);
    Ok(())
}

/// A file in `folder` that no other process can open, and that goes with its last descriptor and map.
fn open_unnamed(folder: &Path) -> rustix::io::Result<InternalFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    let low = match crate::sys::openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            // Not all file systems have `O_TMPFILE`.
            let mut random = [0; 16];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = folder.join(format!(".famio-{:032x}", u128::from_ne_bytes(random)));
            let file = crate::sys::openat(CWD, &name, flags | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
            rustix::fs::unlinkat(CWD, &name, AtFlags::empty())?;
            file
        }
        opened => opened?,
    };
    Ok(low)
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.count_taken(0);
        if self.file.is_none() && !self.is_joined {
            return; // in a forked child the arena is not mapped
        }
        for map in &self.maps {
            // SAFETY: our mapping; no reference into it outlives the arena.
            let _ = unsafe { rustix::mm::munmap(map.base.cast(), map.len) };
            address_space::give(map.len);
            huge::note_unmapped(map.base);
        }
    }
}
