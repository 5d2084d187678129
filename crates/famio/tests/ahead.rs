//! Map-ahead of what is read and written through the library, files by calls and regions by copies, and the effect of
//! advice on it. The tests check which pages have page-table entries, through maps found in `/proc/self/maps`.

mod common;

use common::Scratch;
use famio::map::{View, cache};
use famio::region::copy;
use famio::{Advice, AtomicFile, JournalChoice, OpenOptions, Region, Settings};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Larger than the widest window, which is 32 MiB.
const SIZE: usize = 48 * MIB;
/// The part that is read: past the first page table, and far from the end.
const RUN: usize = 3 * MIB;

/// The tests examine the process's maps and cache, so they run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is a processor for the background; without one, the reader does everything itself.
fn has_background() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|i| (i / PAGE + i + 1) as u8).collect()
}

fn new_file(folder: &Scratch) -> PathBuf {
    let path = folder.path().join("file");
    // In pieces, or the page cache would have huge pages.
    let file = File::create(&path).unwrap();
    pattern().chunks(64 << 10).enumerate().for_each(|(i, piece)| file.write_all_at(piece, (i << 16) as u64).unwrap());
    file.sync_all().unwrap(); // the kernel does not map pages around a fault while it writes them to disk
    path
}

fn folders(what: &str) -> [Scratch; 2] {
    [Scratch::on_tmpfs(what), Scratch::on_disk(what)]
}

fn entries(start: usize, len: usize) -> Vec<u8> {
    let mut words = vec![0u8; len / PAGE * 8];
    File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut words, (start / PAGE * 8) as u64).unwrap();
    words
}

/// Number of pages with page-table entries.
fn mapped(start: usize, len: usize) -> usize {
    entries(start, len).chunks(8).filter(|word| word[7] & 0x80 != 0).count()
}

/// Where the process has mapped a file with this name, from its first byte. The longest map: the library's own maps
/// reach far beyond the file.
fn map_of(name: &str) -> Option<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bounds = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |hex| usize::from_str_radix(hex, 16).ok();
        let offset = rest.split_whitespace().nth(1)?;
        (line.contains(name) && number(offset)? == 0).then_some((number(end)? - number(start)?, number(start)?))
    };
    maps.lines().filter_map(bounds).max().map(|(_, start)| start)
}

fn map_of_file(path: &Path) -> Option<usize> {
    map_of(path.to_str().unwrap())
}

/// The library's map of the only shadow.
fn map_of_shadow() -> usize {
    map_of(".shadow").unwrap()
}

/// The kernel takes pages back from any process if something searches for unused memory (DAMON).
fn taken_back(pages: usize) -> usize {
    pages / 64
}

/// Waits until the background has mapped this many pages of the front: one of its threads may be at the place where
/// the reader is.
fn wait_for(what: &str, pages: usize, front: impl Fn() -> usize) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while front() < pages - taken_back(pages) {
        assert!(std::time::Instant::now() < until, "{what}: {} pages of {pages}", front());
        std::thread::yield_now();
    }
}

fn read(file: &AtomicFile, from: usize, len: usize, record: usize) {
    let mut got = vec![0; record];
    for at in (from..from + len).step_by(record) {
        file.read_exact_at(&mut got, at as u64).unwrap();
        assert!(got.iter().enumerate().all(|(i, &byte)| byte == ((at + i) / PAGE + at + i + 1) as u8), "{at}");
    }
}

/// How many bytes are left of the page table for `address`.
fn rest_of_table(address: usize) -> usize {
    2 * MIB - address % (2 * MIB)
}

#[test]
fn what_calls_read_in_order_is_mapped_ahead() {
    let _alone = alone();
    for folder in folders("ahead-file") {
        let path = new_file(&folder);
        for (record, advice) in [(100, None), (PAGE, None), (PAGE, Some(Advice::Random))] {
            let file = AtomicFile::options().read_only(true).open(&path).unwrap();
            if let Some(advice) = advice {
                file.advise(.., advice); // before there is a map
            }
            let done = RUN / (100 * PAGE) * (100 * PAGE);
            read(&file, 0, done, record);
            let base = map_of_file(&path).unwrap();
            let rest = rest_of_table(base + done);
            match advice {
                None => wait_for("the page table that is read now", rest / PAGE, || mapped(base + done, rest)),
                // The pages around the last fault.
                _ => assert!(mapped(base + done, SIZE - done) <= 16),
            }
            file.advise(.., Advice::DontNeed);
            file.close().unwrap();
        }
    }
}

