//! Regions of files larger than their memory limit: private pages over the file, and concurrent changes.

mod common;

use common::Scratch;
use famio::pmem::TestHooks;
use famio::region::copy;
use famio::{Advice, AtomicFile, PolicyChoice, Region, Settings};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// A file of more than `limit` bytes has private maps.
fn open(folder: &Scratch, limit: u64, policy: PolicyChoice) -> AtomicFile {
    let settings = Settings { map_memory: Some(limit), policy, ..Settings::default() };
    AtomicFile::options().create(true).settings(settings).open(folder.path().join("file")).unwrap()
}

/// On tmpfs with each policy, and on a disk.
fn each(name: &str, test: impl Fn(&Scratch, PolicyChoice)) {
    for policy in [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate] {
        test(&Scratch::on_tmpfs(name), policy);
    }
    test(&Scratch::on_disk(name), PolicyChoice::Auto);
}

fn store(region: &Region, at: usize, bytes: &[u8]) {
    // SAFETY: below the end, and no other thread uses it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.as_ptr().add(at), bytes.len()) };
}

fn load(region: &Region, at: usize, len: usize) -> Vec<u8> {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(region.as_ptr().add(at), len) }.to_vec()
}

fn read(file: &AtomicFile, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// Bytes of a map that are private copies: from its lines in `smaps`.
fn copied(region: &Region) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (start, end) = (region.as_ptr() as usize, region.as_ptr() as usize + region.len());
    let (mut inside, mut sum) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, _)) = first.split_once('-') {
            inside = usize::from_str_radix(from, 16).is_ok_and(|from| (start..end).contains(&from));
        } else if inside && first == "Anonymous:" {
            sum += words.next().unwrap().parse::<u64>().unwrap() << 10;
        }
    }
    sum
}

#[test]
fn stores_copies_and_writes_are_of_one_epoch() {
    each("private-epoch", |folder, policy| {
        let file = open(folder, MIB, policy);
        file.set_len(64 * MIB).unwrap();
        file.write_at(&[9; 5000], 3 * MIB).unwrap();
        let region = file.map(..).unwrap();
        assert_eq!(load(&region, 3 << 20, 5001), [vec![9; 5000], vec![0]].concat());
        file.sync().unwrap();
        for round in 1..20u8 {
            store(&region, 100, &[round; 60]);
            region.write_at(&[round; 10], 5 << 20).unwrap();
            // SAFETY: a region and a slice.
            unsafe { copy(region.as_ptr().add(6 << 20), [round; 100].as_ptr(), 100) }.unwrap();
            file.write_at(&[round; 9000], 40 * MIB - 100).unwrap();
            assert_eq!(load(&region, (40 << 20) - 101, 9002), [vec![0], vec![round; 9000], vec![0]].concat());
            assert_eq!((read(&file, 100, 60), read(&file, 5 * MIB, 10)), (vec![round; 60], vec![round; 10]));
            assert_eq!(read(&file, 6 * MIB - 1, 102), [vec![0], vec![round; 100], vec![0]].concat());
            let mut tx = file.transaction().unwrap();
            tx.write_at(&[round; 200], 50 * MIB).unwrap();
            tx.write_at(&[round; 200], 8 * MIB - 100).unwrap();
            let before = load(&region, 50 << 20, 1);
            assert_eq!(before, [round - 1], "it is not committed");
            tx.commit().unwrap();
            assert_eq!(
                (load(&region, 50 << 20, 200), load(&region, (8 << 20) - 100, 200)),
                (vec![round; 200], vec![round; 200])
            );
            region.sync().unwrap();
        }
        assert_eq!(file.rollback().err().unwrap().errno(), libc::EBUSY);
        // A dozen pages; the kernel may copy more around each.
        assert!(copied(&region) < 2 * MIB, "{}", copied(&region));
        store(&region, 7 << 20, &[77]); // committed when the map ends
        drop(region);
        file.close().unwrap();
        let bytes = std::fs::read(folder.path().join("file")).unwrap();
        assert_eq!((bytes.len() as u64, bytes[100], bytes[5 << 20], bytes[6 << 20]), (64 * MIB, 19, 19, 19));
        assert_eq!((bytes[7 << 20], bytes[40 << 20], bytes[63 << 20]), (77, 19, 0));
    });
}

