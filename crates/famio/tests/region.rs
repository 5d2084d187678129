//! Regions: copies, stores and writes of one epoch are atomic together, and see each other.

mod common;

use common::Scratch;
use famio::region::{copy, copy_string, set};
use famio::{Advice, AtomicFile, Region, Settings};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;

fn open(folder: &Scratch, name: &str) -> AtomicFile {
    AtomicFile::options().create(true).open(folder.path().join(name)).unwrap()
}

fn file(folder: &Scratch, name: &str, pages: usize) -> (AtomicFile, Region) {
    let file = open(folder, name);
    file.set_len((pages * PAGE) as u64).unwrap();
    let region = file.map(..).unwrap();
    (file, region)
}

fn committed(folder: &Scratch, name: &str) -> Vec<u8> {
    std::fs::read(folder.path().join(name)).unwrap()
}

fn names(folder: &Scratch) -> Vec<String> {
    let names = std::fs::read_dir(folder.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn get(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(at, &mut bytes).unwrap();
    bytes
}

/// `copy` from memory to a region; returns the errno of a failure.
fn put(region: &Region, at: usize, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: an address for `copy` to check, and a slice.
    unsafe { copy(region.as_ptr().wrapping_add(at), bytes.as_ptr(), bytes.len()) }.map_err(|e| e.errno())
}

#[test]
fn copies_stores_and_writes_see_each_other_and_are_committed_together() {
    for folder in [Scratch::on_tmpfs("region-together"), Scratch::on_disk("region-together")] {
        let (file, region) = file(&folder, "file", 16);
        file.sync().unwrap();
        for round in 1..6u8 {
            put(&region, 100, &[round; 60]).unwrap();
            // SAFETY: below the end, and not used by others.
            unsafe { region.as_ptr().add(5 * PAGE + 7).write_bytes(round, 9) };
            file.write_at(&[round; 5000], 8 * PAGE as u64).unwrap();
            region.write(9 * PAGE, &[round + 100; 10]).unwrap();
            let mut got = [0; 60];
            file.read_exact_at(&mut got, 100).unwrap();
            assert_eq!(got, [round; 60]);
            assert_eq!(get(&region, 8 * PAGE + 4090, 16), [[round; 6].as_slice(), &[round + 100; 10]].concat());
            file.sync().unwrap();
            assert_eq!(get(&region, 5 * PAGE + 7, 9), [round; 9]);
        }
        put(&region, 100, &[77; 60]).unwrap(); // committed by the close
        drop(region);
        file.close().unwrap();
        let bytes = committed(&folder, "file");
        assert_eq!((bytes.len(), &bytes[100..160], bytes[5 * PAGE + 8]), (16 * PAGE, &[77; 60][..], 5));
        assert_eq!((bytes[8 * PAGE], bytes[9 * PAGE], bytes[9 * PAGE + 10]), (5, 105, 5));
        assert_eq!(names(&folder), ["file"]);
    }
}

#[test]
fn copies_go_in_either_direction_between_regions_and_over_their_ends() {
    let folder = Scratch::on_tmpfs("region-directions");
    let (one, a) = file(&folder, "one", 4);
    let (two, b) = file(&folder, "two", 4);
    a.write(0, &(0..=255).collect::<Vec<u8>>()).unwrap();
    // SAFETY: within both.
    unsafe { copy(b.as_ptr().add(1000), a.as_ptr(), 256) }.unwrap();
    let mut memory = [0u8; 256];
    // SAFETY: within the region, and the buffer.
    unsafe { copy(memory.as_mut_ptr(), b.as_ptr().add(1000), 256) }.unwrap();
    assert!(memory.iter().enumerate().all(|(at, &byte)| byte == at as u8));
    // SAFETY: as above; they overlap.
    unsafe { copy(a.as_ptr().add(10), a.as_ptr(), 200) }.unwrap();
    assert!(get(&a, 10, 200).iter().enumerate().all(|(at, &byte)| byte == at as u8));
    // The same bytes through another map: they overlap all the same.
    let again = one.map(0..2 * PAGE as u64).unwrap();
    // SAFETY: as above.
    unsafe { copy(again.as_ptr().add(20), a.as_ptr().add(10), 200) }.unwrap();
    assert!(get(&a, 20, 200).iter().enumerate().all(|(at, &byte)| byte == at as u8));
    // SAFETY: as above.
    unsafe { set(b.as_ptr(), 0xCC, 70) }.unwrap();
    // SAFETY: as above.
    unsafe { copy_string(b.as_ptr().add(64), c"a string".as_ptr().cast()) }.unwrap();
    assert_eq!(get(&b, 60, 14), *b"\xCC\xCC\xCC\xCCa string\0\0");
    // SAFETY: as above.
    unsafe { copy_string(memory.as_mut_ptr(), b.as_ptr().add(64)) }.unwrap();
    assert_eq!(&memory[..9], b"a string\0");
    drop((again, a, b));
    one.close().unwrap();
    two.close().unwrap();
    assert_eq!(&committed(&folder, "two")[64..72], b"a string");
    assert_eq!(committed(&folder, "two")[1000 + 255], 255);
}

/// Two adjacent maps: one copy goes to both.
#[test]
fn one_copy_over_two_regions_goes_to_both_or_to_none() {
    let folder = Scratch::on_tmpfs("region-beside");
    let (one, a) = file(&folder, "one", 4);
    let (two, b) = file(&folder, "two", 4);
    // The kernel often puts the second map before the first; if not, there is nothing to test.
    let (low, high) = if (a.as_ptr() as usize) < b.as_ptr() as usize { (&a, &b) } else { (&b, &a) };
    if low.as_ptr() as usize + low.len() != high.as_ptr() as usize {
        eprintln!("SKIPPED: the maps do not lie side by side");
        return;
    }
    let bytes: Vec<u8> = (0..200).collect();
    put(low, low.len() - 100, &bytes).unwrap();
    assert_eq!(get(low, low.len() - 100, 100), bytes[..100]);
    assert_eq!(get(high, 0, 100), bytes[100..]);
    // From the end of one to the beginning of the other, moved by ten.
    // SAFETY: within both.
    unsafe { copy(low.as_ptr().add(low.len() - 90), low.as_ptr().add(low.len() - 100), 190) }.unwrap();
    assert_eq!([get(low, low.len() - 90, 90), get(high, 0, 100)].concat(), bytes[..190]);
    // Now the second ends earlier: nothing is stored in the first either.
    let shorter = if std::ptr::eq(high, &b) { &two } else { &one };
    shorter.set_len(50).unwrap();
    assert_eq!(put(low, low.len() - 100, &[9; 200]), Err(libc::ENXIO));
    assert_eq!(get(low, low.len() - 90, 90), bytes[..90]);
}

/// Regions for copies, of files that have their bytes in memory, and of files that are too large for that.
fn for_copies(name: &str) -> Vec<(Scratch, AtomicFile, Region)> {
    let kinds = [(None, false), (Some(0), false), (None, true), (Some(0), true)];
    let made = kinds.into_iter().map(|(map_memory, on_disk)| {
        let name = format!("{name}-{}", map_memory.is_some());
        let folder = if on_disk { Scratch::on_disk(&name) } else { Scratch::on_tmpfs(&name) };
        let settings = Settings { map_memory, ..Settings::default() };
        let file = AtomicFile::options().create(true).settings(settings).open(folder.path().join("file")).unwrap();
        file.set_len(16 * PAGE as u64).unwrap();
        file.sync().unwrap();
        let region = file.map_for_copies(0..20 * PAGE as u64).unwrap();
        (folder, file, region)
    });
    made.collect()
}

/// Its bytes below the end of the file.
///
/// # Safety
/// They do not change while they are used.
unsafe fn shown(region: &Region) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(region.as_ptr(), 16 * PAGE) }
}

