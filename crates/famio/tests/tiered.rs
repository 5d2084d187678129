//! A tiered file's write cache: what stays in memory, and what goes to the disk when.

mod common;

use common::{Opened, Scratch, comes_true, tiered_settings};
use famio::recovery::check_journal;
use famio::{Settings, WriteBackRange};
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Bytes written are counted for all threads of the process.
static ALONE: Mutex<()> = Mutex::new(());

const BLOCK: usize = 4096;

/// Bytes that this process caused to be written to a disk, as the kernel counts them: pages made dirty.
fn written_to_disks() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
}

fn with_limit(journal_limit: u64) -> Settings {
    Settings { journal_limit, write_back: WriteBackRange::default(), ..tiered_settings(false) }
}

/// Writes whole blocks, each with a SYNC, in an order that depends only on the seed; updates the expected contents.
fn write_on(opened: &Opened, model: &mut [u8], epochs: core::ops::Range<usize>) {
    let blocks = model.len() / BLOCK;
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    for epoch in epochs {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % blocks * BLOCK;
        // Sometimes only a piece of one, which leaves the rest where it was logged before.
        let len = if epoch % 3 == 0 { 200 } else { BLOCK };
        model[at..at + len].fill(epoch as u8);
        opened.write(at as u64, &model[at..at + len]);
        opened.atomic().sync().unwrap();
    }
}

#[test]
fn a_working_set_that_fits_is_not_written_to_the_disk() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("fits");
    let path = dir.path().join("file");
    let mut model = vec![1; 300 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let opened = Opened::new(&path, &with_limit(64 << 20));
    opened.write(0, b"attached");
    model[..8].copy_from_slice(b"attached");
    opened.atomic().sync().unwrap();
    let before = written_to_disks();
    // Enough to fill the journal twice.
    write_on(&opened, &mut model, 0..45_000);
    assert_eq!(written_to_disks() - before, 0, "bytes written to a disk");
    assert!(opened.read(0, model.len() + 1) == model);
    // When idle, all of it is written back.
    assert!(comes_true(|| std::fs::read(&path).unwrap() == model), "it is written back when no process writes");
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}

#[test]
fn a_working_set_that_does_not_fit_is_written_back_in_time() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("fits-not");
    let path = dir.path().join("file");
    let mut model = vec![1; 8000 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let settings = with_limit(16 << 20);
    let opened = Opened::new(&path, &settings);
    let before = written_to_disks();
    write_on(&opened, &mut model, 0..12_000);
    assert!(written_to_disks() > before, "some of it has to be on the disk by now");
    assert!(opened.read(0, model.len() + 1) == model);
    let size = |path: std::path::PathBuf| std::fs::metadata(path).map_or(0, |of| of.len());
    let pool = settings.pool.unwrap();
    let largest = std::fs::read_dir(pool).unwrap().map(|entry| size(entry.unwrap().path())).max().unwrap();
    assert!(largest <= 16 << 20, "the journal has {largest} bytes");
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}

/// Its journal's file was removed: later commits go to another one, which has everything.
#[test]
fn a_journal_that_was_removed_is_made_anew() {
    let dir = Scratch::on_disk("anew");
    let pool = Scratch::on_tmpfs("anew-pool");
    let path = dir.path().join("file");
    let mut model = vec![1; 100 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let settings = Settings { pool: Some(pool.path().to_path_buf()), ..tiered_settings(false) };
    let opened = Opened::new(&path, &settings);
    let journal = || {
        let all = std::fs::read_dir(pool.path()).unwrap().map(|entry| entry.unwrap().path());
        all.into_iter().find(|path| path.extension().is_some_and(|end| end == "journal"))
    };
    write_on(&opened, &mut model, 0..50);
    let epoch_of = |path| check_journal(std::fs::File::open(path).unwrap().as_fd(), None).unwrap();
    let (before, problems) = epoch_of(journal().unwrap());
    assert!(before == 51 && problems.is_empty(), "{before} {problems:?}");
    std::fs::remove_file(journal().unwrap()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    write_on(&opened, &mut model, 50..100);
    let (epoch, problems) = epoch_of(journal().expect("it is there again"));
    assert!(epoch == before + 50 && problems.is_empty(), "{epoch} after {before}: {problems:?}");
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model && journal().is_none());
}