#[test]
fn copies_go_when_the_file_has_what_they_have() {
    TestHooks { shadow_limit: Some(16 * MIB), alone: true, ..TestHooks::default() }.enter();
    each("private-trim", |folder, policy| {
        let file = open(folder, MIB, policy);
        file.set_len(64 * MIB).unwrap();
        let region = file.map(..).unwrap();
        let mut most = 0;
        for round in 0..40u64 {
            for index in 0..100u64 {
                let page = (round * 7919 + index * 104_729) % (64 * MIB / PAGE as u64);
                store(&region, page as usize * PAGE + 8 * (round as usize), &(round + 1).to_ne_bytes());
            }
            file.sync().unwrap();
            most = most.max(copied(&region));
        }
        // 100 pages each time; they are dropped from 1 MiB on.
        assert!(most <= 2 * MIB, "{most}");
        for round in 0..40u64 {
            for index in 0..100u64 {
                let page = (round * 7919 + index * 104_729) % (64 * MIB / PAGE as u64);
                let at = page as usize * PAGE + 8 * (round as usize);
                assert_eq!((load(&region, at, 8), read(&file, at as u64, 8)), {
                    let wanted = (round + 1).to_ne_bytes().to_vec();
                    (wanted.clone(), wanted)
                });
            }
        }
        drop(region);
        file.close().unwrap();
    });
    // Another thread of the program might store, so nothing is dropped.
    TestHooks { shadow_limit: Some(16 * MIB), ..TestHooks::default() }.enter();
    std::thread::scope(|scope| {
        let (ended, end) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || end.recv());
        let folder = Scratch::on_tmpfs("private-threads");
        let file = open(&folder, MIB, PolicyChoice::Auto);
        file.set_len(64 * MIB).unwrap();
        let region = file.map(..).unwrap();
        for page in 0..1000 {
            store(&region, page * PAGE, &[1]);
        }
        file.sync().unwrap();
        assert!(copied(&region) >= 1000 * PAGE as u64);
        let for_reading = {
            drop(region);
            file.map_read(..).unwrap()
        };
        for round in 2..5 {
            for page in 0..1000 {
                file.write_at(&[round], page * PAGE as u64).unwrap();
            }
            file.sync().unwrap();
            assert!(copied(&for_reading) <= 2 * MIB, "nothing stores there");
            assert!((0..1000).all(|page| load(&for_reading, page * PAGE, 1) == [round]));
        }
        ended.send(()).unwrap();
    });
    TestHooks::default().enter();
}

/// As in LMDB: a map for reading, longer than the file, which grows by writes.
#[test]
fn a_file_outgrows_its_memory_while_it_is_mapped() {
    each("private-outgrow", |folder, policy| {
        let file = open(folder, MIB, policy);
        file.write_at(&[1; 3 * PAGE], 0).unwrap();
        let region = file.map_read(0..64 * MIB).unwrap();
        let value = |at: u64| (at / 1000 % 251) as u8;
        let mut at = 0;
        while at < 5 * MIB {
            file.write_at(&[value(at); 1000], at).unwrap();
            assert_eq!(load(&region, at as usize, 1000), [value(at); 1000]);
            at += 1000;
            if at % 100_000 == 0 {
                file.sync().unwrap();
            }
        }
        // Also places where other threads read.
        for seen in (0..at).step_by(1000) {
            assert_eq!(load(&region, seen as usize, 1000), vec![value(seen); 1000], "{seen}");
        }
        assert_eq!(read(&file, 4_999_000, 3), [value(4_999_000); 3]);
        file.sync().unwrap();
        file.set_len(2 * MIB).unwrap();
        assert_eq!((file.len(), load(&region, (2 << 20) - 1, 1)), (2 * MIB, vec![value(2 * MIB - 1)]));
        file.set_len(6 * MIB).unwrap();
        assert_eq!(load(&region, 2 << 20, 4 << 20), vec![0; 4 << 20]);
        drop(region);
        file.close().unwrap();
        let bytes = std::fs::read(folder.path().join("file")).unwrap();
        assert!(bytes.len() as u64 == 6 * MIB && bytes[2 << 20..] == vec![0; 4 << 20]);
    });
}