#[test]
fn advice_maps_a_file_before_it_is_read() {
    let _alone = alone();
    for folder in folders("ahead-advice") {
        let path = new_file(&folder);
        let file = AtomicFile::options().read_only(true).open(&path).unwrap();
        assert_eq!(map_of_file(&path), None);
        file.advise(8 * MIB as u64..16 * MIB as u64, Advice::WillNeed);
        let base = map_of_file(&path).expect("it is mapped by the advice");
        if has_background() {
            wait_for("needed", 8 * MIB / PAGE, || mapped(base + 8 * MIB, 8 * MIB));
            assert_eq!(mapped(base, 6 * MIB) + mapped(base + 18 * MIB, SIZE - 18 * MIB), 0);
        }
        file.advise(.., Advice::DontNeed);
        assert_eq!(mapped(base, SIZE), 0);
        file.advise(.., Advice::Sequential);
        if has_background() {
            wait_for("in order", 32 * MIB / PAGE, || mapped(base, 32 * MIB));
        }
        read(&file, 0, MIB, PAGE);
        file.close().unwrap();
    }
}

#[test]
fn an_attached_file_is_read_ahead_too() {
    let _alone = alone();
    for folder in folders("ahead-attached") {
        let path = new_file(&folder);
        let with_journal = Settings { journal: JournalChoice::Always, ..Settings::default() };
        let file = OpenOptions::default().settings(with_journal).open(&path).unwrap();
        let last = [((SIZE - 1) / PAGE + SIZE) as u8];
        file.write_at(&last, SIZE as u64 - 1).unwrap();
        file.sync().unwrap();
        let base = map_of_file(&path).unwrap();
        assert_eq!(mapped(base, 8 * MIB), 0);
        read(&file, 0, RUN, PAGE);
        wait_for("the rest of the page table", MIB / PAGE, || mapped(base + RUN, MIB));
        // What the background is mapping at this moment may be mapped after the advice.
        let is_gone = || {
            file.advise(.., Advice::DontNeed);
            mapped(base, 8 * MIB) == 0
        };
        assert!((0..1000).any(|_| is_gone()), "{} pages stay", mapped(base, 8 * MIB));
        if has_background() {
            file.advise(..8 * MIB as u64, Advice::WillNeed);
            wait_for("needed", 8 * MIB / PAGE, || mapped(base, 8 * MIB));
        }
        file.close().unwrap();
    }
}

#[test]
fn a_file_with_holes_gets_no_memory_by_it() {
    let _alone = alone();
    let folder = Scratch::on_tmpfs("ahead-holes");
    let path = folder.path().join("file");
    File::create(&path).unwrap().set_len(SIZE as u64).unwrap();
    let file = AtomicFile::options().read_only(true).open(&path).unwrap();
    file.advise(.., Advice::Sequential);
    file.advise(.., Advice::WillNeed);
    let mut record = [1; PAGE];
    for at in (0..MIB).step_by(PAGE) {
        file.read_exact_at(&mut record, at as u64).unwrap();
    }
    file.close().unwrap(); // waits for the background
    let blocks = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
    assert!(blocks * 512 <= MIB as u64, "{blocks}");
}

/// A region of the whole file, with pages in a shadow, and without page tables.
fn region_of(path: &Path) -> (AtomicFile, Region) {
    let file = AtomicFile::open(path).unwrap();
    let region = file.map(..).unwrap();
    let start = region.as_ptr() as usize;
    // SAFETY: on a shared map, changes no byte.
    unsafe { libc::madvise(region.as_ptr().cast(), SIZE, libc::MADV_DONTNEED) };
    assert_eq!((mapped(start, SIZE), mapped(map_of_shadow(), SIZE)), (0, 0));
    (file, region)
}

fn load(region: &Region, from: usize, len: usize, record: usize) {
    let mut got = vec![0u8; record];
    for at in (from..from + len).step_by(record) {
        // SAFETY: within the region and the file, to a vector as long.
        unsafe { copy(got.as_mut_ptr(), region.as_ptr().add(at), record) }.unwrap();
        assert!(got.iter().enumerate().all(|(i, &byte)| byte == ((at + i) / PAGE + at + i + 1) as u8), "{at}");
    }
}

fn store(region: &Region, from: usize, len: usize, record: usize) {
    for at in (from..from + len).step_by(record) {
        // SAFETY: within the region and the file, from a vector as long.
        unsafe { copy(region.as_ptr().add(at), vec![9u8; record].as_ptr(), record) }.unwrap();
    }
}

#[test]
fn copies_from_and_to_a_region_in_order_are_mapped_ahead() {
    let _alone = alone();
    for folder in folders("ahead-region") {
        let path = new_file(&folder);
        let (file, region) = region_of(&path);
        let (start, ours) = (region.as_ptr() as usize, map_of_shadow());
        // A run ends in the middle of a page table, which is mapped completely.
        load(&region, 0, RUN, 64);
        let rest = rest_of_table(start + RUN);
        wait_for("loads", rest / PAGE, || mapped(start + RUN, rest));
        assert_eq!(mapped(ours, SIZE), 0, "loads are from the program's map");
        store(&region, 0, RUN, 64);
        let rest = rest_of_table(ours + RUN);
        wait_for("stores", rest / PAGE, || mapped(ours + RUN, rest));
        let wanted = [vec![9; RUN], pattern().split_off(RUN)].concat();
        region.sync().unwrap();
        drop(region);
        file.close().unwrap();
        assert!(std::fs::read(&path).unwrap() == wanted);
    }
}

