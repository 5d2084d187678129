//! Which pages of a map were stored to since the last look, by asynchronous write protection of `userfaultfd(2)`
//! (Linux 6.7 and later). The program notices nothing: a store removes a page's protection without a signal. If it is
//! not available, all of a map is compared.

use super::mapped_range::MappedRange;
use crate::error::{Error, Result};
use crate::file::parts::shadow_pages::PAGE;
use crate::sys::{InternalFd, check, syscall};
use core::ops::Range;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Entries of `pagemap` that are read at a time.
const ENTRIES: usize = 4096;
/// In `pagemap`: write-protected by us, and not stored to since. Also if nothing is mapped yet.
const PROTECTED: u64 = 1 << 57;

/// Constants of `linux/userfaultfd.h`.
mod uffd {
    pub const USER_MODE_ONLY: usize = 1;
    pub const API: u64 = 0xaa;
    /// Protection of shared memory, of pages that do not exist yet, and without a handler.
    pub const FEATURES: u64 = 1 | 1 << 12 | 1 << 13 | 1 << 15;
    pub const DO_API: usize = 0xc018_aa3f;
    pub const DO_REGISTER: usize = 0xc020_aa00;
    pub const DO_PROTECT: usize = 0xc018_aa06;
    pub const REGISTER_FOR_WRITES: u64 = 2;
    pub const PROTECT: u64 = 1;
}

struct Watch {
    faults: InternalFd,
    pagemap: InternalFd,
}

/// One per process. Maps of a forked child are not watched.
static WATCH: OnceLock<Option<Watch>> = OnceLock::new();

fn watch() -> Option<&'static Watch> {
    if crate::pmem::TestHooks::current().unwatched {
        return None;
    }
    if WATCH.get().is_none() {
        let _held = crate::thread::Held::of_process(); // uninterrupted: a signal handler would wait for it
        WATCH.get_or_init(|| Watch::open().ok());
    }
    WATCH.get()?.as_ref()
}

impl Watch {
    fn open() -> Result<Self> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize | uffd::USER_MODE_ONLY;
        let faults = crate::sys::internal::make("anon_inode:[userfaultfd]", || {
            // SAFETY: no memory is passed; the descriptor has no other owner.
            check(unsafe { syscall(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]) })
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
                .map_err(|error| rustix::io::Errno::from_raw_os_error(error.errno()))
        })?;
        let pagemap = crate::sys::openat(CWD, c"/proc/self/pagemap", OFlags::RDONLY, Mode::empty())?;
        let watch = Self { faults, pagemap };
        watch.control(uffd::DO_API, &mut [uffd::API, uffd::FEATURES, 0])?;
        Ok(watch)
    }

    fn control<const N: usize>(&self, request: usize, argument: &mut [u64; N]) -> Result<()> {
        let fd = self.faults.as_raw_fd() as usize;
        // SAFETY: the argument is as long as the request's number says.
        check(unsafe { syscall(libc::SYS_ioctl, [fd, request, argument.as_mut_ptr() as usize, 0, 0, 0]) }).map(|_| ())
    }

    fn protect(&self, start: usize, end: usize) -> Result<()> {
        self.set_protection(start, end, uffd::PROTECT)
    }

    fn set_protection(&self, start: usize, end: usize, how: u64) -> Result<()> {
        self.control(uffd::DO_PROTECT, &mut [start as u64, (end - start) as u64, how])
    }

    fn begin(&self, start: usize, end: usize) -> Result<()> {
        self.control(uffd::DO_REGISTER, &mut [start as u64, (end - start) as u64, uffd::REGISTER_FOR_WRITES, 0])?;
        // SAFETY: a map of the program's. A child must not store to it unnoticed.
        check(unsafe { syscall(libc::SYS_madvise, [start, end - start, libc::MADV_DONTFORK as usize, 0, 0, 0]) })
            .map(|_| ())
    }

    /// Calls `visit` with each run of pages of `start..end` that are not protected.
    fn stored(&self, start: usize, end: usize, mut visit: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
        let mut entries = vec![0u8; ENTRIES * 8];
        let (mut at, mut run) = (start, None);
        while at < end {
            let pages = ENTRIES.min((end - at) / PAGE);
            let got = rustix::io::pread(&self.pagemap, &mut entries[..pages * 8], (at / PAGE * 8) as u64)? / 8;
            if got == 0 {
                return Err(Error::new(libc::EIO));
            }
            for (index, entry) in entries[..got * 8].chunks_exact(8).enumerate() {
                let here = at + index * PAGE;
                let protected = entry.try_into().map(u64::from_le_bytes).unwrap_or(0) & PROTECTED != 0;
                match run {
                    None if !protected => run = Some(here),
                    Some(from) if protected => {
                        visit(from..here)?;
                        run = None;
                    }
                    _ => {}
                }
            }
            at += got * PAGE;
        }
        run.map_or(Ok(()), |from| visit(from..end))
    }
}

