//! Huge pages. In a virtual machine, random access to more memory than the processor's TLB covers costs two
//! page-table walks per cache line; and tmpfs gives no huge pages by itself.

use core::ffi::c_void;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// Attempts at an address that no other thread takes first.
const TRIES: usize = 16;
const PAGE: usize = 4096;

/// Maps the front of a file at an address where its huge pages can be mapped as such. If other threads take the found
/// addresses [`TRIES`] times, it is mapped at any page.
pub(crate) fn aligned(fd: impl AsFd, len: usize, protection: ProtFlags, flags: MapFlags) -> Result<*mut u8> {
    let mut tries = 1;
    loop {
        // SAFETY: a hint replaces nothing.
        let at = unsafe { mmap(free_place(len)?, len, protection, flags, &fd, 0) }?;
        if at.addr().is_multiple_of(HUGE) || tries == TRIES {
            return Ok(at.cast());
        }
        // SAFETY: mapped just now and not published.
        unsafe { munmap(at, len) }?;
        tries += 1;
    }
}

/// An address aligned to a huge page where `len` bytes are free: a hint, since another thread may take it meanwhile.
/// Replacing a reserved range is no way: the kernel may unmap it and then fail, and another thread's map there could
/// not be told from ours. (`MAP_FIXED_NOREPLACE` does not work with `MAP_SHARED_VALIDATE`.)
fn free_place(len: usize) -> Result<*mut c_void> {
    let left = LEFT.iter().map(|place| place.swap(0, Relaxed)).find(|&at| at != 0);
    if let Some(at) = left {
        return Ok(without_provenance_mut(at));
    }
    let room = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
    let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { mmap_anonymous(null_mut(), room, ProtFlags::empty(), private) }?;
    // SAFETY: what was just mapped.
    unsafe { munmap(start, room) }?;
    Ok(without_provenance_mut(start.addr().next_multiple_of(HUGE)))
}

/// Where mappings of the library were: places that are probably still free.
static LEFT: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// A mapping at this address has just ended.
pub(crate) fn note_unmapped(at: *mut u8) {
    if at.addr().is_multiple_of(HUGE)
        && let Some(place) = LEFT.iter().find(|place| place.load(Relaxed) == 0)
    {
        place.store(at.addr(), Relaxed);
    }
}

/// `MADV_COLLAPSE` (Linux 6.1): copies small pages to a huge one and maps that, whatever the system's default for
/// huge pages is.
const COLLAPSE: usize = 25;

/// Collapses the whole huge pages within `at..at + len`. The bytes stay the same, also while others use them; calls
/// on a page wait while it is copied. Advice: false if the kernel or the file system cannot, or memory is short;
/// nothing is lost then. The range must have memory: holes would get some.
pub(crate) fn gather(at: *mut u8, len: usize) -> bool {
    let start = (at as usize).next_multiple_of(HUGE);
    let end = (at as usize + len) & !(HUGE - 1);
    (start..end).step_by(HUGE).all(|page| {
        touch_the_next();
        collapse(page)
    })
}

fn collapse(page: usize) -> bool {
    let advise = |len: usize, advice: usize| {
        // SAFETY: the caller's mapping; the kernel moves the bytes to other pages under the same addresses.
        crate::sys::check(unsafe { crate::sys::syscall(libc::SYS_madvise, [page, len, advice, 0, 0, 0]) }).is_ok()
    };
    // On a tmpfs with `huge=always` or `huge=within_size` the file may have a huge page already. If it was only
    // allocated, it has not been zeroed yet, and Linux (6.18) would map it with whatever lies there. A touch zeroes it.
    advise(PAGE, libc::MADV_POPULATE_READ as usize) && advise(HUGE, COLLAPSE)
}

/// Takes a huge page, touches it, and gives it back: the kernel keeps it for the next who asks on this processor. In
/// a virtual machine, a page that is touched for the first time comes from the host, some microseconds for each 4 KiB:
/// nobody waits for that here, while everybody who uses a page that is being collapsed would.
fn touch_the_next() {
    let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let Ok(room) = (unsafe { mmap_anonymous(null_mut(), 2 * HUGE, protection, private) }) else { return };
    crate::sys::keep_from_children(room.cast(), 2 * HUGE);
    let page = room.map_addr(|at| at.next_multiple_of(HUGE));
    // SAFETY: within what was just mapped, and of no use to anybody else.
    unsafe {
        if madvise(page, HUGE, Advice::LinuxHugepage).is_ok() {
            page.cast::<u8>().write_volatile(1);
        }
        let _ = munmap(room, 2 * HUGE);
    }
}

