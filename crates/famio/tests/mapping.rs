//! Maps of ordinary files: what may come from the cache, and what must not, whatever is done to the file meanwhile.

mod common;

use common::{Scratch, comes_true};
use famio::map::{Advice, View, cache};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const MIB: usize = 1 << 20;

/// There is one cache: its tests run one at a time, and begin with an empty one.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
    cache::ignore_shortage();
    cache::set_limit(cache::LIMIT);
    cache::clear();
    guard
}

fn scratches(name: &str) -> [Scratch; 2] {
    [Scratch::on_tmpfs(name), Scratch::on_disk(name)]
}

/// A file whose bytes encode their position and the file's version.
fn write(path: &Path, len: usize, version: u8) {
    std::fs::write(path, pattern(len, version)).unwrap();
}

fn pattern(len: usize, version: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 4096 + i) as u8 ^ version).collect()
}

fn all(view: &View) -> Vec<u8> {
    let mut bytes = vec![0; view.len() as usize];
    for (i, record) in bytes.chunks_mut(4096).enumerate() {
        assert_eq!(view.read_at(record, i as u64 * 4096).unwrap(), record.len());
    }
    bytes
}

fn new_file(scratch: &Scratch, len: usize) -> PathBuf {
    let path = scratch.path().join("file");
    write(&path, len, 0);
    path
}

/// Page faults of this thread.
fn faults() -> i64 {
    // SAFETY: all-zero bytes are an `rusage`; the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_minflt
    }
}

#[test]
fn a_map_comes_back_with_its_page_tables() {
    let _alone = alone();
    for scratch in scratches("mapping-back") {
        let path = new_file(&scratch, 3 * MIB + 77);
        let view = View::open(&path).unwrap();
        assert_eq!(all(&view), pattern(3 * MIB + 77, 0));
        assert_eq!(cache::bytes(), 0, "it is in use");
        drop(view);
        assert_eq!(cache::bytes(), 3 * MIB as u64 + 77);
        let mut record = [0; 4096];
        let mut again = || {
            let before = faults();
            let view = View::of(File::open(&path).unwrap()).unwrap();
            for at in (0..3 * MIB).step_by(4096) {
                view.read_at(&mut record, at as u64).unwrap();
            }
            faults() - before
        };
        // Without its page tables, at least 6, with 512 KiB around each. Code that runs for the first time faults,
        // too.
        let fewest = (0..5).map(|_| again()).min().unwrap();
        assert!(fewest < 6, "{fewest} faults");
        let view = View::of(File::open(&path).unwrap()).unwrap();
        // Another process's writes show.
        File::options().write(true).open(&path).unwrap().write_all_at(b"new", 2 * MIB as u64).unwrap();
        view.read_at(&mut record[..3], 2 * MIB as u64).unwrap();
        assert_eq!(record[..3], *b"new");
        let second = View::open(&path).unwrap();
        assert_eq!(cache::bytes(), 0);
        drop((view, second));
        assert_eq!(cache::bytes(), 3 * MIB as u64 + 77, "one of two is kept");
        cache::clear();
    }
}

