//! A process with very many open atomic files, each of them written to. `FAMIO_FILES` is their number; the default is
//! a third of what docs/guarantees.md promises. `FAMIO_FILES_IN` names a folder for them, for example in a virtual
//! machine with enough memory and disk (`dax-vm run --mem 7G --disk 9G -- TEST on_a_disk`).

mod common;
#[path = "common/small.rs"]
mod small;

use common::{Opened, Scratch};
use famio::{Durability, Settings};
use small::Small;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// The promised number.
const PROMISED: u64 = 10_000;
const SHORT: u64 = 3_000;

/// Descriptors and maps belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Raises the limit on descriptors: one for each file itself, and a few of the library's. `None`, with a loud
/// message, if not permitted.
fn with_descriptors_for(files: u64) -> Option<()> {
    let wanted = files * 5 + 500;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a `struct rlimit` of ours.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_max = limit.rlim_max.max(wanted);
    limit.rlim_cur = limit.rlim_cur.max(wanted);
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        eprintln!("NOT TESTED: {files} open files take {wanted} descriptors, and root to raise the limit");
        return None;
    }
    Some(())
}

fn files_asked() -> u64 {
    let asked = std::env::var("FAMIO_FILES").ok();
    asked.map_or(SHORT, |n| n.parse::<u64>().expect("a number in FAMIO_FILES").min(PROMISED))
}

/// The contents of file `i` after `round` rounds.
fn content(i: u64, round: u8) -> Vec<u8> {
    (0..5000u64).map(|at| (at * 7 + i * 31) as u8 ^ round).collect()
}

/// Nanoseconds of processor time that this process has used.
fn spent() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a `struct timespec` of ours.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn many(folder: &Path, files: u64, settings: &Settings) {
    let begun = std::time::Instant::now();
    let at = |i: u64| folder.join(format!("{i}"));
    let mut all = Vec::new();
    for i in 0..files {
        let opened = Opened::try_new(&at(i), settings).unwrap_or_else(|e| panic!("opening file {i}: {e}"));
        let written = opened.try_write(0, &content(i, 0)).unwrap_or_else(|e| panic!("writing file {i}: {e}"));
        assert_eq!(written, 5000);
        assert!(!opened.atomic().is_demoted(), "file {i} is not protected");
        opened.atomic().sync().unwrap_or_else(|e| panic!("SYNC of file {i}: {e}"));
        all.push(opened);
    }
    println!("{files} files opened, written and synced after {:?}", begun.elapsed());
    if std::env::var_os("FAMIO_FILES").is_some() {
        let before = spent();
        std::thread::sleep(std::time::Duration::from_secs(5)); // only to see what happens without calls
        println!("idle: {} ms of processor time in 5 s", (spent() - before) / 1_000_000);
    }
    // Again, in another order, and every other file without a SYNC: the last close commits it.
    for i in (0..files).rev() {
        let opened = &all[i as usize];
        assert!(opened.read(0, 6000) == content(i, 0), "file {i}");
        opened.write(0, &content(i, 1));
        if i % 2 == 0 {
            opened.atomic().sync().unwrap_or_else(|e| panic!("second SYNC of file {i}: {e}"));
        }
    }
    println!("and once more after {:?}", begun.elapsed());
    drop(all);
    println!("closed after {:?}", begun.elapsed());
    for i in 0..files {
        assert!(fs::read(at(i)).unwrap() == content(i, 1), "file {i} as the kernel has it");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count() as u64, files, "something is left beside them");
}

#[test]
fn in_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let files = files_asked();
    if with_descriptors_for(files).is_some() {
        let dir = Scratch::on_tmpfs("ten-thousand");
        many(dir.path(), files, &Settings { durability: Durability::Process, ..Settings::default() });
    }
}

/// Journals in place, as on persistent memory: each has its own zone and index.
#[test]
fn on_emulated_persistent_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let files = files_asked();
    if with_descriptors_for(files).is_some() {
        let dir = Scratch::on_tmpfs("ten-thousand-emulated");
        many(dir.path(), files, &Settings { emulated: true, ..Settings::default() });
    }
}

/// Each needs syncs of a disk, at its beginning and its end.
#[test]
fn on_a_disk() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let files = files_asked();
    if with_descriptors_for(files).is_none() {
        return;
    }
    if let Some(folder) = std::env::var_os("FAMIO_FILES_IN") {
        let folder = Path::new(&folder).join(format!("ten-thousand-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        return many(&folder, files, &Settings::default());
    }
    match Small::in_memory("ten-thousand-disk", files as usize) {
        Some(disk) => {
            fs::create_dir(disk.path().join("files")).unwrap();
            many(&disk.path().join("files"), files, &Settings::default());
        }
        None => {
            let dir = Scratch::on_disk("ten-thousand");
            many(dir.path(), files / 10, &Settings::default());
        }
    }
}
