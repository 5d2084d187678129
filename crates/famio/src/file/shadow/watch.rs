//! Which pages of a map were stored to since the last look, by asynchronous write protection of `userfaultfd(2)`
//! (Linux 6.7 and later). The program notices nothing: a store removes a page's protection without a signal. If it is
//! not available, all of a map is compared.

use super::mapped_range::MappedRange;
use crate::error::{Error, Result};
use crate::file::state::page_tables::PageTables;
use crate::file::state::shadow_pages::PAGE;
use crate::sys::{InternalFd, check, syscall};
use core::ops::Range;
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
    tables: PageTables,
    /// The kernel can look for pages and protect them again by one call, which tells exactly which were stored to:
    /// before Linux 6.18, a page that was just being moved could be missed.
    scans: bool,
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
        let scans = crate::sys::is_kernel_from(6, 18);
        let watch = Self { faults, tables: PageTables::open_untried()?, scans };
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
        let advise = |advice: i32| {
            // SAFETY: a map of the program's, whose bytes stay.
            check(unsafe { syscall(libc::SYS_madvise, [start, end - start, advice as usize, 0, 0, 0]) }).map(|_| ())
        };
        // A huge page goes from the page tables without a trace when it is split. `EINVAL`: there are none.
        let _ = advise(libc::MADV_NOHUGEPAGE);
        // A child must not store to it unnoticed.
        advise(libc::MADV_DONTFORK)
    }

    /// The addresses in `pages` that were stored to since the last call, or may have been. First protected, then looked
    /// at by the caller: a store in between is seen twice rather than never. `in_one_call`: if the kernel can do that.
    fn take(&self, pages: Range<usize>, in_one_call: bool) -> Result<Vec<Range<usize>>> {
        if in_one_call && self.scans {
            return self.tables.stored(pages);
        }
        let runs = self.unprotected(pages)?;
        runs.iter().try_for_each(|run| self.protect(run.start, run.end))?;
        Ok(runs)
    }

    /// The runs of pages that are not protected, by looking at each page. Those without a page table count.
    fn unprotected(&self, pages: Range<usize>) -> Result<Vec<Range<usize>>> {
        let mut entries = vec![0u8; ENTRIES * 8];
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut at = pages.start;
        while at < pages.end {
            let count = ENTRIES.min((pages.end - at) / PAGE);
            let got = rustix::io::pread(self.tables.pagemap(), &mut entries[..count * 8], (at / PAGE * 8) as u64)? / 8;
            if got == 0 {
                return Err(Error::new(libc::EIO));
            }
            for entry in entries[..got * 8].chunks_exact(8) {
                if entry.try_into().map(u64::from_le_bytes).unwrap_or(0) & PROTECTED == 0 {
                    match runs.last_mut() {
                        Some(last) if last.end == at => last.end += PAGE,
                        _ => runs.push(at..at + PAGE),
                    }
                }
                at += PAGE;
            }
        }
        Ok(runs)
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

/// As [`begin`], for a map that the program has not got yet, so that nothing was stored through it. `size` and
/// `next_data`: as in [`take`].
pub(super) fn begin_new(range: &mut MappedRange, size: u64, next_data: impl Fn(u64) -> Result<Option<u64>>) {
    begin(range);
    if range.watched {
        take(range, size, next_data);
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
/// `next_data`: the first offset of the shadow from the given one on that was ever stored to.
pub(super) fn take(
    range: &mut MappedRange,
    size: u64,
    next_data: impl Fn(u64) -> Result<Option<u64>>,
) -> Vec<Range<u64>> {
    let in_file = range.in_file();
    let end = range.end.min(range.start + size.saturating_sub(in_file.start).next_multiple_of(PAGE as u64) as usize);
    let all = !range.watched || core::mem::take(&mut range.whole);
    let looked = reach(range, end, all, next_data).and_then(|pages| {
        let watch = watch().filter(|_| range.watched).ok_or(Error::new(libc::ENOSYS))?;
        match (all, pages.is_empty()) {
            (_, true) => Ok(Vec::new()),
            // Watched from here on: stores during the comparison show next time.
            (true, _) => watch.protect(pages.start, pages.end).map(|()| Vec::new()),
            _ => watch.take(pages, !range.exact),
        }
    });
    range.watched &= looked.is_ok();
    let in_file_of = |pages: Range<usize>| {
        let at = in_file.start + (pages.start - range.start) as u64;
        at..at + pages.len() as u64
    };
    match looked {
        Ok(runs) if !all => runs.into_iter().map(in_file_of).collect(),
        _ => vec![in_file],
    }
}

/// A step by which more is watched.
const STEP: usize = 256 << 10;

/// The pages that are to be looked at: up to the last ones that were ever stored to, in whole steps. What lies behind,
/// up to the end of the file, may be long, and come and go with each change of the size: to watch it would take page
/// tables, which each cut would have to clear.
fn reach(
    range: &mut MappedRange,
    end: usize,
    anew: bool,
    next_data: impl Fn(u64) -> Result<Option<u64>>,
) -> Result<Range<usize>> {
    let start = range.start;
    let mut reach = if anew { start } else { range.reach.max(start) };
    while range.watched && reach < end {
        let Some(data) = next_data(range.offset + (reach - start) as u64)? else { break };
        let data = start.saturating_add(data.saturating_sub(range.offset) as usize) & !(PAGE - 1);
        if data >= end {
            break;
        }
        reach = data.max(reach).saturating_add(STEP).min(end);
    }
    range.reach = reach.min(end);
    Ok(start..range.reach)
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
    /// The offset in the file at which the map begins.
    const OFFSET: u64 = 5 * PAGE as u64;

    struct Watched {
        memory: crate::sys::InternalFd,
        map: Mapping,
        range: MappedRange,
    }

    impl Watched {
        /// A map of this many bytes with one store, in page 2; `None`: the kernel cannot say what was stored.
        fn new(size: u64) -> Option<Self> {
            let memory = crate::file::state::shadow_pages::new_memory(size).unwrap();
            let map = Mapping::reserve(memory.as_fd(), Domain::Process, size, true, 0).unwrap();
            let start = map.base() as usize;
            let mut range = MappedRange {
                start,
                end: start + size as usize,
                key: (0, 78),
                offset: OFFSET,
                prot: libc::PROT_READ | libc::PROT_WRITE,
                may_store: true,
                stores: true,
                copies: false,
                shadow: true,
                cow: false,
                watched: false,
                reach: 0,
                exact: false,
                whole: false,
                file: Default::default(),
                ahead: Default::default(),
            };
            begin(&mut range);
            let watched = Self { memory, map, range };
            watched.store(2);
            if !watched.range.watched {
                eprintln!("SKIPPED: this kernel cannot say what was stored");
                return None;
            }
            Some(watched)
        }

        fn store(&self, page: usize) {
            // SAFETY: within the map.
            unsafe { self.map.base().add(page * PAGE + 77).write_volatile(1) }
        }

        /// What was stored in the map's first `size` bytes since the last call.
        fn take(&mut self, size: u64) -> Vec<Range<u64>> {
            let memory = &self.memory;
            take(&mut self.range, OFFSET + size, |at| {
                Ok(crate::file::state::shadow_pages::next_data(memory, at - OFFSET)?.map(|at| at + OFFSET))
            })
        }
    }

    fn page(page: u64) -> u64 {
        OFFSET + page * PAGE as u64
    }

    #[test]
    fn only_what_was_stored_since_is_looked_at() {
        for exact in [false, true] {
            let Some(mut watched) = Watched::new(2 * SIZE) else { return };
            watched.range.exact = exact;
            assert_eq!(watched.take(SIZE), [watched.range.in_file()]);
            assert!(watched.range.watched && watched.take(SIZE).is_empty());
            [3, 4, 15, 16].into_iter().for_each(|page| watched.store(page));
            // The end of the file is just before page 16.
            assert_eq!(watched.take(SIZE), [page(3)..page(5), page(15)..page(16)]);
            assert!(watched.take(SIZE).is_empty());
            // When the file has grown, pages that were not looked at before are.
            assert_eq!(watched.take(2 * SIZE).first().map(|range| range.start), Some(page(16)));
            assert!(watched.take(2 * SIZE).is_empty());
            watched.store(3);
            end(&mut watched.range);
            assert_eq!(watched.take(SIZE), [watched.range.in_file()]);
        }
    }

    /// A program may make its file half as long again before each of its stores, and cut it afterwards.
    #[test]
    fn an_empty_end_of_the_file_is_not_watched() {
        const LONG: u64 = 1 << 30;
        let Some(mut watched) = Watched::new(LONG) else { return };
        let behind = |watched: &Watched| watched.range.reach - watched.range.start;
        watched.take(SIZE);
        assert!(watched.take(LONG).is_empty());
        assert!(behind(&watched) <= STEP + 2 * PAGE, "{}", behind(&watched));
        watched.store(100_000);
        let stored = |taken: Vec<Range<u64>>| taken.iter().any(|range| range.contains(&page(100_000)));
        assert!(stored(watched.take(LONG)));
        assert!(behind(&watched) <= 100_000 * PAGE + STEP);
        watched.store(100_000);
        assert!(stored(watched.take(LONG)) && watched.take(LONG).is_empty());
        // Cut, and longer again.
        rustix::fs::ftruncate(&watched.memory, 10 * PAGE as u64).unwrap();
        rustix::fs::ftruncate(&watched.memory, LONG).unwrap();
        watched.take(10 * PAGE as u64);
        watched.store(100_000);
        watched.store(9);
        let taken = watched.take(LONG);
        assert!(taken.iter().any(|range| range.contains(&page(9))) && stored(taken));
    }

    #[test]
    fn page_tables_that_have_gone_hide_no_store() {
        const LARGE: usize = 2 << 20;
        let Some(mut watched) = Watched::new(16 << 20) else { return };
        watched.take(16 << 20);
        (0..4096).for_each(|page| watched.store(page));
        watched.take(16 << 20);
        let first = watched.range.start.next_multiple_of(LARGE);
        let pages = (first - watched.range.start) / PAGE..(first - watched.range.start + 2 * LARGE) / PAGE;
        pages.clone().for_each(|page| watched.store(page));
        watched.range.exact = true; // as the hook of `madvise` does
        let dropped = [first, 2 * LARGE, libc::MADV_DONTNEED as usize, 0, 0, 0];
        // SAFETY: our map of memory, whose bytes stay.
        check(unsafe { syscall(libc::SYS_madvise, dropped) }).unwrap();
        let dropped = page(pages.start as u64)..page(pages.end as u64);
        assert_eq!(watched.take(16 << 20), std::slice::from_ref(&dropped));
        assert!(watched.take(16 << 20).is_empty());
    }
}
