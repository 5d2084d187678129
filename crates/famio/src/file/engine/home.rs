//! The file as a home of bytes: its mapping, its physical size, and room made in it before anything is stored.

use crate::error::{Error, Result};
use crate::file::{Descriptors, UserBuf};
use crate::index::Shared;
use crate::map::ahead::Reach;
use crate::map::{Advice, GrowingMapping, Mapping, guard, reservation};
use crate::pmem::{Domain, Medium};
use crate::sys::file_size_limit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use rustix::fs::FallocateFlags;
use std::os::fd::BorrowedFd;

/// Zeros for where the file has nothing.
static ZEROS: [u8; 4096] = [0; 4096];
/// Room is made in steps of an eighth of the file, within these bounds.
const STEP_MIN: u64 = 256 << 10;
const STEP_MAX: u64 = 16 << 20;

/// The mapped file.
pub(crate) struct Home {
    maps: GrowingMapping,
    domain: Domain,
    writable: bool,
    medium: &'static dyn Medium,
    /// The file has holes: blocks are allocated one by one before a store.
    sparse: AtomicBool,
    /// Below this offset, blocks of the file are allocated or reserved.
    reserved: AtomicU64,
    /// No block at or above this offset was ever reserved.
    top: AtomicU64,
    /// The end of the space that the program has preallocated beyond the end of the file (`FALLOC_FL_KEEP_SIZE`).
    preallocated: AtomicU64,
}

impl Home {
    /// Maps the file. `writable`: stores go through the mapping, as on every domain except page-cache.
    pub fn new(fds: &Descriptors, domain: Domain, writable: bool, medium: &'static dyn Medium) -> Result<Self> {
        let (map, sparse, size) = fds.with(writable, |fd| {
            let stat = rustix::fs::fstat(fd)?;
            let sparse = has_holes(&stat);
            let size = stat.st_size as u64;
            let mut map = Mapping::reserve(fd, domain, size, writable, reservation(size))?;
            medium.watch(fd, map.base(), map.reserved());
            if !sparse {
                map.map_ahead(size, reach(domain));
            }
            Ok((map, sparse, size))
        })?;
        let (sparse, reserved, top) = (AtomicBool::new(sparse), AtomicU64::new(size), AtomicU64::new(size));
        let preallocated = AtomicU64::new(0);
        Ok(Self { maps: GrowingMapping::new(map), domain, writable, medium, sparse, reserved, top, preallocated })
    }

    /// Of a process that reads along in another's session: not mapped yet, and read by calls until it is.
    pub fn to_read(medium: &'static dyn Medium) -> Self {
        Self {
            maps: GrowingMapping::new(Mapping::none()),
            domain: Domain::PageCache,
            writable: false,
            medium,
            sparse: AtomicBool::new(true),
            reserved: AtomicU64::new(0),
            top: AtomicU64::new(0),
            preallocated: AtomicU64::new(0),
        }
    }

    /// What the session's next owner has to know.
    pub fn state(&self) -> [u64; 4] {
        let sparse = self.sparse.load(Ordering::Acquire).into();
        let [reserved, top] = [&self.reserved, &self.top].map(|word| word.load(Ordering::Acquire));
        [sparse, reserved, top, self.preallocated()]
    }