/// Whether its maps are private ones, which do not overlap.
fn is_large(file: &AtomicFile) -> bool {
    file.map(..).is_err()
}

/// The kernel's words for what the program may do at this address.
fn protection(address: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let bound = |hex| usize::from_str_radix(hex, 16).unwrap();
        (bound(start)..bound(end)).contains(&address.addr())
    });
    line.unwrap().split(' ').nth(1).unwrap()[..3].into()
}

#[test]
fn a_region_for_copies_shows_them_and_takes_no_store() {
    for (folder, file, region) in for_copies("region-copies") {
        assert_eq!(protection(region.as_ptr()), if is_large(&file) { "rw-" } else { "r--" });
        for round in 1..6u8 {
            put(&region, 100, &[round; 60]).unwrap();
            region.write(5 * PAGE - 3, &[round; 9]).unwrap();
            // SAFETY: an address for each to check.
            unsafe {
                set(region.as_ptr().wrapping_add(6 * PAGE + 1), round, 2 * PAGE).unwrap();
                copy_string(region.as_ptr().wrapping_add(9 * PAGE), c"a string".as_ptr().cast()).unwrap();
                let to = region.as_ptr().wrapping_add(10 * PAGE);
                copy(to, region.as_ptr().wrapping_add(100), 60).unwrap();
                copy(to.wrapping_add(30), to, 60).unwrap(); // it overlaps
            }
            file.write_at(&[round; 50], 12 * PAGE as u64).unwrap();
            let mut tx = file.transaction().unwrap();
            tx.write_at(&[round; 7], 13 * PAGE as u64).unwrap();
            tx.commit().unwrap();
            // SAFETY: nobody changes it meanwhile.
            let bytes = unsafe { shown(&region) };
            assert_eq!(bytes[100..160], [round; 60]);
            assert_eq!(bytes[5 * PAGE - 3..5 * PAGE + 6], [round; 9]);
            assert!(bytes[6 * PAGE + 1..8 * PAGE + 1].iter().all(|&byte| byte == round));
            assert_eq!(&bytes[9 * PAGE..9 * PAGE + 9], b"a string\0");
            assert_eq!(bytes[10 * PAGE..10 * PAGE + 90], [round; 90]);
            assert_eq!((bytes[12 * PAGE + 49], bytes[13 * PAGE + 6]), (round, round));
            region.sync().unwrap();
        }
        put(&region, 100, &[77; 60]).unwrap(); // committed by the close
        assert_eq!(put(&region, 16 * PAGE - 3, &[1; 6]), Err(libc::ENXIO));
        assert_eq!(region.write(16 * PAGE - 3, &[1; 3]).map_err(|e| e.errno()), Ok(()));
        drop(region);
        file.close().unwrap();
        let bytes = committed(&folder, "file");
        assert_eq!((bytes.len(), &bytes[100..160], bytes[10 * PAGE + 89]), (16 * PAGE, &[77; 60][..], 5));
        assert_eq!(names(&folder), ["file"]);
    }
}

