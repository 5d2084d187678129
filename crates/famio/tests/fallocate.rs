//! `fallocate` beyond the differential test: crashes, large and sparse ranges, refused modes.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;

use common::{Opened, Scratch, in_place_settings};
use crash::{Step, Sync, journals, write};
use famio::Settings;
use famio::posix::{self, Config, Globs, process};
use small::Small;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Once;

#[test]
fn crash_child() {
    crash::child();
}

fn everywhere(name: &str, mut with: impl FnMut(&Scratch, &Settings)) {
    for (i, settings) in in_place_settings().iter().enumerate() {
        with(&Scratch::on_tmpfs(&format!("{name}{i}")), settings);
    }
    with(&Scratch::on_disk(name), &Settings::default());
}

#[test]
fn zeros_are_part_of_the_epoch() {
    let zero = |at, len| Step::Zero { at, len };
    let histories = [
        // Over old data, over data of the epoch, and not beyond the end.
        vec![write(100, 20_000, 1), Sync, zero(50, 9000)],
        vec![write(100, 20_000, 1), zero(4096, 8192), write(5000, 10, 2), Sync, zero(0, 1 << 30)],
        vec![zero(0, 300_000), write(7, 7, 7), Sync],
    ];
    everywhere("zeros", |dir, settings| {
        for (i, steps) in histories.iter().enumerate() {
            let path = dir.path().join(format!("file{i}"));
            let initial = vec![9u8; 400_000];
            fs::write(&path, &initial).unwrap();
            crash::crash(&path, settings, steps);
            let (_, committed) = crash::model(&initial, steps);
            let opened = Opened::new(&path, settings);
            assert!(opened.read(0, 1 << 20) == committed, "history {i}, {settings:?}");
        }
    });
}

/// Size of the journals of a file's folder.
fn journal_size(dir: &Path) -> u64 {
    journals(&dir.join(".famio")).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn holes_take_no_journal_and_no_time() {
    const SIZE: u64 = 1 << 40;
    everywhere("holes", |dir, settings| {
        let path = dir.path().join("file");
        let file = fs::File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(b"in the middle", SIZE / 2 + 5).unwrap();
        let opened = Opened::new(&path, settings);
        // Also written by Famio, and not in the file yet.
        opened.write(SIZE / 4, b"in the journal");
        let before = journal_size(dir.path());
        opened.atomic().zero(1, SIZE - 1).unwrap();
        assert_eq!(opened.read(SIZE / 2, 20), [0; 20], "{settings:?}");
        assert_eq!(opened.read(SIZE / 4, 20), [0; 20], "{settings:?}");
        opened.atomic().sync().unwrap();
        let after = journal_size(dir.path());
        // The index has leaves of 2 MiB: zeros near a block of data are written.
        assert!(after <= before + (16 << 20), "{before} bytes, then {after}: {settings:?}");
        drop(opened);
        assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
        let mut there = [1; 20];
        fs::File::open(&path).unwrap().read_exact_at(&mut there, SIZE / 2).unwrap();
        assert_eq!(there, [0; 20], "{settings:?}");
    });
}

#[test]
fn a_write_far_beyond_the_end_leaves_a_hole() {
    everywhere("far", |dir, settings| {
        let path = dir.path().join("file");
        fs::write(&path, [1; 5000]).unwrap();
        let opened = Opened::new(&path, settings);
        for at in [100u64 << 20, 200 << 20, 300 << 20] {
            opened.write(at, &[2; 100]);
        }
        opened.atomic().sync().unwrap();
        let room = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        assert!(room(&path) < 1 << 20, "{settings:?}: {}", room(&path));
        drop(opened);
        assert!(room(&path) < 1 << 20, "{settings:?}, closed: {}", room(&path));
        let mut bytes = [0; 101];
        assert_eq!(fs::File::open(&path).unwrap().read_at(&mut bytes, (200 << 20) - 1).unwrap(), 101);
        assert!(bytes[0] == 0 && bytes[1..] == [2; 100]);
    });
}

#[test]
fn growing_never_cuts() {
    everywhere("grow", |dir, settings| {
        let path = dir.path().join("file");
        fs::write(&path, [3; 100]).unwrap();
        let opened = Opened::new(&path, settings);
        opened.atomic().grow(50).unwrap();
        assert_eq!(opened.atomic().size(), 100);
        opened.atomic().grow(5000).unwrap();
        assert_eq!((opened.atomic().size(), opened.read(98, 4)), (5000, vec![3, 3, 0, 0]));
    });
}

/// A descriptor of an atomic file.
fn open(path: &Path, flags: i32) -> i32 {
    static START: Once = Once::new();
    START.call_once(|| {
        let globs = Globs::new(b"*.atomic", b"/", None).unwrap();
        process::start_with(Config {
            globs,
            settings: Settings::default(),
            kept: None,
            write_atomic: None,
            groups: Vec::new(),
            async_io: false,
        });
    });
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string.
    let fd = unsafe { posix::openat(libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) } as i32;
    assert!(posix::table::is_managed(fd));
    fd
}

#[test]
fn what_is_appended_meanwhile_stays() {
    const APPENDS: usize = 40_000;
    let bytes = [b'x'; 500];
    let dir = Scratch::on_tmpfs("append");
    let path = dir.path().join("file.atomic");
    let fd = open(&path, libc::O_RDWR | libc::O_CREAT);
    let appending = open(&path, libc::O_WRONLY | libc::O_APPEND);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for _ in 0..APPENDS {
                // SAFETY: a live buffer.
                let done = unsafe { posix::write(appending, bytes.as_ptr(), bytes.len()) };
                assert_eq!(done, bytes.len() as isize);
            }
        });
        for ahead in (1..10_000).step_by(99).cycle() {
            if thread.is_finished() {
                break;
            }
            let end = posix::lseek(fd, 0, libc::SEEK_END) as i64;
            assert_eq!(posix::fallocate(fd, 0, end, ahead), 0);
        }
    });
    assert_eq!((posix::close(fd), posix::close(appending)), (0, 0));
    assert_eq!(fs::read(&path).unwrap().iter().filter(|&&byte| byte == b'x').count(), APPENDS * bytes.len());
}

