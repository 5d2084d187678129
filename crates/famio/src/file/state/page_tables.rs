//! Which pages of a map were stored to: copied, if it is a private map of a file. The kernel's page tables say so; the
//! kernel walks them without looking at untouched parts (`PAGEMAP_SCAN`, Linux 6.7 and later).

use super::shadow_pages::PAGE;
use crate::error::{Error, Result};
use crate::sys::{InternalFd, check, syscall};
use core::ops::Range;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd};

/// The `ioctl(2)` of `/proc/PID/pagemap`, and its categories of pages; from `linux/fs.h`.
mod scan {
    pub const REQUEST: usize = 0xc060_6610;
    /// Write-protects the pages found, so that a later store shows.
    pub const PROTECT: u64 = 1;
    /// Fails if a mapping is not watched.
    pub const ONLY_WATCHED: u64 = 1 << 1;
    /// Stored to since [`PROTECT`].
    pub const WRITTEN: u64 = 1 << 1;
    /// The file's own page, not a copy.
    pub const FILE: u64 = 1 << 2;
    pub const PRESENT: u64 = 1 << 3;
    pub const SWAPPED: u64 = 1 << 4;
    /// The shared page of zeros, with which anonymous memory begins.
    pub const ZEROS: u64 = 1 << 5;
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    found: u64,
    found_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<Argument>() == 96 && size_of::<Found>() == 24);

/// Runs of pages that are taken from the kernel at a time: 3 KiB of stack.
const RUNS: usize = 128;

/// The copied pages to look for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::file) enum Wanted {
    /// All of them.
    All,
    /// In a map that the kernel watches: those stored to since the last such call. They are watched again.
    StoredSince,
}

/// This process's page tables.
pub(in crate::file) struct PageTables(InternalFd);

impl PageTables {
    /// # Errors
    /// `ENOTTY` and others: the kernel lacks the call.
    pub fn open() -> Result<Self> {
        let tables = Self::open_untried()?;
        // Tries the call, with a page that certainly exists.
        let here = (&raw const tables as usize) & !(PAGE - 1);
        tables.copied(here..here + PAGE, Wanted::All)?;
        Ok(tables)
    }

    /// As [`open`](Self::open), whatever the kernel can do.
    pub fn open_untried() -> Result<Self> {
        Ok(Self(crate::sys::openat(CWD, c"/proc/self/pagemap", OFlags::RDONLY, Mode::empty())?))
    }

    /// The descriptor of `/proc/self/pagemap`.
    pub fn pagemap(&self) -> &InternalFd {
        &self.0
    }

    /// Addresses of copied pages in `range`, in order.
    pub fn copied(&self, range: Range<usize>, wanted: Wanted) -> Result<Vec<Range<usize>>> {
        if crate::pmem::TestHooks::current().unscanned {
            return Err(Error::new(libc::ENOTTY));
        }
        let since = wanted == Wanted::StoredSince;
        self.scan(
            range,
            &Argument {
                flags: if since { scan::PROTECT } else { 0 },
                inverted: scan::FILE | scan::ZEROS,
                all_of: scan::FILE | scan::ZEROS | if since { scan::WRITTEN } else { 0 },
                any_of: scan::PRESENT | scan::SWAPPED,
                returned: scan::PRESENT,
                ..Argument::default()
            },
        )
    }

    /// Addresses in `range`, in shared maps of memory that the kernel watches, that were stored to since the last
    /// call, in order. They are watched again. A page table that has gone with all its pages does not show.
    ///
    /// # Errors
    /// `EPERM`: something in the range is not watched.
    pub fn stored(&self, range: Range<usize>) -> Result<Vec<Range<usize>>> {
        // Exactly these words: then the kernel looks at each page's protection and at nothing else, so that a page
        // that it has taken out of the page tables counts as stored to.
        self.scan(
            range,
            &Argument {
                flags: scan::PROTECT | scan::ONLY_WATCHED,
                all_of: scan::WRITTEN,
                returned: scan::WRITTEN,
                ..Argument::default()
            },
        )
    }