/// Number of write-protected pages, where a store would be noticed.
fn watched(region: &Region) -> usize {
    let words = entries(region.as_ptr() as usize, SIZE);
    words.chunks(8).filter(|word| word[7] & 2 != 0).count()
}

#[test]
fn a_map_ahead_of_a_region_is_no_store() {
    let _alone = alone();
    for folder in folders("ahead-no-store") {
        let path = new_file(&folder);
        let (file, region) = region_of(&path);
        file.sync().unwrap();
        if watched(&region) == 0 {
            eprintln!("SKIPPED: this kernel cannot say what was stored");
            return;
        }
        load(&region, 0, RUN, PAGE);
        region.advise(0..SIZE, Advice::WillNeed).unwrap();
        wait_for("needed", SIZE / PAGE, || mapped(region.as_ptr() as usize, SIZE));
        assert_eq!(watched(&region), SIZE / PAGE, "the next SYNC would look at them");
        drop(region);
        file.close().unwrap();
    }
}

#[test]
fn advice_about_a_region() {
    let _alone = alone();
    for folder in folders("ahead-region-advice") {
        let path = new_file(&folder);
        let (file, region) = region_of(&path);
        let (start, ours) = (region.as_ptr() as usize, map_of_shadow());
        region.advise(0..SIZE, Advice::Random).unwrap();
        load(&region, 0, RUN, PAGE);
        store(&region, SIZE - RUN, RUN - MIB, PAGE);
        let read = RUN / PAGE;
        assert!((read - taken_back(read)..=read).contains(&mapped(start, SIZE)), "nothing ahead");
        assert!(mapped(ours + SIZE - MIB, MIB) <= 16, "nothing but what lies around the last fault");
        region.advise(0..SIZE, Advice::DontNeed).unwrap();
        assert_eq!((mapped(start, SIZE), mapped(ours, SIZE)), (0, 0));
        region.advise(0..SIZE, Advice::Sequential).unwrap();
        if has_background() {
            wait_for("loads", 32 * MIB / PAGE, || mapped(start, 32 * MIB));
            wait_for("stores", 32 * MIB / PAGE, || mapped(ours, 32 * MIB));
        }
        region.advise(0..SIZE, Advice::DontNeed).unwrap();
        region.advise(4 * MIB..8 * MIB, Advice::WillNeed).unwrap();
        wait_for("needed", 4 * MIB / PAGE, || mapped(start + 4 * MIB, 4 * MIB));
        assert_eq!(mapped(start + 10 * MIB, SIZE - 10 * MIB), 0);
        drop(region);
        file.close().unwrap();
    }
}

#[test]
fn a_region_that_is_cut_or_goes_is_left_alone() {
    let _alone = alone();
    let folder = Scratch::on_tmpfs("ahead-goes");
    let path = new_file(&folder);
    let file = AtomicFile::open(&path).unwrap();
    let mut free = 0;
    for _ in 0..20 {
        let region = file.map(..).unwrap();
        region.advise(0..SIZE, Advice::WillNeed).unwrap();
        load(&region, 0, MIB, PAGE);
        let start = region.as_ptr() as usize;
        region.unmap().unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        // SAFETY: where nothing is mapped any more, or it fails.
        let there = unsafe { libc::mmap(start as *mut _, SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if there == libc::MAP_FAILED {
            continue; // another thread's stack or heap is there now
        }
        assert_eq!(there as usize, start);
        free += 1;
        assert_eq!(mapped(start, SIZE), 0, "a thread came too late");
        // SAFETY: mapped above.
        unsafe { libc::munmap(there, SIZE) };
    }
    assert!(free > 0);
    file.close().unwrap();
}

#[test]
fn what_is_not_needed_is_not_kept_in_the_mapping_cache() {
    let _alone = alone();
    cache::ignore_shortage();
    let folder = Scratch::on_tmpfs("ahead-cache");
    let path = new_file(&folder);
    let file = AtomicFile::options().read_only(true).open(&path).unwrap();
    for advise in [&(|| file.advise(.., Advice::DontNeed)) as &dyn Fn(), &|| {
        file.map_read(..).unwrap().advise(0..SIZE, Advice::DontNeed).unwrap()
    }] {
        drop(View::open(&path).unwrap());
        assert_eq!(cache::bytes(), SIZE as u64);
        file.advise(.., Advice::WillNeed);
        assert_eq!(cache::bytes(), SIZE as u64);
        advise();
        assert_eq!(cache::bytes(), 0);
    }
    file.close().unwrap();
}