/// Beside a region that is stored to, and after it has gone.
#[test]
fn regions_for_copies_and_for_stores_of_one_file_are_one_epoch() {
    for (folder, file, region) in for_copies("region-both") {
        let Ok(stores) = file.map(..) else { continue }; // too large for two maps
        for round in 1..4u8 {
            // SAFETY: below the end, and not used by others.
            unsafe { stores.as_ptr().add(PAGE).write_bytes(round, 9) };
            put(&region, 7 * PAGE, &[round; 9]).unwrap();
            put(&stores, 8 * PAGE, &[round; 9]).unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { (*stores.as_ptr().add(7 * PAGE + 8), *region.as_ptr().add(PAGE + 8)) }, (round, round));
            file.sync().unwrap();
        }
        drop(stores);
        put(&region, 3 * PAGE, &[9; 9]).unwrap();
        drop(region);
        file.close().unwrap();
        let bytes = committed(&folder, "file");
        assert_eq!((bytes[PAGE + 8], bytes[7 * PAGE + 8], bytes[8 * PAGE + 8], bytes[3 * PAGE]), (3, 3, 3, 9));
    }
}

/// The file has become the kernel's, with its maps.
#[test]
fn copies_to_a_removed_file_reach_its_region() {
    for (folder, file, region) in for_copies("region-removed") {
        put(&region, 0, &[1; 10]).unwrap();
        std::fs::remove_file(folder.path().join("file")).unwrap();
        let _ = file.sync(); // it may notice here
        put(&region, PAGE - 5, &[2; 10]).unwrap();
        region.write(3 * PAGE, &[3; 10]).unwrap();
        let _ = file.sync();
        put(&region, 2 * PAGE - 5, &[4; 10]).unwrap();
        // SAFETY: nobody changes it meanwhile.
        let bytes = unsafe { shown(&region) };
        assert_eq!((bytes[9], bytes[PAGE + 4], bytes[3 * PAGE + 9], bytes[2 * PAGE + 4]), (1, 2, 3, 4));
    }
}