#[test]
fn refusals_and_ranges_of_the_call() {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    let dir = Scratch::on_disk("fallocate");
    let path = dir.path().join("file.atomic");
    let fd = open(&path, libc::O_RDWR | libc::O_CREAT);
    let large = vec![5u8; 40 << 20];
    // SAFETY: a live buffer.
    assert_eq!(unsafe { posix::write(fd, large.as_ptr(), large.len()) }, large.len() as isize);

    // Modes that move the rest of the file.
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(posix::fallocate(fd, mode, 4096, 4096), -libc::EOPNOTSUPP as isize);
        assert_eq!(posix::fallocate(fd, mode, -1, 4096), -libc::EINVAL as isize);
    }
    assert_eq!(posix::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE, 0, 1), -libc::EOPNOTSUPP as isize);
    assert_eq!(posix::fallocate(fd, 0, i64::MAX - 10, 11), -libc::EFBIG as isize);
    // More than a file on this file system can have.
    assert_eq!(posix::fallocate(fd, KEEP, 1 << 50, 1 << 20), -libc::EFBIG as isize);
    let readable = open(&path, libc::O_RDONLY);
    assert_eq!(posix::fallocate(readable, 0, 0, 1), -libc::EBADF as isize);
    assert_eq!(posix::fallocate(readable, 1 << 20, 0, 1), -libc::EOPNOTSUPP as isize);
    assert_eq!(posix::close(readable), 0);

    // A hole of more than one piece, and zeros that extend the file.
    let punch = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    assert_eq!(posix::fallocate(fd, punch, 1, 30 << 20), 0);
    assert_eq!(posix::fallocate(fd, punch, 1 << 40, 4096), 0);
    assert_eq!(posix::fallocate(fd, libc::FALLOC_FL_ZERO_RANGE, (40 << 20) - 1, 10), 0);
    assert_eq!(posix::fallocate(fd, libc::FALLOC_FL_ZERO_RANGE | KEEP, 50 << 20, 4096), 0);
    let mut model = large;
    model[1..=30 << 20].fill(0);
    model[(40 << 20) - 1] = 0;
    model.extend([0; 9]);
    assert_eq!(posix::lseek(fd, 0, libc::SEEK_END), model.len() as isize);
    let mut there = vec![1u8; model.len()];
    // SAFETY: a live buffer.
    assert_eq!(unsafe { posix::pread(fd, there.as_mut_ptr(), there.len(), 0) }, there.len() as isize);
    assert!(there == model);
    assert_eq!(posix::close(fd), 0);
    assert!(fs::read(&path).unwrap() == model);
}

/// Writes into it failed with `ENOSPC` after 55 of 2,048 blocks.
#[test]
fn space_that_was_allocated_on_a_full_disk_takes_writes() {
    const BLOCKS: usize = 2048;
    for on_tmpfs in [false, true] {
        let Some(small) = Small::new("allocated", on_tmpfs, 40) else { return };
        let path = small.path().join("file.atomic");
        let fd = open(&path, libc::O_RDWR | libc::O_CREAT);
        let put = |block: usize, byte: u8| {
            let bytes = [byte; 4096];
            // SAFETY: a live buffer.
            unsafe { posix::pwrite(fd, bytes.as_ptr(), bytes.len(), (block * bytes.len()) as i64) }
        };
        assert_eq!((put(0, 1), posix::fsync(fd)), (4096, 0));
        let _filler = small.fill((BLOCKS as u64 + 60) * 4096);
        assert_eq!(posix::fallocate(fd, 0, 0, (BLOCKS * 4096) as i64), 0);
        assert_eq!(posix::fsync(fd), 0);
        for block in 0..BLOCKS {
            assert_eq!(put(block, block as u8 | 1), 4096, "block {block}, on a tmpfs: {on_tmpfs}");
        }
        assert_eq!((posix::fsync(fd), posix::close(fd)), (0, 0));
        let all = fs::read(&path).unwrap();
        assert!(all.len() == BLOCKS * 4096 && all.chunks(4096).enumerate().all(|(i, b)| b == [i as u8 | 1; 4096]));
    }
}
