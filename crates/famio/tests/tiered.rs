//! A tiered file's write cache: what stays in memory, and what goes to the disk when.

mod common;

use common::{Opened, Scratch, comes_true, tiered_settings};
use famio::recovery::check_journal;
use famio::{Settings, WriteBackRange};
use famio_test_support::random::Random;
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
    let mut random = Random::new(0);
    for epoch in epochs {
        let at = random.below(blocks as u64) as usize * BLOCK;
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
    // A process that the machine does not let run for a third of a second counts as idle: not three times.
    let mut written = [0; 3];
    for (round, written) in written.iter_mut().enumerate() {
        let before = written_to_disks();
        // Enough to fill the journal twice.
        write_on(&opened, &mut model, round * 45_000..(round + 1) * 45_000);
        *written = written_to_disks() - before;
        if *written == 0 {
            break;
        }
    }
    assert!(written.contains(&0), "{written:?} bytes written to a disk");
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
    std::thread::sleep(std::time::Duration::from_millis(20)); // the last look for the journal is outdated by then
    write_on(&opened, &mut model, 50..100);
    let (epoch, problems) = epoch_of(journal().expect("it is there again"));
    assert!(epoch == before + 50 && problems.is_empty(), "{epoch} after {before}: {problems:?}");
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model && journal().is_none());
}

/// The journal is full of committed blocks that the open epoch overwrites: they went to the file with that epoch's
/// commit only, and the epoch had the rest of the journal, here a third of it.
#[test]
fn an_epoch_may_be_as_large_as_the_journal() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("large-epoch");
    let path = dir.path().join("file");
    // Of 4 MiB the segments have 3.25.
    let mut model = vec![1; 780 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let opened = Opened::new(&path, &with_limit(4 << 20));
    for round in 0..3u8 {
        write_on(&opened, &mut model, 0..700);
        for block in 0..780 {
            let at = block * BLOCK;
            model[at..at + BLOCK].fill(round.wrapping_mul(50).wrapping_add(block as u8));
            opened.write(at as u64, &model[at..at + BLOCK]);
        }
        opened.atomic().sync().unwrap();
    }
    assert!(opened.read(0, model.len() + 1) == model);
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}

/// The same of an epoch that cuts the file off, and writes it anew.
#[test]
fn an_epoch_that_cuts_the_file_may_be_as_large() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("large-cut");
    let path = dir.path().join("file");
    let mut model = vec![1; 780 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let opened = Opened::new(&path, &with_limit(4 << 20));
    for (round, cut) in [0, 100, 5000, 700 * BLOCK + 9].into_iter().enumerate() {
        write_on(&opened, &mut model, 0..700);
        // Committed before, and not in the file yet.
        model.resize(770 * BLOCK, 0);
        opened.atomic().set_size(model.len() as u64).unwrap();
        model.resize(780 * BLOCK, 0);
        opened.atomic().set_size(model.len() as u64).unwrap();
        opened.atomic().sync().unwrap();
        opened.atomic().set_size(cut as u64).unwrap();
        model.truncate(cut);
        model.resize(780 * BLOCK, 0);
        for block in 0..780 {
            let at = block * BLOCK + 8;
            model[at..at + BLOCK - 8].fill((round * 60 + block) as u8);
            opened.write(at as u64, &model[at..at + BLOCK - 8]);
        }
        opened.atomic().sync().unwrap();
        assert!(opened.read(0, model.len() + 1) == model, "after the cut to {cut}");
    }
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}

/// `ENOSPC` at a write, and what was written before it can be committed; the next epoch finds room.
#[test]
fn an_epoch_larger_than_the_journal_has_no_room() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("too-large");
    let path = dir.path().join("file");
    let mut model = vec![1; 1200 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let opened = Opened::new(&path, &with_limit(4 << 20));
    for round in 0..3u8 {
        let full = (0..1200).find(|&block| {
            let at = block * BLOCK;
            let data = vec![round.wrapping_add(block as u8).wrapping_add(7); BLOCK];
            match opened.try_write(at as u64, &data) {
                Ok(_) => model[at..at + BLOCK].copy_from_slice(&data),
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC, "{e}");
                    return true;
                }
            }
            false
        });
        assert!((780..1000).contains(&full.expect("there is no room for all")), "{full:?}");
        opened.atomic().sync().unwrap();
        assert!(opened.read(0, model.len() + 1) == model);
    }
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}

/// Epochs of any size up to the journal's, with cuts, while the background writes back: none has no room, and nothing
/// is lost.
#[test]
fn epochs_of_any_size_find_room_in_a_small_journal() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("any-size");
    let path = dir.path().join("file");
    let mut model = vec![1; 900 * BLOCK];
    std::fs::write(&path, &model).unwrap();
    let opened = Opened::new(&path, &with_limit(4 << 20));
    let mut random = Random::new(19);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for epoch in 0..150 {
        let blocks = match below(4) {
            0 => 1 + below(750),
            1 => 1 + below(200),
            _ => 1 + below(20),
        };
        if below(6) == 0 {
            let size = model.len() - below(300 * BLOCK);
            opened.atomic().set_size(size as u64).unwrap();
            model.truncate(size);
            if below(2) == 0 {
                model.resize(900 * BLOCK, 0);
                opened.atomic().set_size(model.len() as u64).unwrap();
            }
        }
        let first = below(100);
        for number in 0..blocks {
            let block = if blocks > 200 { first + number * 7 % 700 } else { below(800) };
            let (at, len) = (block * BLOCK + below(BLOCK), 1 + below(BLOCK));
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].fill(below(256) as u8);
            opened.write(at as u64, &model[at..at + len]);
        }
        opened.atomic().sync().unwrap();
        if epoch % 30 == 0 {
            assert!(opened.read(0, model.len() + 1) == model, "in epoch {epoch}");
        }
    }
    assert!(opened.read(0, model.len() + 1) == model);
    drop(opened);
    assert!(std::fs::read(&path).unwrap() == model);
}