#[test]
fn one_copy_over_two_regions_for_copies_goes_to_both() {
    for (_folder, file, region) in for_copies("region-two") {
        let bytes: Vec<u8> = (0..4 * PAGE).map(|i| i as u8 | 1).collect();
        drop(region);
        let (low, high) = (0..8 * PAGE as u64, 8 * PAGE as u64..16 * PAGE as u64);
        let (one, two) = (file.map_for_copies(low).unwrap(), file.map_for_copies(high).unwrap());
        let mut ends = [(one.as_ptr().addr(), &one), (two.as_ptr().addr(), &two)];
        ends.sort_by_key(|end| end.0);
        if ends[0].0 + 8 * PAGE != ends[1].0 {
            println!("not tested: the kernel did not map both side by side");
            continue;
        }
        put(ends[0].1, 6 * PAGE, &bytes).unwrap();
        assert_eq!(get(ends[0].1, 6 * PAGE, 2 * PAGE), bytes[..2 * PAGE]);
        assert_eq!(get(ends[1].1, 0, 2 * PAGE), bytes[2 * PAGE..]);
    }
}

#[test]
fn what_can_be_known_is_an_error_and_no_fault() {
    let folder = Scratch::on_tmpfs("region-errors");
    let (file, region) = file(&folder, "file", 4);
    file.set_len(3 * PAGE as u64 + 10).unwrap();
    assert_eq!(put(&region, 3 * PAGE + 4, &[1; 6]), Ok(()));
    assert_eq!(put(&region, 3 * PAGE + 5, &[2; 6]), Err(libc::ENXIO));
    assert_eq!(get(&region, 3 * PAGE + 4, 6), [1; 6], "nothing of it was stored");
    let mut memory = [0u8; 64];
    let mut from = |at: usize| {
        // SAFETY: an address for `copy` to check, and a buffer.
        unsafe { copy(memory.as_mut_ptr(), region.as_ptr().wrapping_add(at), 64) }.map_err(|e| e.errno())
    };
    assert_eq!(from(3 * PAGE), Err(libc::ENXIO));
    assert_eq!(from(2 * PAGE), Ok(()));
    // SAFETY: an address for `set` to check.
    let set = |at: usize| unsafe { set(region.as_ptr().wrapping_add(at), 1, 100) }.map_err(|e| e.errno());
    assert_eq!((set(3 * PAGE), set(0)), (Err(libc::ENXIO), Ok(())));
    // A string that does not end before the file does.
    region.write(3 * PAGE, &[b'x'; 10]).unwrap();
    // SAFETY: an address for the function to check.
    let string = unsafe { copy_string(memory.as_mut_ptr(), region.as_ptr().add(3 * PAGE)) };
    assert_eq!(string.unwrap_err().errno(), libc::ENXIO);

    let readable = file.map_read(..).unwrap();
    assert_eq!(put(&readable, 0, b"no"), Err(libc::EACCES));
    assert_eq!(readable.write(0, b"no").unwrap_err().errno(), libc::EACCES);
    assert_eq!(readable.read(0, &mut [0; 4]).map_err(|e| e.errno()), Ok(()));
    for (at, len) in [(4 * PAGE - 1, 2), (usize::MAX, 2), (5 * PAGE, 0)] {
        assert_eq!(region.write(at, &vec![0; len]).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(region.read(at, &mut vec![0; len]).unwrap_err().errno(), libc::EINVAL);
    }
    assert_eq!(region.write(3 * PAGE + 9, b"xx").unwrap_err().errno(), libc::ENXIO);
    assert_eq!(region.read(3 * PAGE + 9, &mut [0; 2]).unwrap_err().errno(), libc::ENXIO);
    for range in [1..PAGE as u64, 0..0, 0..u64::MAX] {
        assert_eq!(file.map(range).unwrap_err().errno(), libc::EINVAL);
    }
}

#[test]
fn a_region_grows_with_its_file_and_shrinks_with_it() {
    let folder = Scratch::on_tmpfs("region-grows");
    let file = open(&folder, "file");
    let region = file.map(0..1 << 20).unwrap();
    assert_eq!(put(&region, 0, b"x"), Err(libc::ENXIO));
    file.set_len(100_000).unwrap();
    put(&region, 99_000, &[5; 1000]).unwrap();
    file.append(&[6; 1000]).unwrap();
    assert_eq!(get(&region, 99_999, 2), [5, 6]);
    file.sync().unwrap();
    file.set_len(99_500).unwrap();
    assert_eq!(put(&region, 99_000, &[7; 1000]), Err(libc::ENXIO));
    put(&region, 99_000, &[7; 500]).unwrap();
    file.set_len(101_000).unwrap();
    assert_eq!(get(&region, 99_499, 2), [7, 0]);
    put(&region, 100_999, &[8]).unwrap();
    drop(region);
    file.close().unwrap();
    let bytes = committed(&folder, "file");
    assert_eq!((bytes.len(), bytes[99_000], bytes[99_500], bytes[100_999]), (101_000, 7, 0, 8));
}

/// Partial maps, several per file, also after the file is closed: all belong to one epoch.
#[test]
fn several_parts_of_one_file_are_one_epoch() {
    let folder = Scratch::on_tmpfs("region-parts");
    let (file, _) = file(&folder, "file", 8);
    let parts: Vec<Region> =
        (0..4).map(|part| file.map(part * 2 * PAGE as u64..(part * 2 + 2) * PAGE as u64).unwrap()).collect();
    let path = folder.path().join("file");
    file.close().unwrap();
    for (part, region) in parts.iter().enumerate() {
        assert_eq!((region.len(), region.offset()), (2 * PAGE, 2 * (PAGE * part) as u64));
        put(region, part, &[part as u8 + 1; 3]).unwrap();
        region.write(PAGE + part, &[part as u8 + 11; 3]).unwrap();
    }
    parts[1].sync().unwrap();
    let again = AtomicFile::open(&path).unwrap();
    let mut bytes = vec![0; 8 * PAGE];
    again.read_exact_at(&mut bytes, 0).unwrap();
    again.close().unwrap();
    for part in 0..4 {
        assert_eq!(bytes[part * 2 * PAGE + part..][..3], [part as u8 + 1; 3]);
        assert_eq!(bytes[(part * 2 + 1) * PAGE + part..][..3], [part as u8 + 11; 3]);
    }
    let mut parts = parts.into_iter();
    let last = parts.next_back().unwrap();
    parts.for_each(|part| part.unmap().unwrap());
    put(&last, 0, &[99]).unwrap();
    last.unmap().unwrap(); // the last one: it commits, and closes the file
    assert_eq!(committed(&folder, "file")[6 * PAGE], 99);
    assert_eq!(names(&folder), ["file"]);
}

/// Threads copy while another one SYNCs: a copy that has returned is never lost, whichever SYNC took its note.
#[test]
fn no_copy_is_lost_beside_syncs() {
    for folder in [Scratch::on_tmpfs("region-beside-syncs"), Scratch::on_disk("region-beside-syncs")] {
        let (file, region) = file(&folder, "file", 64);
        file.sync().unwrap();
        let (stop, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
        std::thread::scope(|scope| {
            for thread in 0..2usize {
                let (region, stop, rounds) = (&region, &stop, &rounds);
                scope.spawn(move || {
                    let mut round = 0u64;
                    while !stop.load(Ordering::SeqCst) {
                        round += 1;
                        for word in 0..16 {
                            // Two threads share granules and pages.
                            let at = word * 3 * PAGE + (round as usize % 5) * 16 + thread * 8;
                            put(region, at, &round.to_ne_bytes()).unwrap();
                        }
                        rounds[thread].store(round, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..300 {
                file.sync().unwrap();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let seen = get(&region, 0, 64 * PAGE);
        file.sync().unwrap();
        // Journal and file together must have what the region shows.
        drop(region);
        file.close().unwrap();
        assert!(committed(&folder, "file") == seen, "rounds {rounds:?}");
    }
}

#[test]
fn advice_is_taken_and_changes_nothing() {
    let folder = Scratch::on_tmpfs("region-advice");
    std::fs::write(folder.path().join("plain"), vec![3; 10 * PAGE + 5]).unwrap();
    let plain = AtomicFile::options().read_only(true).open(folder.path().join("plain")).unwrap();
    let (_file, stored) = file(&folder, "file", 8);
    stored.write(100, b"stays").unwrap();
    for region in [&plain.map(0..64 * PAGE as u64).unwrap(), &stored] {
        let before = get(region, 0, 8 * PAGE);
        for advice in [Advice::Sequential, Advice::Random, Advice::Normal, Advice::WillNeed, Advice::DontNeed] {
            region.advise(0..region.len(), advice).unwrap();
            region.advise(PAGE..PAGE + 1, advice).unwrap();
            region.advise(7..7, advice).unwrap();
            assert_eq!(get(region, 0, 8 * PAGE), before, "{advice:?}");
        }
        assert_eq!(region.advise(0..region.len() + 1, Advice::Normal).unwrap_err().errno(), libc::EINVAL);
    }
    let unmapped = famio::region::advise(PAGE, PAGE, Advice::WillNeed).unwrap_err();
    assert_eq!(unmapped.errno(), libc::ENOMEM);
    let odd = famio::region::advise(stored.as_ptr() as usize + 1, 1, Advice::WillNeed).unwrap_err();
    assert_eq!(odd.errno(), libc::EINVAL);
}
