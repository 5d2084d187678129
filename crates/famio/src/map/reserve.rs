//! One mapping per file, far beyond its end, so that growth moves nothing and needs no system call.

use super::ahead::{Ahead, Reach};
use super::{guard, huge};
use crate::error::{Error, Result};
use crate::pmem::{Domain, TestHooks};
use crate::sys::address_space;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Address space for the mapping of a small file, by default: ten thousand such mappings fit. It costs no memory:
/// pages beyond the end of the file have none.
pub const RESERVATION: usize = 1 << 30;
const RESERVATION_MAX: u64 = 64 << 30;

/// Address space for the mapping of a file of `size` bytes, by default: eight times the file, but at least
/// [`RESERVATION`] and at most 64 GiB.
pub(crate) fn reservation(size: u64) -> usize {
    size.saturating_mul(8).clamp(RESERVATION as u64, RESERVATION_MAX) as usize
}

const PAGE: usize = 4096;

/// Size from which on a file is mapped ahead, in bytes. Below, four faults suffice.
pub(crate) const AHEAD_FROM: u64 = 256 << 10;

/// A shared mapping of the front of a file. It includes pages beyond the end of the file, which become usable when
/// the file grows; to touch them before, or after another process has cut the file, is a SIGBUS: use
/// [`super::guard`].
///
/// The mapping keeps the file alive: the descriptor that it was made from may be closed.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
    writable: bool,
    /// Map-ahead, if it was [requested](Self::map_ahead). Dropped first.
    ahead: Option<Ahead>,
}

