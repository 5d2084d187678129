//! Writes that are atomic and durable by themselves: complete or not at all, without uncommitted bytes, and with one
//! flush for several.

mod common;

use common::{Opened, Scratch};
use famio::file::{UserBuf, Whole};
use famio::{AtomicFile, Atomicity, JournalChoice, Settings};
use std::os::unix::fs::MetadataExt;
use std::sync::Barrier;

fn settings() -> Settings {
    Settings { journal: JournalChoice::Always, ..Settings::default() }
}

fn put(opened: &Opened, at: Option<u64>, bytes: &[u8], whole: Whole) -> famio::Result<(u64, usize)> {
    let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
    // SAFETY: a live buffer, which is only read.
    unsafe { opened.atomic().write_atomically(at, &buf, whole) }
}

fn both(name: &str) -> [Scratch; 2] {
    [Scratch::on_tmpfs(name), Scratch::on_disk(name)]
}

#[test]
fn without_room_nothing_is_written_or_less() {
    for (i, dir) in both("whole-room").into_iter().enumerate() {
        let settings = Settings { journal_limit: if i == 0 { 300_000 } else { 2 << 20 }, ..settings() };
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 8 << 20]).unwrap();
        let opened = Opened::new(&path, &settings);
        let large = vec![9; 6 << 20];
        for whole in [Whole::All, Whole::Protected] {
            assert_eq!(put(&opened, Some(100), &large, whole).unwrap_err().errno(), libc::ENOSPC);
            assert!(opened.read(0, 9 << 20) == vec![1; 8 << 20]);
        }
        let (at, done) = put(&opened, Some(100), &large, Whole::Shorter).unwrap();
        assert!(at == 100 && done >= 100_000 && done < large.len(), "{done}");
        let mut model = vec![1; 8 << 20];
        model[100..100 + done].fill(9);
        assert!(opened.read(0, 9 << 20) == model);
        assert_eq!(opened.atomic().counters().dirty, 0);
        // The largest size offered fits beside what others have not synced.
        let most = opened.atomic().most_at_once() as usize;
        for block in 0..30 {
            opened.write(block * 8192, &[2; 4096]);
        }
        assert_eq!(put(&opened, Some(0), &large[..most], Whole::Protected).unwrap(), (0, most));
        assert_eq!(opened.atomic().counters().dirty, 0);
    }
}

/// A part of it remained if the rest could not be read.
#[test]
fn what_can_not_be_read_is_not_written() {
    for dir in both("whole-fault") {
        for journal in [JournalChoice::Auto, JournalChoice::Always] {
            let path = dir.path().join(format!("{journal:?}"));
            let opened = Opened::new(&path, &Settings { journal, ..settings() });
            assert_eq!(put(&opened, None, b"there", Whole::All).unwrap(), (0, 5));
            let (good, bad) = (vec![7; 10_000], UserBuf { base: 8 as *mut u8, len: 100 });
            let bufs = [UserBuf { base: good.as_ptr().cast_mut(), len: good.len() }, bad];
            // SAFETY: a bad buffer is an error.
            let refused = unsafe { opened.atomic().write_atomically(None, &bufs, Whole::All) };
            assert!([libc::EFAULT, libc::ENOSPC].contains(&refused.unwrap_err().errno()));
            assert_eq!(opened.read(0, 100), b"there");
            // SAFETY: as above.
            let shorter = unsafe { opened.atomic().write_atomically(None, &bufs, Whole::Shorter) };
            let (at, done) = shorter.unwrap();
            assert!(at == 5 && (8000..=10_000).contains(&done), "{done}");
            assert_eq!(opened.read(5, 20_000), &good[..done]);
        }
    }
}

#[test]
fn no_call_leaves_anything_open() {
    for dir in both("whole-calls") {
        let settings = Settings { atomicity: Atomicity::Write, ..settings() };
        let path = dir.path().join("file");
        let file = AtomicFile::options().create(true).settings(settings.clone()).open(&path).unwrap();
        let stat = std::fs::metadata(&path).unwrap();
        let counters = || famio::file::AtomicFile::find(stat.dev(), stat.ino()).unwrap().counters();
        let is_clean = |what: &str| assert_eq!((counters().attached, counters().dirty), (1, 0), "{what}");
        file.write_at(&[1; 5000], 100).unwrap();
        is_clean("write_at");
        assert_eq!(file.append(b"end").unwrap(), 5100);
        is_clean("append");
        file.set_len(200).unwrap();
        is_clean("set_len");
        let mut tx = file.transaction().unwrap();
        tx.write_at(b"x", 0).unwrap();
        tx.no_sync();
        tx.commit().unwrap();
        is_clean("transaction");
        assert!(counters().committed >= 4, "{:?}", counters());
        file.close().unwrap();
        let mut wanted = vec![0; 200];
        wanted[100..].fill(1);
        wanted[0] = b'x';
        assert!(std::fs::read(&path).unwrap() == wanted);
    }
}

/// Threads that each append, and write to their own offsets. Each flushes the disk alone, or shares a flush.
#[test]
fn writes_of_several_threads_share_flushes() {
    const THREADS: u64 = 8;
    const WRITES: u64 = 40;
    for (on_disk, dir) in [false, true].into_iter().zip(both("whole-threads")) {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let opened = Opened::new(&path, &settings());
        put(&opened, Some(0), &[0; 4096], Whole::Shorter).unwrap();
        let committed = || opened.atomic().counters().committed;
        let before = committed();
        for number in 1..=10 {
            put(&opened, Some(0), &[number; 4096], Whole::Shorter).unwrap();
        }
        assert_eq!(committed() - before, 10);
        let (before, barrier) = (committed(), Barrier::new(THREADS as usize));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (opened, barrier) = (&opened, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for number in 0..WRITES {
                        let value = (thread * WRITES + number) as u8;
                        if number % 4 == 0 {
                            put(opened, None, &[thread as u8; 1000], Whole::All).unwrap();
                        } else {
                            put(opened, Some(4096 * (thread + 1)), &[value; 4096], Whole::Shorter).unwrap();
                        }
                    }
                });
            }
        });
        let commits = committed() - before;
        println!("{} writes, {commits} commits", THREADS * WRITES);
        assert!(commits <= THREADS * WRITES);
        assert!(!on_disk || commits <= THREADS * WRITES * 3 / 4, "{commits} commits");
        let all = opened.read(0, 4 << 20);
        assert_eq!(all.len() as u64, (1 << 20) + THREADS * WRITES / 4 * 1000);
        let mut appended = all[1 << 20..].chunks(1000);
        assert!(appended.all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
    }
}
