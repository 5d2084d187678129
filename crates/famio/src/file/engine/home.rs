//! The file as a home of bytes: its mapping, its physical size, and room made in it before anything is stored.

use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::index::Shared;
use crate::map::ahead::Reach;
use crate::map::{Advice, Mapping, guard, reservation};
use crate::pmem::{Domain, Medium};
use crate::sys::file_size_limit;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use rustix::fs::FallocateFlags;
use std::os::fd::BorrowedFd;

/// Zeros to read from where the file has nothing.
static ZEROS: [u8; 4096] = [0; 4096];
/// Room is made in steps of an eighth of the file, within these bounds.
const STEP_MIN: u64 = 256 << 10;
const STEP_MAX: u64 = 16 << 20;

/// The mapped file.
pub(crate) struct Home {
    current: AtomicPtr<Mapping>,
    /// All mappings ever made, the current one last: readers may still be in an older one.
    #[allow(clippy::vec_box, reason = "readers hold pointers to them")]
    maps: Mutex<Vec<Box<Mapping>>>,
    domain: Domain,
    writable: bool,
    medium: &'static dyn Medium,
    /// The file has holes: blocks are allocated one at a time before a store.
    sparse: AtomicBool,
    /// Below this, blocks of the file are allocated or reserved.
    reserved: AtomicU64,
    /// No block at or above this one was ever reserved.
    top: AtomicU64,
    /// Where the space ends that the program has preallocated, beyond the end of the file (`FALLOC_FL_KEEP_SIZE`).
    preallocated: AtomicU64,
}

impl Home {
    /// Maps the file. `writable`: stores go through the mapping, as on every domain but page-cache.
    pub fn new(fds: &Descriptors, domain: Domain, writable: bool, medium: &'static dyn Medium) -> Result<Self> {
        let (map, sparse, size) = fds.with(writable, |fd| {
            let stat = rustix::fs::fstat(fd)?;
            let sparse = (stat.st_blocks as u64) * 512 < stat.st_size as u64;
            let size = stat.st_size as u64;
            let mut map = Mapping::reserve(fd, domain, size, writable, reservation(size))?;
            medium.watch(fd, map.base(), map.reserved());
            if !sparse {
                map.map_ahead(size, reach(domain));
            }
            Ok((Box::new(map), sparse, size))
        })?;
        let current = AtomicPtr::new(core::ptr::from_ref(&*map).cast_mut());
        let (sparse, reserved, top) = (AtomicBool::new(sparse), AtomicU64::new(size), AtomicU64::new(size));
        let preallocated = AtomicU64::new(0);
        Ok(Self { current, maps: Mutex::new(vec![map]), domain, writable, medium, sparse, reserved, top, preallocated })
    }

    /// What the next owner of the session has to know.
    pub fn state(&self) -> [u64; 3] {
        let sparse = self.sparse.load(Ordering::Acquire).into();
        [sparse, self.reserved.load(Ordering::Acquire), self.top.load(Ordering::Acquire)]
    }

