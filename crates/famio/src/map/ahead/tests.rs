use super::*;
use crate::map::{guard, huge};
use crate::pmem::test_file;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;

struct Mapped {
    base: usize,
    len: usize,
    _file: File,
}

impl Mapped {
    fn new(folder: &str, len: usize) -> Self {
        guard::install().unwrap();
        let file = test_file(folder, len as u64);
        for at in (0..len).step_by(1 << 20) {
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; (1 << 20).min(len - at)], at as u64).unwrap();
        }
        file.sync_all().unwrap(); // at a fault the kernel does not map pages that it is writing to the disk
        let base = huge::aligned(&file, len, ProtFlags::READ, MapFlags::SHARED).unwrap() as usize;
        assert!(
            base.is_multiple_of(huge::HUGE),
            "the kernel maps around a fault by addresses, beyond a file's place else"
        );
        Self { base, len, _file: file }
    }

    fn ahead(&self, reach: Reach) -> Ahead {
        // SAFETY: mapped until this is dropped, which the tests do last.
        unsafe { Ahead::new(self.base..self.base + self.len, reach) }
    }

    /// Pages of the range that have an entry in the page tables.
    fn mapped(&self, range: Range<usize>) -> usize {
        use std::os::unix::fs::FileExt;
        let mut words = vec![0u8; range.len() / PAGE * 8];
        let at = (self.base + range.start) / PAGE * 8;
        File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut words, at as u64).unwrap();
        words.chunks(8).filter(|word| word[7] & 0x80 != 0).count()
    }

    /// The whole range has entries, except for a few pages that the kernel may have reclaimed meanwhile: it does if
    /// DAMON looks for unused memory.
    #[track_caller]
    fn assert_whole(&self, range: Range<usize>, what: &str) {
        let (pages, mapped) = (range.len() / PAGE, self.mapped(range));
        assert!(mapped <= pages && pages - mapped <= pages / 64, "{mapped} of {pages} pages: {what}");
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours, and not used any more.
        unsafe { rustix::mm::munmap(self.base as *mut _, self.len) }.unwrap();
    }
}

const FOLDERS: [&str; 2] = ["/dev/shm", "."];
const RECORD: usize = 4096;

#[test]
fn a_run_is_mapped_before_it_is_read() {
    for folder in FOLDERS {
        for reach in [Reach::Touch, Reach::PopulateRead] {
            let map = Mapped::new(folder, 64 << 20);
            let ahead = map.ahead(reach);
            // Nothing is read, so only map-ahead has mapped anything.
            for at in (0..8 << 20).step_by(RECORD) {
                ahead.touch(at, RECORD);
            }
            ahead.shared.wait();
            map.assert_whole(PAGE..8 << 20, &format!("{folder} {reach:?}"));
            drop(ahead);
        }
    }
}

#[test]
fn random_access_maps_nothing() {
    let map = Mapped::new("/dev/shm", 64 << 20);
    let ahead = map.ahead(Reach::Touch);
    for i in 1..10_000 {
        ahead.touch(i * 7919 % 16_000 * RECORD, RECORD);
    }
    assert_eq!(map.mapped(0..map.len), 0);
    ahead.advise(0, map.len, Advice::Random);
    for at in (0..8 << 20).step_by(RECORD) {
        ahead.touch(at, RECORD);
    }
    assert_eq!(map.mapped(0..map.len), 0, "the window stays a page");
    ahead.advise(0, map.len, Advice::Normal);
    for at in (8 << 20..12 << 20).step_by(RECORD) {
        ahead.touch(at, RECORD);
    }
    assert_ne!(map.mapped(8 << 20..12 << 20), 0);
}