#[test]
fn a_file_that_was_cut_is_an_error_and_no_signal() {
    let _alone = alone();
    for scratch in scratches("mapping-cut") {
        let path = new_file(&scratch, 8 * MIB);
        let view = View::open(&path).unwrap();
        let mut record = [0; 4096];
        view.advise(0, 0, Advice::WillNeed);
        File::options().write(true).open(&path).unwrap().set_len(5 * MIB as u64).unwrap();
        let mut failed = 0;
        for at in (0..8 * MIB).step_by(4096) {
            match view.read_at(&mut record, at as u64) {
                Ok(count) => assert!(count == 4096 && at < 5 * MIB),
                Err(e) => {
                    assert!(e.errno() == libc::EIO && at >= 5 * MIB, "{e}");
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, 3 * MIB / 4096);
        drop(view);
        // The kept map has another size; so has the next.
        let view = View::open(&path).unwrap();
        assert_eq!((view.len(), all(&view)), (5 * MIB as u64, pattern(5 * MIB, 0)));
        drop(view);
        write(&path, 9 * MIB, 3);
        let view = View::open(&path).unwrap();
        assert_eq!(all(&view), pattern(9 * MIB, 3), "grown");
        drop(view);
        // Cut, and extended to the same size: zeros, from the same map.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        file.set_len(9 * MIB as u64).unwrap();
        assert_eq!(all(&View::open(&path).unwrap()), vec![0; 9 * MIB]);
        cache::clear();
    }
}

#[test]
fn a_file_that_was_replaced_is_another() {
    let _alone = alone();
    for scratch in scratches("mapping-replaced") {
        let path = new_file(&scratch, MIB);
        let old = View::open(&path).unwrap();
        let other = scratch.path().join("other");
        write(&other, MIB, 9);
        drop(View::open(&path).unwrap());
        assert_eq!(cache::bytes(), MIB as u64);
        std::fs::rename(&other, &path).unwrap();
        let new = View::open(&path).unwrap();
        assert_eq!(all(&new), pattern(MIB, 9));
        assert_eq!(all(&old), pattern(MIB, 0), "what is in use stays");
        drop(old);
        assert!(comes_true(|| cache::bytes() == 0)); // what was kept of the file is dropped with its name
        drop(new);
        // Deleted and created again: often with the same inode number.
        std::fs::remove_file(&path).unwrap();
        write(&path, MIB, 5);
        assert_eq!(all(&View::open(&path).unwrap()), pattern(MIB, 5));
        cache::clear();
    }
}

#[test]
fn a_deleted_file_is_let_go() {
    let _alone = alone();
    for scratch in scratches("mapping-deleted") {
        let path = new_file(&scratch, MIB);
        drop(View::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(comes_true(|| cache::bytes() == 0));

        let path = new_file(&scratch, MIB);
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let view = View::of(&file).unwrap();
        assert_eq!(all(&view), pattern(MIB, 0));
        drop(view);
        assert_eq!(cache::bytes(), 0, "a file without a name is not kept");
    }
}

#[test]
fn what_is_kept_is_bounded_and_can_be_let_go() {
    let _alone = alone();
    let scratch = Scratch::on_tmpfs("mapping-limit");
    let open = |i: usize| {
        let path = scratch.path().join(i.to_string());
        if !path.exists() {
            write(&path, MIB, i as u8);
        }
        let view = View::open(&path).unwrap();
        assert_eq!(all(&view), pattern(MIB, i as u8));
    };
    cache::set_limit(3 * MIB as u64);
    (0..10).for_each(open);
    assert_eq!(cache::bytes(), 3 * MIB as u64);
    cache::set_limit(u64::MAX);
    (0..10).for_each(open);
    assert_eq!(cache::bytes(), 10 * MIB as u64);
    use std::os::unix::fs::MetadataExt;
    let of = scratch.path().join("4").metadata().unwrap();
    cache::forget(of.dev(), of.ino());
    assert_eq!(cache::bytes(), 9 * MIB as u64);
    cache::set_limit(5 * MIB as u64);
    assert_eq!(cache::bytes(), 5 * MIB as u64);
    cache::set_limit(0);
    open(1);
    assert_eq!(cache::bytes(), 0);
    cache::set_limit(cache::LIMIT);
    let view = View::open(scratch.path().join("1")).unwrap();
    view.advise(0, 0, Advice::DontNeed);
    assert_eq!(all(&view), pattern(MIB, 1));
    drop(view);
    assert_eq!(cache::bytes(), 0, "by advice");
}

#[test]
fn a_kept_map_holds_no_lock_of_the_callers() {
    let _alone = alone();
    let scratch = Scratch::on_tmpfs("mapping-flock");
    let path = new_file(&scratch, MIB);
    let file = File::open(&path).unwrap();
    file.lock().unwrap();
    drop(View::of(&file).unwrap());
    assert_eq!(cache::bytes(), MIB as u64);
    drop(file);
    File::open(&path).unwrap().try_lock().unwrap();
}

#[test]
fn a_writable_view_writes_and_another_does_not() {
    let _alone = alone();
    for scratch in scratches("mapping-write") {
        let path = new_file(&scratch, 3 * MIB);
        let view = View::open_writable(&path).unwrap();
        assert_eq!(view.write_at(b"here", 2 * MIB as u64).unwrap(), 4);
        assert_eq!(view.write_at(b"across", 3 * MIB as u64 - 2).unwrap(), 2);
        view.sync().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((&bytes[2 * MIB..2 * MIB + 4], &bytes[3 * MIB - 2..]), (&b"here"[..], &b"ac"[..]));
        drop(view);
        let file = File::open(&path).unwrap();
        assert_eq!(View::of_writable(&file).unwrap_err().errno(), libc::EACCES, "a kept map gives no rights");
        let view = View::of(&file).unwrap();
        assert_eq!(view.write_at(b"x", 0).unwrap_err().errno(), libc::EBADF);
        let write_only = File::options().write(true).open(&path).unwrap();
        assert_eq!(View::of(&write_only).unwrap_err().errno(), libc::EACCES);
        let mut nothing = [0; 8];
        assert_eq!(view.read_at(&mut nothing, 3 * MIB as u64).unwrap(), 0);
        assert_eq!(view.read_at(&mut nothing, u64::MAX).unwrap(), 0);
        cache::clear();
    }
}

#[test]
fn errors_name_the_file() {
    let scratch = Scratch::on_tmpfs("mapping-errors");
    let missing = View::open(scratch.path().join("missing")).unwrap_err();
    assert!(missing.errno() == libc::ENOENT && missing.to_string().contains("missing"), "{missing}");
    assert_eq!(View::open("/dev/shm").unwrap_err().errno(), libc::EINVAL);
    assert_eq!(View::open("/dev/zero").unwrap_err().errno(), libc::EINVAL);
    let empty = scratch.path().join("empty");
    File::create(&empty).unwrap();
    let view = View::open(&empty).unwrap();
    assert!(view.is_empty() && view.read_at(&mut [0; 5], 0).unwrap() == 0);
    view.advise(0, 0, Advice::WillNeed);
    view.prefetch(0, u64::MAX);
    view.sync().unwrap();
}

#[test]
fn a_forked_child_reads_on_and_has_a_cache_of_its_own() {
    let _alone = alone();
    for scratch in scratches("mapping-fork") {
        let path = new_file(&scratch, 40 * MIB);
        drop(View::open(&path).unwrap());
        let used = scratch.path().join("used");
        write(&used, 40 * MIB, 1);
        let view = View::open(&used).unwrap();
        view.advise(0, 0, Advice::WillNeed); // the background is busy with it
        // SAFETY: the child uses no other threads' state except the library's and the allocator's, and ends by
        // `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = all(&view) == pattern(40 * MIB, 1) && cache::bytes() == 0;
            drop(view);
            let kept = cache::bytes();
            let own = View::open(&path).unwrap();
            own.prefetch(0, u64::MAX);
            let right = right && kept == 0 && all(&own) == pattern(40 * MIB, 0);
            drop(own);
            let right = right && cache::bytes() == 40 * MIB as u64;
            // SAFETY: ends the child.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(all(&view), pattern(40 * MIB, 1));
        assert_eq!(cache::bytes(), 40 * MIB as u64, "the parent's is as it was");
        drop(view);
        cache::clear();
    }
}

#[test]
fn many_threads_share_files_that_others_replace_and_cut() {
    let _alone = alone();
    cache::set_limit(12 * MIB as u64);
    for scratch in scratches("mapping-threads") {
        const FILES: usize = 6;
        let path = |i: usize| scratch.path().join(format!("f{i}"));
        (0..FILES).for_each(|i| write(&path(i), 4 * MIB, i as u8));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..40 {
                        let i = (thread * 7 + round * 3) % FILES;
                        let view = View::open(path(i)).unwrap();
                        if round % 4 == 0 {
                            view.advise(0, 0, Advice::WillNeed);
                        }
                        let mut record = [0; 4096];
                        for at in (0..view.len()).step_by(4096) {
                            match view.read_at(&mut record, at) {
                                // Of one version: the number in each byte, apart from its position.
                                Ok(_) => {
                                    let version = record[0] ^ ((at / 4096 + at) as u8);
                                    let right = |j: usize| record[j] ^ ((at as usize / 4096 + at as usize + j) as u8);
                                    let zeros = record.iter().all(|&b| b == 0);
                                    assert!(zeros || (0..4096).step_by(511).all(|j| right(j) == version), "{i} {at}");
                                    assert!(zeros || version as usize % FILES == i);
                                }
                                Err(e) => assert_eq!(e.errno(), libc::EIO),
                            }
                        }
                    }
                });
            }
            for round in 1..20 {
                let i = round % FILES;
                let other = scratch.path().join("other");
                write(&other, 4 * MIB, (i + FILES * round) as u8);
                std::fs::rename(&other, path(i)).unwrap();
                let cut = File::options().write(true).open(path((i + 1) % FILES)).unwrap();
                cut.set_len(2 * MIB as u64).unwrap();
            }
        });
        assert!(cache::bytes() <= 12 * MIB as u64);
        cache::clear();
    }
}

#[test]
fn huge_pages_hold_the_same_bytes() {
    let _alone = alone();
    for scratch in scratches("mapping-huge") {
        let path = new_file(&scratch, 6 * MIB + 99);
        let view = View::open(&path).unwrap();
        view.gather();
        assert_eq!(all(&view), pattern(6 * MIB + 99, 0));
        drop(view);
        assert_eq!(std::fs::read(&path).unwrap(), pattern(6 * MIB + 99, 0));
        let holes = File::options().write(true).open(&path).unwrap();
        holes.set_len(64 * MIB as u64).unwrap();
        assert!(!View::open(&path).unwrap().gather(), "holes take no memory");
        cache::clear();
    }
}