    /// Goes on where the last owner has left it.
    pub fn set_state(&self, shared: &Shared, fds: &Descriptors, [sparse, reserved, top]: [u64; 3]) -> Result<()> {
        self.cover(fds, shared.physical.load(Ordering::Acquire))?;
        self.sparse.store(sparse != 0, Ordering::Release);
        self.reserved.store(reserved, Ordering::Release);
        self.top.store(top, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn map(&self) -> &Mapping {
        // SAFETY: points to a box in `maps`, which keeps all of them as long as `self`.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Where `offset..offset + len` lies in memory. The caller knows that it is below the physical size.
    #[inline]
    pub fn ptr(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.map().ptr(offset, len).ok_or(Error::new(libc::EFBIG))
    }

    /// Copies from the file to memory of the caller's; zeros for what lies at or above `readable`.
    ///
    /// # Safety
    /// As [`copy_out`].
    pub unsafe fn read(&self, offset: u64, dst: *mut u8, len: usize, readable: u64) -> Result<()> {
        let there = len.min(readable.saturating_sub(offset) as usize);
        if there > 0 {
            // SAFETY: the source is in our mapping; a file cut by somebody else is a fault that the guard catches.
            unsafe { copy_out(dst, self.ptr(offset, there)?, there) }?;
        }
        // SAFETY: the rest of the caller's buffer.
        unsafe { zero_out(dst.wrapping_add(there), len - there) }
    }

    /// Bytes at `offset` are about to be read: what follows is mapped ahead, if they are read in order.
    #[inline]
    pub fn touch(&self, shared: &Shared, offset: u64, len: usize) {
        self.map().touch(offset, len, || shared.physical.load(Ordering::Relaxed));
    }

    /// Says how a range of the file will be read.
    pub fn advise(&self, shared: &Shared, range: core::ops::Range<u64>, advice: Advice) {
        let end = range.end.min(shared.physical.load(Ordering::Acquire));
        self.map().advise(range.start, end.saturating_sub(range.start) as usize, advice);
    }

    /// Makes room so that bytes below `end` can be stored to through the mapping: physical size, allocated blocks, map.
    /// `ENOSPC`, `EDQUOT`, `EFBIG` come from here, before anything is written.
    #[inline]
    pub fn make_room(&self, shared: &Shared, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        if end > shared.physical.load(Ordering::Acquire) {
            self.extend(shared, fds, start, end)?;
        }
        if self.sparse.load(Ordering::Relaxed) {
            fds.with(true, |fd| allocate(fd, start, end))?;
        }
        Ok(())
    }

    /// Whether there is room below `end`, so that [`make_room`](Self::make_room) has nothing to do.
    #[inline]
    pub fn has_room(&self, shared: &Shared, end: u64) -> bool {
        end <= shared.physical.load(Ordering::Acquire) && !self.sparse.load(Ordering::Relaxed)
    }

    /// Where the blocks end that the file has, or has room made for.
    pub fn room_end(&self, shared: &Shared) -> u64 {
        shared.physical.load(Ordering::Acquire).max(self.reserved.load(Ordering::Acquire))
    }

    /// Where the space ends that the program has preallocated, if that is beyond the end of the file.
    pub fn preallocated(&self) -> u64 {
        self.preallocated.load(Ordering::Acquire)
    }

    /// The program has preallocated space up to `end`.
    pub fn preallocate_to(&self, end: u64) {
        self.preallocated.fetch_max(end, Ordering::AcqRel);
    }

    /// The program has set the size, and the kernel would free what lies beyond it.
    pub fn forget_preallocated(&self) {
        self.preallocated.store(0, Ordering::Release);
    }

    /// The file was cut to `size` by us, and not by the program: what that has preallocated is allocated again, as far as there still is
    /// room.
    pub fn preallocate_again(&self, fd: BorrowedFd<'_>, size: u64) {
        preallocate_again(fd, size, self.preallocated());
    }

    /// Whether it may have holes.
    pub fn is_sparse(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    /// Whether its pages may be gathered to huge ones: those of a file in memory that has memory everywhere. A hole would take some.
    pub fn may_gather(&self) -> bool {
        let in_memory = matches!(self.domain, Domain::Process | Domain::Emulated);
        in_memory && self.writable && !self.sparse.load(Ordering::Relaxed)
    }

    /// See [`Mapping::gather`]; the range lies below the physical size.
    pub fn gather(&self, start: u64, end: u64) -> bool {
        self.map().gather(start, end)
    }

    /// Reserves blocks of the file for `start..end`, without a change of its size: what is written to it later, by system
    /// calls, finds room. `ENOSPC`, `EDQUOT`, `EFBIG` come from here.
    #[inline]
    pub fn reserve(&self, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        // The other side of the fence in `forget_reserved`: on x86 the lock of the block was one.
        if cfg!(not(target_arch = "x86_64")) {
            fence(Ordering::SeqCst);
        }
        if end <= self.reserved.load(Ordering::Acquire) && !self.sparse.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.reserve_more(fds, start, end)
    }

    #[cold]
    fn reserve_more(&self, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        let have = self.reserved.load(Ordering::Acquire);
        let top = self.top.fetch_max(end, Ordering::SeqCst);
        if end <= have {
            return fds.with(true, |fd| allocate(fd, start, end));
        }
        if start > have + STEP_MAX || top > end {
            // A far write leaves a hole, and what is written in that later fills no more of it.
            self.sparse.store(true, Ordering::Relaxed);
            return fds.with(true, |fd| allocate(fd, start, end));
        }
        let want = (end + (have / 8).clamp(STEP_MIN, STEP_MAX)).min(file_size_limit()).max(end);
        let got = fds.with(true, |fd| match allocate(fd, have, want) {
            Ok(()) => Ok(want),
            Err(_) => allocate(fd, have, end).map(|()| end),
        })?;
        self.reserved.fetch_max(got, Ordering::AcqRel);
        Ok(())
    }

    /// The file was cut: what was reserved above its end is gone. Blocks that wait to be written there are then to be
    /// [reserved anew](Self::reserve_again); a writer that is not seen there yet sees this. Gives the end of the last block
    /// that could be there.
    pub fn forget_reserved(&self, size: u64) -> u64 {
        self.reserved.store(size, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.top.load(Ordering::SeqCst)
    }

    /// Reserves one block's worth that was reserved before the file was cut, and no more.
    pub fn reserve_again(&self, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        fds.with(true, |fd| allocate(fd, start, end))
    }

    /// Sees that the mapping reaches `end`, after the file has grown by a system call.
    pub fn cover(&self, fds: &Descriptors, end: u64) -> Result<()> {
        if end > self.map().reserved() as u64 {
            let mut maps = self.maps.lock();
            self.remap(&mut maps, fds, end)?;
        }
        Ok(())
    }

    #[allow(clippy::vec_box, reason = "readers hold pointers to them")]
    fn remap(&self, maps: &mut Vec<Box<Mapping>>, fds: &Descriptors, size: u64) -> Result<()> {
        let map = fds.with(self.writable, |fd| {
            let mut map = Mapping::reserve(fd, self.domain, size, self.writable, reservation(size))?;
            self.medium.watch(fd, map.base(), map.reserved());
            if !self.sparse.load(Ordering::Relaxed) {
                map.map_ahead(size, reach(self.domain));
            }
            Ok(map)
        })?;
        let map = Box::new(map);
        self.current.store(core::ptr::from_ref(&*map).cast_mut(), Ordering::Release);
        maps.push(map);
        Ok(())
    }

    /// Brings the file to `size` bytes, below which everything committed lies. What is above it is nobody's; room for it, up
    /// to `room`, is kept as far as the file system goes along.
    pub fn set_physical(&self, shared: &Shared, fds: &Descriptors, size: u64, room: u64) -> Result<()> {
        let mut maps = self.maps.lock();
        let have = shared.physical.load(Ordering::Acquire);
        shared.physical_next.store(size, Ordering::Release);
        // After a failure the file may be as long already: `physical_next` stays.
        fds.with(true, |fd| {
            self.medium.ftruncate(fd, size)?;
            if size > have && (size - have > STEP_MAX || allocate(fd, have, size).is_err()) {
                self.sparse.store(true, Ordering::Relaxed);
            }
            preallocate_again(fd, size, room.max(self.preallocated()));
            Ok(())
        })?;
        if size > self.map().reserved() as u64 {
            self.remap(&mut maps, fds, size)?;
        }
        shared.physical.store(size, Ordering::Release);
        Ok(())
    }

    #[cold]
    fn extend(&self, shared: &Shared, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        let mut maps = self.maps.lock();
        let have = shared.physical.load(Ordering::Acquire);
        if end <= have {
            return Ok(());
        }
        // Room ahead only where writes go on from the end: a far write leaves a hole, as it would without us. And none while
        // somebody may look at the size.
        let near = end - have <= STEP_MAX;
        let step = if near && !shared.is_exposed() { (have / 8).clamp(STEP_MIN, STEP_MAX) } else { 0 };
        let with_room = |step: u64| (end + step).next_multiple_of(4096).min(file_size_limit()).max(end);
        let mut want = with_room(step);
        let from = if near { have } else { start };
        if !near {
            self.sparse.store(true, Ordering::Relaxed);
        }
        shared.physical_next.store(want, Ordering::Release);
        // As in `set_physical`.
        fds.with(true, |fd| {
            if allocate(fd, from, want).is_err() {
                want = with_room(0);
                allocate(fd, from, want)?;
                shared.physical_next.store(want, Ordering::Release);
            }
            // At once: who is killed in here leaves a size that is in the arena. Any other is an outsider's doing.
            self.medium.ftruncate(fd, want)?;
            // Data must not lie beyond a size that a power cut takes back.
            self.medium.fdatasync(fd)
        })?;
        if want > self.map().reserved() as u64 {
            self.remap(&mut maps, fds, want)?;
        }
        if near {
            // One call now instead of a fault a page later. Advice: a failure is no reason to stop.
            let _ = self.map().populate(from, (want - from) as usize, self.writable);
        }
        shared.physical.store(want, Ordering::Release);
        Ok(())
    }
}

/// How what is read in order is mapped ahead.
fn reach(domain: Domain) -> Reach {
    if domain == Domain::Pmem { Reach::PopulateRead } else { Reach::Touch }
}

/// Allocates what a cut to `size` has freed of the space that the program had preallocated up to `end`.
pub(in crate::file) fn preallocate_again(fd: BorrowedFd<'_>, size: u64, end: u64) {
    if end > size {
        let _ = allocate(fd, size, end); // somebody else may have taken the room meanwhile
    }
}

/// Reserves blocks; where the file system can't, the store takes its chance.
fn allocate(fd: BorrowedFd<'_>, start: u64, end: u64) -> Result<()> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, start, end - start) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Copies from memory of ours to the caller's. A fault is an error: `EFAULT` on the caller's side, `EIO` on ours (the file
/// was cut by somebody else, or the medium is bad).
///
/// # Safety
/// `src` lies in a mapping or buffer of ours; `dst` is the caller's, and may be bad.
#[inline]
pub(crate) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { guard::copy(dst, src, len) }.map_err(|fault| side(fault.is_in(dst, len)))
}

/// Copies from the caller's memory to ours; faults as in [`copy_out`].
///
/// # Safety
/// `dst` lies in a mapping or buffer of ours; `src` is the caller's, and may be bad.
#[inline]
pub(crate) unsafe fn copy_in(dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { guard::copy(dst, src, len) }.map_err(|fault| side(fault.is_in(src, len)))
}

#[cold]
fn side(callers: bool) -> Error {
    Error::new(if callers { libc::EFAULT } else { libc::EIO })
}

/// Zeros into the caller's memory, guarded.
///
/// # Safety
/// `dst` is the caller's buffer of `len` bytes; it may be bad.
pub(crate) unsafe fn zero_out(dst: *mut u8, len: usize) -> Result<()> {
    let mut done = 0;
    while done < len {
        let n = (len - done).min(ZEROS.len());
        // SAFETY: the source is a static.
        unsafe { copy_out(dst.wrapping_add(done), ZEROS.as_ptr(), n) }?;
        done += n;
    }
    Ok(())
}