#[test]
fn what_is_needed_is_mapped_and_no_more() {
    for folder in FOLDERS {
        let map = Mapped::new(folder, 16 << 20);
        let ahead = map.ahead(Reach::PopulateRead);
        ahead.prefetch(PAGE..3 * PAGE);
        assert!(map.mapped(PAGE..3 * PAGE) == 2 && map.mapped(4 << 20..map.len) == 0);
        ahead.prefetch(0..map.len);
        map.assert_whole(0..map.len, "the map");
        // SAFETY: drops page tables, no bytes.
        unsafe { rustix::mm::madvise(map.base as *mut _, map.len, rustix::mm::Advice::LinuxDontNeed) }.unwrap();
        ahead.prefetch(0..map.len);
        assert_eq!(map.mapped(0..map.len), 0, "it is known to be mapped");
        ahead.advise(0, map.len, Advice::DontNeed);
        ahead.prefetch(0..map.len);
        map.assert_whole(0..map.len, "the map");
    }
}

#[test]
fn a_file_that_was_cut_ends_it() {
    for folder in FOLDERS {
        for reach in [Reach::Touch, Reach::PopulateRead] {
            let map = Mapped::new(folder, 16 << 20);
            map._file.set_len(5 << 20).unwrap();
            let ahead = map.ahead(reach);
            ahead.prefetch(0..map.len);
            for at in (0..map.len).step_by(RECORD) {
                ahead.touch(at, RECORD);
            }
            ahead.shared.wait();
            assert!(map.mapped(0..5 << 20) > 0 && map.mapped(8 << 20..map.len) == 0);
        }
    }
}

#[test]
fn a_map_that_goes_is_left_alone() {
    // Each time the addresses are replaced by memory without access at once: a thread that came too late would end
    // the process or leave a page there.
    for _ in 0..50 {
        let map = Mapped::new("/dev/shm", 8 << 20);
        let ahead = map.ahead(Reach::Touch);
        ahead.advise(0, map.len, Advice::WillNeed);
        ahead.touch(0, RECORD);
        drop(ahead);
        let anonymous = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: in the place of our own map.
        unsafe { rustix::mm::mmap_anonymous(map.base as *mut _, map.len, access, anonymous) }.unwrap();
        assert_eq!(map.mapped(0..map.len), 0);
    }
}

#[test]
fn halted_it_does_nothing_and_resumed_it_goes_on() {
    let map = Mapped::new("/dev/shm", 8 << 20);
    let ahead = map.ahead(Reach::Touch);
    ahead.halt();
    ahead.advise(0, map.len, Advice::WillNeed);
    ahead.prefetch(0..map.len);
    assert_eq!(map.mapped(0..map.len), 0);
    ahead.resume();
    ahead.prefetch(0..map.len);
    map.assert_whole(0..map.len, "the map");
}

#[test]
fn what_is_not_needed_any_more_is_not_mapped_later() {
    let map = Mapped::new("/dev/shm", 64 << 20);
    let ahead = map.ahead(Reach::PopulateRead);
    for _ in 0..50 {
        ahead.advise(0, map.len, Advice::WillNeed);
        ahead.advise(0, map.len, Advice::DontNeed);
        // SAFETY: drops page tables, no bytes.
        unsafe { rustix::mm::madvise(map.base as *mut _, map.len, rustix::mm::Advice::LinuxDontNeed) }.unwrap();
        assert_eq!(map.mapped(0..map.len), 0);
    }
    ahead.prefetch(0..map.len);
    map.assert_whole(0..map.len, "the map");
}

#[test]
fn small_accesses_count_by_page_and_end_with_the_file() {
    let map = Mapped::new("/dev/shm", 8 << 20);
    let ahead = map.ahead(Reach::PopulateRead);
    let looks = core::cell::Cell::new(0);
    let touch = |from: usize, to: usize, end: usize| {
        for at in (from..to).step_by(100) {
            ahead.touch_pages(at, 100.min(to - at), || {
                looks.set(looks.get() + 1);
                end
            });
        }
    };
    touch(0, 3 << 20, 3 << 20);
    map.assert_whole(PAGE..3 << 20, "the run");
    assert_eq!(map.mapped(3 << 20..map.len), 0, "beyond the end of the file");
    assert!(looks.get() < 100, "it is asked where there is something to do: {}", looks.get());
    touch(3 << 20, (3 << 20) + PAGE * 3, 6 << 20);
    ahead.shared.wait();
    map.assert_whole(3 << 20..4 << 20, "it has grown");
}