    /// The pages that match, in runs.
    fn scan(&self, range: Range<usize>, wanted: &Argument) -> Result<Vec<Range<usize>>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut found = [Found::default(); RUNS];
        let mut at = range.start;
        while at < range.end {
            let mut argument = Argument {
                size: size_of::<Argument>() as u64,
                start: at as u64,
                end: range.end as u64,
                found: found.as_mut_ptr() as u64,
                found_len: RUNS as u64,
                ..*wanted
            };
            let tables = self.0.get()?;
            let call = [tables.as_fd().as_raw_fd() as usize, scan::REQUEST, &raw mut argument as usize, 0, 0, 0];
            // SAFETY: the argument has its own length, and the room for runs.
            let count = check(unsafe { syscall(libc::SYS_ioctl, call) })?;
            for run in &found[..count.min(RUNS)] {
                let run = run.start as usize..run.end as usize;
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
            let walked = argument.walk_end as usize;
            if walked <= at {
                break;
            }
            at = walked;
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::shadow::request::map_at;
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 64;

    fn mapped(file: &std::fs::File) -> usize {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        map_at(0, PAGES * PAGE, protection, flags, file.as_raw_fd(), 0).unwrap()
    }

    fn pages(base: usize, runs: Vec<Range<usize>>) -> Vec<usize> {
        runs.into_iter().flat_map(|run| (run.start - base) / PAGE..(run.end - base) / PAGE).collect()
    }

    /// Everything that `cow` relies on, so that a kernel that behaves otherwise is found here.
    #[test]
    fn only_copied_pages_are_found_and_all_others_follow_the_file() {
        for folder in ["/dev/shm", "/var/tmp"] {
            let path = format!("{folder}/famio-copied-{}", std::process::id());
            let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            file.write_all_at(&vec![1; PAGES / 2 * PAGE], 0).unwrap();
            file.set_len((PAGES * PAGE) as u64).unwrap(); // and holes
            let Ok(tables) = PageTables::open() else {
                eprintln!("SKIPPED: this kernel cannot say which pages were copied");
                return;
            };
            let base = mapped(&file);
            // SAFETY: within the map.
            let at = |page: usize| unsafe { (base as *mut u8).add(page * PAGE) };
            // SAFETY: as above.
            let get = |page: usize| unsafe { at(page).read_volatile() };
            assert_eq!(get(3) + get(PAGES - 3), 1);
            assert!(
                tables.copied(base..base + PAGES * PAGE, Wanted::All).unwrap().is_empty(),
                "what was read is no copy"
            );
            // SAFETY: as above.
            [5, 6, PAGES - 5].iter().for_each(|&page| unsafe { at(page).write_volatile(2) });
            let found = tables.copied(base..base + PAGES * PAGE, Wanted::All).unwrap();
            assert_eq!(pages(base, found), [5, 6, PAGES - 5]);
            // A page that was read, one that was not, and a hole show what is written to the file; a copy does not.
            for page in [3, 4, 5, PAGES - 3, PAGES - 5] {
                file.write_all_at(&[9; 10], (page * PAGE) as u64).unwrap();
            }
            let values: Vec<u8> = [3, 4, 5, 6, PAGES - 3, PAGES - 5].iter().map(|&page| get(page)).collect();
            assert_eq!(values, [9, 9, 2, 2, 9, 2]);
            // A dropped copy shows the file again.
            // SAFETY: within the map.
            let given = unsafe { libc::madvise(at(5).cast(), PAGE, libc::MADV_DONTNEED) };
            assert_eq!((given, get(5), get(6)), (0, 9, 2));
            let found = tables.copied(base..base + PAGES * PAGE, Wanted::All).unwrap();
            assert_eq!(pages(base, found), [6, PAGES - 5]);
            // SAFETY: the map, which is not used any more.
            unsafe { libc::munmap(base as *mut libc::c_void, PAGES * PAGE) };
        }
    }
}