    /// Continues where the last owner left it.
    pub fn set_state(&self, shared: &Shared, fds: &Descriptors, state: [u64; 4]) -> Result<()> {
        let [sparse, reserved, top, preallocated] = state;
        self.cover(fds, shared.physical.load(Ordering::Acquire))?;
        self.sparse.store(sparse != 0, Ordering::Release);
        self.reserved.store(reserved, Ordering::Release);
        self.top.store(top, Ordering::Release);
        self.preallocated.store(preallocated, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn map(&self) -> &Mapping {
        self.maps.current()
    }

    /// The address of `offset..offset + len`, which the caller knows to be below the physical size.
    #[inline]
    pub fn ptr(&self, offset: u64, len: usize) -> Result<*mut u8> {
        self.maps.ptr(offset, len).ok_or(Error::new(libc::EFBIG))
    }

    /// Copies from the file to the caller's memory, with zeros for bytes at or above `readable`.
    ///
    /// # Safety
    /// As [`copy_out`].
    pub unsafe fn read(&self, offset: u64, dst: *mut u8, len: usize, readable: u64) -> Result<()> {
        let there = len.min(readable.saturating_sub(offset) as usize);
        if there > 0 {
            // SAFETY: the source is in our mapping; the guard catches the fault if an outsider cuts the file.
            unsafe { copy_out(dst, self.ptr(offset, there)?, there) }?;
        }
        // SAFETY: the rest of the caller's buffer.
        unsafe { zero_out(dst.wrapping_add(there), len - there) }
    }

    /// Bytes at `offset` are about to be read: sequential reads are mapped ahead.
    #[inline]
    pub fn touch(&self, shared: &Shared, offset: u64, len: usize) {
        self.map().touch(offset, len, || shared.physical.load(Ordering::Relaxed));
    }

    /// Advises how a range of the file will be read.
    pub fn advise(&self, shared: &Shared, range: core::ops::Range<u64>, advice: Advice) {
        let end = range.end.min(shared.physical.load(Ordering::Acquire));
        self.map().advise(range.start, end.saturating_sub(range.start) as usize, advice);
    }

    /// Makes room so that bytes below `end` can be stored through the mapping: physical size, allocated blocks, map.
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

    /// Whether writes may change the file by system calls, which stamp it: they reserve its blocks one by one.
    #[inline]
    pub fn is_stamped_by_writes(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    /// Whether there is room below `end`, so that [`make_room`](Self::make_room) has nothing to do.
    #[inline]
    pub fn has_room(&self, shared: &Shared, end: u64) -> bool {
        end <= shared.physical.load(Ordering::Acquire) && !self.sparse.load(Ordering::Relaxed)
    }

    /// The end of the blocks that the file has, or for which room is reserved.
    pub fn room_end(&self, shared: &Shared) -> u64 {
        shared.physical.load(Ordering::Acquire).max(self.reserved.load(Ordering::Acquire))
    }

    /// The end of the space that the program has preallocated, if that is beyond the end of the file.
    pub fn preallocated(&self) -> u64 {
        self.preallocated.load(Ordering::Acquire)
    }

    /// The program has preallocated space up to `end`.
    pub fn preallocate_to(&self, end: u64) {
        self.preallocated.fetch_max(end, Ordering::AcqRel);
    }

    /// The program has set the size, upon which the kernel would free space beyond it.
    pub fn forget_preallocated(&self) {
        self.preallocated.store(0, Ordering::Release);
    }

    /// The library, and not the program, has cut the file to `size`: allocates the program's preallocated space
    /// again, as far as there is room.
    pub fn preallocate_again(&self, fd: BorrowedFd<'_>, size: u64) {
        preallocate_again(fd, size, self.preallocated());
    }

    /// Whether the file may have holes.
    pub fn is_sparse(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    /// Whether its pages may be collapsed into huge ones: of a file in memory, and without holes, which would get
    /// memory.
    pub fn may_gather(&self) -> bool {
        let in_memory = matches!(self.domain, Domain::Process | Domain::Emulated);
        in_memory && self.writable && !self.sparse.load(Ordering::Relaxed)
    }

    /// See [`Mapping::gather`]; the range lies below the physical size.
    pub fn gather(&self, start: u64, end: u64) -> bool {
        self.map().gather(start, end)
    }

    /// Reserves blocks of the file for `start..end` without changing its size: later writes there, by system calls,
    /// find room. `ENOSPC`, `EDQUOT`, `EFBIG` come from here.
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
            // A far write leaves a hole, and later writes into that reserve blocks one by one.
            self.sparse.store(true, Ordering::Relaxed);
            return fds.with(true, |fd| allocate(fd, start, end));
        }
        let want = (end + (have / 8).clamp(STEP_MIN, STEP_MAX)).min(file_size_limit()).max(end);
        let got = fds.with(true, |fd| match allocate(fd, have, want) {
            Ok(()) => Ok(want),
            Err(_) => allocate(fd, have, end).map(|()| end),
        })?;
        // Not after a cut meanwhile, which has freed what lies below.
        let longer = |now: u64| (now >= have).then(|| now.max(got));
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, longer);
        Ok(())
    }

    /// The file was cut, which freed what was reserved above its end. Blocks waiting to be written there have to be
    /// [reserved again](Self::reserve_again); a writer not seen there yet sees this. Returns the end of the last
    /// block that could be there.
    pub fn forget_reserved(&self, size: u64) -> u64 {
        self.reserved.store(size, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.top.load(Ordering::SeqCst)
    }

    /// Reserves exactly the range of a block that was reserved before the cut.
    pub fn reserve_again(&self, fds: &Descriptors, start: u64, end: u64) -> Result<()> {
        fds.with(true, |fd| allocate(fd, start, end))
    }

    /// Makes sure that the mapping reaches `end`, after a system call has made the file longer.
    pub fn cover(&self, fds: &Descriptors, end: u64) -> Result<()> {
        self.maps.reach(end, || self.longer_mapping(fds, end)).map(drop)
    }

    /// A mapping of `size` bytes; the first of all of the file.
    fn longer_mapping(&self, fds: &Descriptors, size: u64) -> Result<Mapping> {
        let is_first = self.maps.current().reserved() == 0;
        fds.with(self.writable, |fd| {
            let mut size = size;
            if is_first {
                let stat = rustix::fs::fstat(fd)?;
                self.sparse.store(has_holes(&stat), Ordering::Relaxed);
                size = size.max(stat.st_size as u64);
            }
            let mut map = Mapping::reserve(fd, self.domain, size, self.writable, reservation(size))?;
            self.medium.watch(fd, map.base(), map.reserved());
            if !self.sparse.load(Ordering::Relaxed) {
                map.map_ahead(size, reach(self.domain));
            }
            Ok(map)
        })
    }

    /// Sets the file to `size` bytes, below which everything committed lies. Anything above is unused; room for it,
    /// up to `room`, is kept if the file system can.
    pub fn set_physical(&self, shared: &Shared, fds: &Descriptors, size: u64, room: u64) -> Result<()> {
        let mut maps = self.maps.lock();
        let have = shared.physical.load(Ordering::Acquire);
        shared.physical_next.store(size, Ordering::Release);
        // After a failure the file may have that length already: `physical_next` stays.
        fds.with(true, |fd| {
            self.medium.ftruncate(fd, size)?;
            if size > have && (size - have > STEP_MAX || allocate(fd, have, size).is_err()) {
                self.sparse.store(true, Ordering::Relaxed);
            }
            preallocate_again(fd, size, room.max(self.preallocated()));
            Ok(())
        })?;
        maps.reach(size, || self.longer_mapping(fds, size))?;
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
        // Room in advance only if writes continue at the end: a far write leaves a hole, as on a plain file. And none
        // while an outsider may look at the size.
        let fast_path = end - have <= STEP_MAX;
        let step = if fast_path && !shared.is_exposed() { (have / 8).clamp(STEP_MIN, STEP_MAX) } else { 0 };
        let with_room = |step: u64| (end + step).next_multiple_of(4096).min(file_size_limit()).max(end);
        let mut want = with_room(step);
        let from = if fast_path { have } else { start };
        if !fast_path {
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
            // At once: a kill in here leaves a size that is in the arena. Any other size is an outsider's doing.
            self.medium.ftruncate(fd, want)?;
            // Data must not lie beyond a size that a power cut takes back.
            self.medium.fdatasync(fd)
        })?;
        if let Err(e) = maps.reach(want, || self.longer_mapping(fds, want)) {
            // No address space: as before. If that fails, too, a close cuts it.
            let _ = fds.with(true, |fd| {
                self.medium.ftruncate(fd, have)?;
                preallocate_again(fd, have, self.preallocated());
                Ok(())
            });
            shared.physical_next.store(have, Ordering::Release);
            return Err(e);
        }
        if fast_path {
            // One call instead of a fault per page later. Advice: failures are ignored.
            let _ = self.map().populate(from, (want - from) as usize, self.writable);
        }
        shared.physical.store(want, Ordering::Release);
        Ok(())
    }
}

/// Whether a store may need room of the file system, as far as the number of its blocks says.
pub(in crate::file) fn has_holes(file: &rustix::fs::Stat) -> bool {
    (file.st_blocks as u64) * 512 < file.st_size as u64
}

/// How sequential reads are mapped ahead.
fn reach(domain: Domain) -> Reach {
    if domain == Domain::Pmem { Reach::PopulateRead } else { Reach::Touch }
}

/// Allocates again what a cut to `size` has freed of the space that the program had preallocated up to `end`.
pub(in crate::file) fn preallocate_again(fd: BorrowedFd<'_>, size: u64, end: u64) {
    if end > size {
        let _ = allocate(fd, size, end); // other files may have taken the room meanwhile
    }
}

/// Reserves blocks. If the file system cannot, the store may fail.
fn allocate(fd: BorrowedFd<'_>, start: u64, end: u64) -> Result<()> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, start, end - start) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Copies from our memory to the caller's. A fault is an error: `EFAULT` on the caller's side, `EIO` on ours (an
/// outsider has cut the file, or the medium is bad).
///
/// # Safety
/// `src` lies in our mapping or buffer; `dst` is the caller's, and may be bad.
#[inline]
pub(crate) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { guard::copy(dst, src, len) }.map_err(|fault| side(fault.is_in(dst, len)))
}

/// Copies from the caller's memory to ours; faults as in [`copy_out`].
///
/// # Safety
/// `dst` lies in our mapping or buffer; `src` is the caller's, and may be bad.
#[inline]
pub(crate) unsafe fn copy_in(dst: *mut u8, src: *const u8, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { guard::copy(dst, src, len) }.map_err(|fault| side(fault.is_in(src, len)))
}

/// A copy of the caller's bytes. `None`: they are more than `most`, or a buffer is bad.
///
/// # Safety
/// The buffers may be read; they may be bad.
pub(crate) unsafe fn copied_in(most: usize, bufs: &[UserBuf]) -> Option<Vec<u8>> {
    let total = UserBuf::total(bufs);
    if total > most {
        return None;
    }
    let mut bytes = Vec::<u8>::with_capacity(total);
    for buf in bufs {
        // SAFETY: all buffers together fit; what the caller promises for theirs.
        unsafe {
            copy_in(bytes.as_mut_ptr().add(bytes.len()), buf.base, buf.len).ok()?;
            bytes.set_len(bytes.len() + buf.len);
        }
    }
    Some(bytes)
}

#[cold]
fn side(callers: bool) -> Error {
    Error::new(if callers { libc::EFAULT } else { libc::EIO })
}

/// Writes zeros to the caller's memory, guarded.
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