// SAFETY: a `Mapping` is an address range; its memory is only reached through raw pointers, whose use is `unsafe`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file of `size` bytes for reading; `fd` may be read-only.
    pub fn read_only(fd: BorrowedFd<'_>, domain: Domain, size: u64) -> Result<Self> {
        Self::reserve(fd, domain, size, false, reservation(size))
    }

    /// For tests and measurements: maps a file of `size` bytes for reading and writing; `fd` is open for both.
    #[doc(hidden)]
    pub fn read_write(fd: BorrowedFd<'_>, domain: Domain, size: u64) -> Result<Self> {
        Self::reserve(fd, domain, size, true, reservation(size))
    }

    /// Maps with a chosen reservation, or twice the file if that is more. If the kernel refuses that (a limit on
    /// address space), with less, but all of the file. On pmem the mapping is `MAP_SYNC`: the file system then makes
    /// its own metadata of a page persistent before the page can be written.
    pub fn reserve(fd: BorrowedFd<'_>, domain: Domain, size: u64, writable: bool, reservation: usize) -> Result<Self> {
        let too_large = || Error::with(libc::EFBIG, format!("no mapping of {size} bytes fits the address space"));
        let size = usize::try_from(size).ok().filter(|&size| size <= isize::MAX as usize / 4).ok_or_else(too_large)?;
        let least = size.max(1).next_multiple_of(PAGE);
        let mut len = reservation.max(2 * size).next_multiple_of(PAGE);
        let mut flags = MapFlags::NORESERVE;
        flags |= if domain == Domain::Pmem && TestHooks::current().domain.is_none() {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        loop {
            address_space::take(len);
            // A mapping for reading may serve a few calls only: it does without the two additional system calls.
            let mapped =
                if writable { huge::aligned(fd, len, protection, flags) } else { anywhere(fd, len, protection, flags) };
            let mapped = mapped.inspect_err(|_| address_space::give(len));
            match mapped {
                Ok(base) => return Ok(Self { base, len, writable, ahead: None }),
                // EOVERFLOW: beyond the largest file of this file system. EINVAL: no room under valgrind.
                Err(Errno::NOMEM | Errno::OVERFLOW | Errno::INVAL) if len > least => {
                    len = (len / 2).next_multiple_of(PAGE).max(least);
                }
                Err(errno) => return Err(Error::from(errno).context("mapping the file")),
            }
        }
    }

    /// None yet.
    pub(crate) const fn none() -> Self {
        Self { base: core::ptr::null_mut(), len: 0, writable: false, ahead: None }
    }

    /// Maps another file in the place of this one, at the same addresses.
    pub(crate) fn put_at(&self, fd: BorrowedFd<'_>, domain: Domain) -> Result<()> {
        let kind = if domain == Domain::Pmem && TestHooks::current().domain.is_none() {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        let protection = if self.writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = kind | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces our own mapping, at once for every thread.
        unsafe { rustix::mm::mmap(self.base.cast(), self.len, protection, flags, fd, 0) }
            .map_err(|errno| Error::from(errno).context("mapping the file"))?;
        Ok(())
    }

    /// Keeps the mapping out of forked children, in which the file's locks would outlive this process.
    pub(crate) fn keep_from_children(&self) {
        crate::sys::keep_from_children(self.base, self.len);
    }

    /// From now on sequential accesses ([`touch`](Self::touch)) are mapped ahead (`map/ahead`). `size`: the file's.
    /// The file must have no holes, which would get memory or blocks. A small file does without.
    pub(crate) fn map_ahead(&mut self, size: u64, reach: Reach) {
        if size < AHEAD_FROM || guard::install().is_err() {
            return;
        }
        // Twice the file, as far as it is likely to grow: one bit per 2 MiB.
        let len = usize::try_from(size.saturating_mul(2)).unwrap_or(usize::MAX).min(self.len);
        // SAFETY: our mapping, which goes after it; the guard is installed.
        self.ahead = Some(unsafe { Ahead::new(self.base as usize..self.base as usize + len, reach) });
    }

    /// This thread is about to read or write bytes at `offset`. `size` returns the file's size and is only called if
    /// needed.
    #[inline]
    pub(crate) fn touch(&self, offset: u64, len: usize, size: impl FnOnce() -> u64) {
        if let Some(ahead) = &self.ahead {
            ahead.touch_pages(offset as usize, len, || usize::try_from(size()).unwrap_or(usize::MAX));
        }
    }

    /// The address of `offset..offset + len`; `None` beyond the reservation. The file may end before.
    #[inline]
    pub fn ptr(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        // SAFETY: within the mapping, or one past it.
        (end <= self.len as u64).then(|| unsafe { self.base.add(offset as usize) })
    }

    /// The address of the file's first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes reserved: the size up to which the file may grow under this mapping.
    #[inline]
    pub fn reserved(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The file's offset at `address`; `None` outside the mapping.
    #[inline]
    pub fn offset_of(&self, address: usize) -> Option<u64> {
        let offset = address.wrapping_sub(self.base as usize);
        (offset < self.len).then_some(offset as u64)
    }

    /// Collapses the whole huge pages of `start..end` of the file, which must have memory there. Advice, see
    /// `huge::gather`. Returns whether further calls are worthwhile.
    pub fn gather(&self, start: u64, end: u64) -> bool {
        match self.ptr(start, end.saturating_sub(start) as usize) {
            Some(at) => huge::gather(at, (end - start) as usize),
            None => false,
        }
    }

    /// Advises how `offset..offset + len`, below the end of the file, will be used. This sets how far the kernel
    /// reads ahead of a fault and how far is mapped ahead. A range that is needed soon is read in and mapped in the
    /// background; of a range that is not, the page tables are dropped. Failures are ignored.
    pub fn advise(&self, offset: u64, len: usize, advice: super::Advice) {
        let start = offset & !(PAGE as u64 - 1);
        let length = ((offset - start) as usize + len).next_multiple_of(PAGE);
        let Some(address) = self.ptr(start, length).filter(|_| len > 0) else { return };
        let kernel = match advice {
            super::Advice::Normal => Advice::Normal,
            super::Advice::Sequential => Advice::Sequential,
            super::Advice::Random => Advice::Random,
            super::Advice::WillNeed => Advice::WillNeed,
            super::Advice::DontNeed => Advice::LinuxDontNeed,
        };
        let ahead = || self.ahead.as_ref().map(|ahead| ahead.advise(offset as usize, len, advice));
        if advice == super::Advice::DontNeed {
            ahead(); // first, so that no thread builds them again
        }
        // SAFETY: within our mapping, which is shared: no byte of the file changes.
        let _ = unsafe { rustix::mm::madvise(address.cast(), length, kernel) };
        if advice != super::Advice::DontNeed {
            ahead();
        }
    }

    /// Builds the page tables of `offset..offset + len`, rounded out to pages, before they are touched; for writing,
    /// also the pages' copies or blocks. `EFAULT` or `EFBIG`: the file ends before. `EINVAL`: the kernel is older
    /// than 5.14. Callers may ignore failures.
    pub fn populate(&self, offset: u64, len: usize, write: bool) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let start = offset & !(PAGE as u64 - 1);
        let length = (offset - start) as usize + len;
        let address = self.ptr(start, length).ok_or(Error::new(libc::EFBIG))?;
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: within our mapping; populating changes no byte.
        Ok(unsafe { rustix::mm::madvise(address.cast(), length.next_multiple_of(PAGE), advice) }?)
    }
}

/// Maps the file at an address that the kernel chooses.
fn anywhere(fd: BorrowedFd<'_>, len: usize, protection: ProtFlags, flags: MapFlags) -> rustix::io::Result<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    Ok(unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, flags, fd, 0) }?.cast())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.ahead.take()); // waits for its threads
        if self.len == 0 {
            return;
        }
        // SAFETY: our mapping, made in `reserve` with this length. Callers keep no pointers into it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        address_space::give(self.len);
        huge::note_unmapped(self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmem::test_file;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_grows_under_its_mapping() {
        for folder in ["/dev/shm", "."] {
            let file = test_file(folder, 0);
            let map = Mapping::read_write(file.as_fd(), Domain::Process, 0).unwrap();
            assert_eq!((map.reserved(), map.is_writable()), (RESERVATION, true));
            file.set_len(1 << 30).unwrap();
            let at = map.ptr((1 << 30) - 8, 8).unwrap();
            // SAFETY: within the mapping and the file.
            unsafe { at.write_bytes(5, 8) };
            let mut got = [0; 8];
            file.read_exact_at(&mut got, (1 << 30) - 8).unwrap();
            assert_eq!(got, [5; 8]);
            drop(file);
            // SAFETY: the mapping holds the file.
            assert_eq!(unsafe { at.read() }, 5);
        }
    }

    #[test]
    fn pointers_end_with_the_reservation() {
        let file = test_file("/dev/shm", 0);
        let map = Mapping::reserve(file.as_fd(), Domain::Process, 0, false, 1 << 20).unwrap();
        let end = 1 << 20;
        assert_eq!(map.ptr(0, end), Some(map.base()));
        assert!(map.ptr(end as u64, 0).is_some());
        assert!(map.ptr(end as u64, 1).is_none() && map.ptr(1, end).is_none());
        assert!(map.ptr(u64::MAX, 2).is_none() && map.ptr(u64::MAX - 5, usize::MAX).is_none());
        assert_eq!(map.offset_of(map.base() as usize + 77), Some(77));
        assert_eq!(map.offset_of(map.base() as usize + end), None);
        assert_eq!(map.offset_of(map.base() as usize - 1), None);
    }

    #[test]
    fn a_large_file_is_reserved_twice_and_a_scarce_address_space_once() {
        let file = test_file("/dev/shm", 1 << 40);
        assert_eq!(Mapping::read_only(file.as_fd(), Domain::Process, 1 << 40).unwrap().reserved(), 2 << 40);
        // In 128 TiB of address space (x86-64) 80 TiB fit once but not twice; in 256 TiB (Arm) perhaps twice.
        let file = test_file("/dev/shm", 80 << 40);
        let map = Mapping::read_only(file.as_fd(), Domain::Process, 80 << 40).unwrap();
        assert!(map.reserved() >= 80 << 40);
        let refused = Mapping::read_only(file.as_fd(), Domain::Process, u64::MAX).unwrap_err();
        assert_eq!(refused.errno(), libc::EFBIG);
    }

    #[test]
    fn populating_stops_at_the_end_of_the_file() {
        let file = test_file("/dev/shm", 10_000);
        let map = Mapping::read_write(file.as_fd(), Domain::Process, 10_000).unwrap();
        map.populate(5000, 3000, true).unwrap();
        map.populate(0, 10_000, false).unwrap();
        map.populate(0, 0, false).unwrap();
        assert!(map.populate(0, 1 << 20, false).is_err());
        assert_eq!(map.populate(RESERVATION as u64, 1, false).unwrap_err().errno(), libc::EFBIG);
    }

    #[test]
    fn advice_changes_no_byte() {
        let file = test_file(".", 10_000);
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let map = Mapping::read_write(file.as_fd(), Domain::PageCache, 10_000).unwrap();
        use crate::map::Advice::*;
        for advice in [Sequential, Random, Normal, WillNeed, DontNeed] {
            map.advise(5000, 5000, advice);
            map.advise(u64::MAX - 5, 10, advice);
            // SAFETY: within the mapping and the file.
            assert_eq!(unsafe { map.base().add(6000).read_volatile() }, 7, "{advice:?}");
        }
    }

    #[test]
    fn a_descriptor_of_the_wrong_kind_is_an_error() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let error = Mapping::read_write(file.as_fd(), Domain::PageCache, 1).unwrap_err();
        assert_eq!(error.errno(), libc::EACCES);
        assert!(Mapping::reserve(file.as_fd(), Domain::PageCache, 1, false, 4096).is_ok());
    }
}
