//! A journal that may not grow: writing goes on within it, and an epoch larger than it gets `ENOSPC` from a write,
//! never from a SYNC, and never ends the process.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings};
use famio::Settings;
use std::path::Path;

#[test]
fn crash_child() {
    crash::child();
}

fn all(name: &str) -> Vec<(Settings, Scratch)> {
    let on_tmpfs = in_place_settings().into_iter().enumerate().map(|(i, settings)| {
        // One segment: 64 log blocks.
        (Settings { journal_limit: 300_000, ..settings }, Scratch::on_tmpfs(&format!("{name}{i}")))
    });
    let records = Settings { journal_limit: 2 << 20, ..Settings::default() };
    let tiered = Settings { journal_limit: 2 << 20, ..common::tiered_settings(false) };
    let on_disk = [(records, Scratch::on_disk(name)), (tiered, Scratch::on_disk(&format!("{name}-tier")))];
    on_tmpfs.chain(on_disk).collect()
}

fn journal_size(dir: &Path) -> u64 {
    let journals = crash::journals(&dir.join(".famio"));
    journals.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn many_epochs_go_through_a_small_journal() {
    for (settings, dir) in all("limit") {
        let path = dir.path().join("file");
        let mut model = vec![1u8; 4 << 20];
        std::fs::write(&path, &model).unwrap();
        let opened = Opened::new(&path, &settings);
        for epoch in 0..60usize {
            // 40 blocks, different ones each time.
            for i in 0..40 {
                let at = (epoch * 40 + i) * 7 % 1000 * 4096 + 17;
                let wrote = opened.try_write(at as u64, &[epoch as u8 + 2; 3000]).map_err(|e| e.to_string());
                assert_eq!(wrote, Ok(3000), "{settings:?}, epoch {epoch}");
                model[at..at + 3000].fill(epoch as u8 + 2);
            }
            opened.atomic().sync().unwrap();
            assert!(journal_size(dir.path()) <= settings.journal_limit, "{settings:?}");
        }
        assert!(opened.read(0, 5 << 20) == model, "{settings:?}");
        drop(opened);
        assert!(std::fs::read(&path).unwrap() == model, "{settings:?}");
    }
}

#[test]
fn an_epoch_that_is_larger_than_the_journal() {
    for (settings, dir) in all("epoch") {
        let path = dir.path().join("file");
        let mut model = vec![1u8; 6 << 20];
        std::fs::write(&path, &model).unwrap();
        let opened = Opened::new(&path, &settings);
        opened.write(100, b"committed");
        opened.atomic().sync().unwrap();
        model[100..109].copy_from_slice(b"committed");
        let mut refused = 0;
        for at in (0..6 << 20).step_by(8192) {
            match opened.try_write(at as u64, &[9; 8000]) {
                Ok(n) => model[at..at + n].fill(9),
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC, "{settings:?}: {e}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{settings:?}: 6 MiB went into {} bytes of journal", settings.journal_limit);
        assert!(opened.read(0, 7 << 20) == model, "{settings:?}");
        opened.atomic().sync().unwrap_or_else(|e| panic!("{settings:?}: SYNC: {e}"));
        // The next epoch has space again.
        let wrote = opened.try_write(5 << 20, &[7; 20_000]).map_err(|e| e.to_string());
        assert_eq!(wrote, Ok(20_000), "{settings:?}: the next epoch has no room");
        model[5 << 20..][..20_000].fill(7);
        opened.atomic().sync().unwrap();
        drop(opened);
        assert!(std::fs::read(&path).unwrap() == model, "{settings:?}");
    }
}

#[test]
fn what_was_committed_survives_a_kill_in_an_epoch_that_is_too_large() {
    use crash::{Sync, write};
    for (settings, dir) in all("killed") {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1u8; 2 << 20]).unwrap();
        // As much of an epoch as fits.
        let room = if settings.emulated || dir.path().starts_with("/dev/shm") { 30 } else { 80 };
        let mut steps = vec![write(0, 100_000, 2), Sync, write(50_000, 100, 3), Sync];
        steps.extend((0..room).map(|i| write(i * 16_384 + 5, 4000, 4)));
        crash::crash(&path, &settings, &steps);
        let (_, committed) = crash::model(&vec![1u8; 2 << 20], &steps);
        drop(Opened::new(&path, &settings));
        assert!(std::fs::read(&path).unwrap() == committed, "{settings:?}");
    }
}

#[test]
fn a_limit_with_room_for_nothing() {
    // A journal of records takes the two segments that it needs, whatever the limit.
    for (settings, dir) in all("none").into_iter().filter(|(_, dir)| dir.path().starts_with("/dev/shm")) {
        for journal_limit in [0, 1, 4096, 100_000] {
            let path = dir.path().join("file");
            std::fs::write(&path, vec![1u8; 50_000]).unwrap();
            let opened = Opened::new(&path, &Settings { journal_limit, ..settings.clone() });
            let error =
                opened.try_write(0, b"something").err().unwrap_or_else(|| panic!("{settings:?}, {journal_limit}"));
            assert_eq!(error.errno(), libc::ENOSPC, "{settings:?}, {journal_limit}: {error}");
            opened.atomic().sync().unwrap();
            assert!(opened.read(0, 60_000) == [1u8; 50_000]);
            drop(opened);
            assert!(std::fs::read(&path).unwrap() == [1u8; 50_000]);
        }
    }
}

/// Bytes that an epoch cuts off and writes again are in the journal once.
#[test]
fn cutting_and_writing_again_takes_no_journal() {
    let dir = Scratch::on_disk("cut-again");
    let settings = Settings { journal_limit: 4 << 20, ..Settings::default() };
    let opened = Opened::new(&dir.path().join("file"), &settings);
    for round in 0..1000u32 {
        opened.atomic().set_size(0).unwrap();
        for block in 0..200 {
            opened.write(block * 4096, &round.to_le_bytes());
        }
    }
    opened.atomic().sync().unwrap();
    assert_eq!(opened.read(199 * 4096, 4), 999u32.to_le_bytes());
}