/// While other threads read through the map.
#[test]
fn a_map_that_becomes_private_shows_nothing_else_meanwhile() {
    each("private-readers", |folder, policy| {
        let file = open(folder, MIB, policy);
        file.write_at(&[7; PAGE], 0).unwrap();
        file.sync().unwrap();
        for round in 1..4 * MIB / PAGE as u64 {
            file.write_at(&[7; PAGE], round * PAGE as u64 / 8).unwrap(); // half a MiB, partly uncommitted
        }
        let end = file.len() as usize;
        let region = file.map_read(0..16 * MIB).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(load(&region, 0, end).iter().all(|&byte| byte == 7));
                    assert!(read(&file, 0, end).iter().all(|&byte| byte == 7));
                }
            });
            for at in (end as u64..3 * MIB).step_by(PAGE) {
                file.write_at(&[8; PAGE], at).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(load(&region, end, (3 << 20) - end).iter().all(|&byte| byte == 8));
    });
}

#[test]
fn what_can_not_be_had_is_refused() {
    let folder = Scratch::on_tmpfs("private-refused");
    let file = open(&folder, MIB, PolicyChoice::Auto);
    file.set_len(8 * MIB).unwrap();
    let region = file.map(0..4 * MIB).unwrap();
    let second = file.map(2 * MIB..8 * MIB).err().unwrap();
    assert_eq!(second.errno(), libc::ENOMEM);
    assert!(second.to_string().contains("two maps of the same bytes"), "{second}");
    assert_eq!(file.map_read(0..MIB).err().unwrap().errno(), libc::ENOMEM);
    let beside = file.map(4 * MIB..8 * MIB).unwrap();
    store(&region, 5, &[1]);
    store(&beside, 5, &[2]);
    region.advise(0..4 << 20, Advice::DontNeed).unwrap();
    assert_eq!((load(&region, 5, 1), load(&beside, 5, 1)), (vec![1], vec![2]));
    file.sync().unwrap();
    assert_eq!((read(&file, 5, 1), read(&file, 4 * MIB + 5, 1)), (vec![1], vec![2]));
    // A program may protect a map by a call of its own.
    // SAFETY: the region's memory.
    let protect = |access| unsafe { libc::mprotect(region.as_ptr().cast(), region.len(), access) };
    assert_eq!(protect(libc::PROT_READ), 0);
    // SAFETY: as above.
    let refused = unsafe { copy(region.as_ptr().add(5), [4].as_ptr(), 1) };
    assert_eq!((refused.err().unwrap().errno(), load(&region, 5, 1)), (libc::EACCES, vec![1]));
    assert_eq!(protect(libc::PROT_READ | libc::PROT_WRITE), 0);
    drop((region, beside));
    file.close().unwrap();
    // On an older kernel, nothing changes.
    TestHooks { unscanned: true, ..TestHooks::default() }.enter();
    let file = open(&folder, MIB, PolicyChoice::Auto);
    let refused = file.map(..).err().unwrap();
    assert_eq!(refused.errno(), libc::ENOMEM);
    assert!(refused.to_string().contains("more than"), "{refused}");
    file.write_at(&[3], 5).unwrap();
    file.close().unwrap();
    TestHooks::default().enter();
}