/// A range may be stored to from now on: watches it, if possible. Everything in it counts as stored.
pub(super) fn begin(range: &mut MappedRange) {
    range.watched = false;
    range.whole = true;
    if range.stores && range.shadow {
        range.watched = watch().is_some_and(|watch| watch.begin(range.start, range.end).is_ok());
    }
}

/// Watches memory that was added to a watched map.
pub(super) fn join(start: usize, end: usize) -> Result<()> {
    watch().ok_or(Error::new(libc::ENOSYS))?.begin(start, end)
}

/// These pages are about to go: removes traces of having been watched.
pub(super) fn let_go(start: usize, end: usize) -> Result<()> {
    watch().ok_or(Error::new(libc::ENOSYS))?.set_protection(start, end, 0)
}

/// The parts of the file, below `size`, in which the program may have stored through this map since the last call.
pub(super) fn take(range: &mut MappedRange, size: u64) -> Vec<Range<u64>> {
    let in_file = range.in_file();
    let end = range.end.min(range.start + size.saturating_sub(in_file.start).next_multiple_of(PAGE as u64) as usize);
    if !range.watched || core::mem::take(&mut range.whole) {
        // Watched from here on: stores during the comparison show next time. Not beyond the end of the file, where a
        // program may have mapped terabytes: page tables cost memory.
        range.watched &= end <= range.start || watch().is_some_and(|watch| watch.protect(range.start, end).is_ok());
        return vec![in_file];
    }
    let mut parts = Vec::new();
    let looked = watch().ok_or(Error::new(libc::ENOSYS)).and_then(|watch| {
        watch.stored(range.start, end, |pages| {
            // First protected, then looked at: a store in between is seen twice rather than never.
            watch.protect(pages.start, pages.end)?;
            let at = in_file.start + (pages.start - range.start) as u64;
            parts.push(at..at + pages.len() as u64);
            Ok(())
        })
    });
    if looked.is_ok() {
        return parts;
    }
    range.watched = false;
    vec![in_file]
}

/// Before a fork: a child's stores are only found by comparing everything. It gets no private maps.
pub(super) fn end(range: &mut MappedRange) {
    if !range.cow && core::mem::take(&mut range.watched) {
        let arguments = [range.start, range.end - range.start, libc::MADV_DOFORK as usize, 0, 0, 0];
        // SAFETY: of a map of the program's, as it was before.
        unsafe { syscall(libc::SYS_madvise, arguments) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Mapping;
    use crate::pmem::Domain;
    use std::os::fd::AsFd;

    const SIZE: u64 = 16 * PAGE as u64;

    fn watched(map: &Mapping) -> MappedRange {
        let start = map.base() as usize;
        let mut range = MappedRange {
            start,
            end: start + 2 * SIZE as usize,
            key: (0, 78),
            offset: 5 * PAGE as u64,
            prot: libc::PROT_READ | libc::PROT_WRITE,
            may_store: true,
            stores: true,
            shadow: true,
            cow: false,
            watched: false,
            whole: false,
            file: Default::default(),
            ahead: Default::default(),
        };
        begin(&mut range);
        range
    }

    #[test]
    fn only_what_was_stored_since_is_looked_at() {
        let memory = crate::file::parts::shadow_pages::new_memory(2 * SIZE).unwrap();
        let map = Mapping::reserve(memory.as_fd(), Domain::Process, 2 * SIZE, true, 0).unwrap();
        let store = |page: usize| {
            // SAFETY: within the map.
            unsafe { map.base().add(page * PAGE + 77).write_volatile(1) }
        };
        store(2);
        let mut range = watched(&map);
        if !range.watched {
            eprintln!("SKIPPED: this kernel cannot say what was stored");
            return;
        }
        let size = 5 * PAGE as u64 + SIZE;
        let page = |page: u64| (5 + page) * PAGE as u64;
        assert_eq!(take(&mut range, size).first(), Some(&range.in_file()));
        assert!(range.watched && take(&mut range, size).is_empty());
        [3, 4, 15, 16].into_iter().for_each(store);
        // The end of the file is just before page 16.
        assert_eq!(take(&mut range, size), [page(3)..page(5), page(15)..page(16)]);
        assert!(take(&mut range, size).is_empty());
        // When the file has grown, pages that were not looked at before are.
        assert_eq!(take(&mut range, size + SIZE).first(), Some(&(page(16)..page(32))));
        assert!(take(&mut range, size + SIZE).is_empty());
        store(3);
        end(&mut range);
        assert_eq!(take(&mut range, size).first(), Some(&range.in_file()));
    }
}