/// Allocates memory for `offset..offset + len` of a file on tmpfs, a hole that is mapped at `at`: in huge pages as
/// far as they fit. Costs a tenth of allocating small pages and collapsing them, since the kernel copies only one.
/// Other pages are not touched. False: the memory is allocated, but not in huge pages.
///
/// # Errors
/// `ENOSPC`: there is not enough. Some of it may have been allocated.
pub(crate) fn take(file: BorrowedFd<'_>, at: *mut u8, offset: u64, len: usize) -> Result<bool> {
    let end = at as usize + len;
    let whole = (at as usize).next_multiple_of(HUGE)..end & !(HUGE - 1);
    let small = |from: usize, to: usize| match to.saturating_sub(from) {
        0 => Ok(()),
        len => fallocate(file, FallocateFlags::KEEP_SIZE, offset + (from - at as usize) as u64, len as u64),
    };
    if whole.is_empty() {
        return small(at as usize, end).map(|()| true);
    }
    small(at as usize, whole.start)?;
    for page in whole.clone().step_by(HUGE) {
        // One small page of it: without any, the kernel has nothing to collapse.
        small(page, page + PAGE)?;
        if !collapse(page) {
            return small(page, end).map(|()| false);
        }
    }
    small(whole.end, end).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmem::test_file;
    use famio_test_support::place::{self, Place};

    fn map(len: usize) -> *mut u8 {
        let file = test_file("/dev/shm", len as u64);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        aligned(&file, len, protection, MapFlags::SHARED | MapFlags::NORESERVE).unwrap()
    }

    #[test]
    fn bytes_stay_what_they_are_in_huge_pages() {
        let len = 3 * HUGE + 4096;
        let at = map(len);
        assert!((at as usize).is_multiple_of(HUGE));
        // SAFETY: the mapping and the file are that long.
        let bytes = unsafe { core::slice::from_raw_parts_mut(at, len) };
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 4096 + i) as u8);
        // Nothing is lost if the kernel cannot.
        let _ = gather(at.wrapping_add(4096), len - 4096);
        assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i / 4096 + i) as u8));
        // SAFETY: ours, and not used any more.
        unsafe { munmap(at.cast(), len) }.unwrap();
    }

    #[test]
    fn a_hole_gets_memory_as_a_whole() {
        let len = 3 * HUGE;
        let file = test_file("/dev/shm", len as u64);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = aligned(&file, len, protection, MapFlags::SHARED | MapFlags::NORESERVE).unwrap();
        let (from, size) = (PAGE, 2 * HUGE);
        take(file.as_fd(), at.wrapping_add(from), from as u64, size).unwrap();
        let blocks = rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512;
        assert!((size..=size + HUGE).contains(&blocks), "{blocks} bytes of memory for {size}");
        // SAFETY: the mapping and the file are that long.
        assert!(unsafe { core::slice::from_raw_parts(at, len) }.iter().all(|&byte| byte == 0));
        // SAFETY: ours, and used no more.
        unsafe { munmap(at.cast(), len) }.unwrap();
    }

    /// On a tmpfs that has huge pages by itself, memory that was allocated and not touched yet once showed what others
    /// had left there.
    #[test]
    fn memory_is_zeroed_on_a_tmpfs_with_huge_pages() {
        const PAGES: usize = 16;
        let Some(folder) = TmpfsWithHugePages::mount() else { return };
        let map = |name: &str| {
            let file = folder.file(name, PAGES * HUGE);
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let at = aligned(&file, PAGES * HUGE, protection, MapFlags::SHARED | MapFlags::NORESERVE).unwrap();
            (file, at)
        };
        let bytes = |at: *mut u8| {
            // SAFETY: the mappings and the files are that long.
            unsafe { core::slice::from_raw_parts_mut(at, PAGES * HUGE) }
        };
        let unmap = |at: *mut u8| {
            // SAFETY: ours, and used no more.
            unsafe { munmap(at.cast(), PAGES * HUGE) }.unwrap();
        };
        for way in ["take", "gather"] {
            let (_, left) = map("left");
            bytes(left).fill(0xaa);
            unmap(left);
            folder.remove("left");
            let (file, at) = map(way);
            match way {
                "take" => take(file.as_fd(), at, 0, PAGES * HUGE).map(drop).unwrap(),
                _ => {
                    fallocate(&file, FallocateFlags::empty(), 0, (PAGES * HUGE) as u64).unwrap();
                    gather(at, PAGES * HUGE);
                }
            }
            assert!(bytes(at).iter().all(|&byte| byte == 0), "{way}");
            unmap(at);
        }
    }

    /// A tmpfs of this test alone.
    struct TmpfsWithHugePages(Place);

    impl TmpfsWithHugePages {
        /// `None`: this user may not mount, or the kernel has no such option.
        fn mount() -> Option<Self> {
            let folder = Place::new(&place::disk().unwrap(), "huge-pages").unwrap();
            let name = std::ffi::CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: the kernel's call, with C strings.
            let done = unsafe {
                let (tmpfs, options) = (c"tmpfs".as_ptr(), c"huge=always,size=256m".as_ptr());
                libc::mount(tmpfs, name.as_ptr(), tmpfs, 0, options.cast())
            };
            if done != 0 {
                eprintln!("SKIPPED: mounting a tmpfs with huge pages: {}", std::io::Error::last_os_error());
                return None;
            }
            Some(Self(folder))
        }

        fn file(&self, name: &str, len: usize) -> std::fs::File {
            let path = self.0.path().join(name);
            let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
            file.set_len(len as u64).unwrap();
            file
        }

        fn remove(&self, name: &str) {
            std::fs::remove_file(self.0.path().join(name)).unwrap();
        }
    }

    impl Drop for TmpfsWithHugePages {
        fn drop(&mut self) {
            let name = std::ffi::CString::new(self.0.path().as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: the kernel's call, with a C string.
            unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
        }
    }

    /// An address that another thread took first once left a map between huge pages.
    #[test]
    fn many_threads_map_at_huge_pages_at_once() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let at = map(HUGE);
                        assert!((at as usize).is_multiple_of(HUGE));
                        // SAFETY: ours, and used no more.
                        unsafe { munmap(at.cast(), HUGE) }.unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn less_than_a_huge_page_is_left_alone() {
        let at = map(HUGE);
        assert!(gather(at.wrapping_add(4096), HUGE - 4096));
        // SAFETY: ours, and used no more.
        unsafe { munmap(at.cast(), HUGE) }.unwrap();
    }
}
