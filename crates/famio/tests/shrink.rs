//! A journal frees its space when everything is in the file, even while that stays open, and does not grow without
//! need.

mod common;

use common::{Opened, Scratch, in_place_settings};
use famio::Settings;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of the journals in a folder.
fn journals(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir.join(".famio")) else { return 0 };
    let journals =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "journal"));
    journals.map(|path| std::fs::metadata(path).unwrap().len()).sum()
}

/// Checks until it is true; the background checkpoints when there was no write for a while.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::yield_now();
    }
}

fn grows_and_shrinks(dir: &Scratch, settings: &Settings) {
    let path = dir.path().join("file");
    std::fs::write(&path, vec![1u8; 6 << 20]).unwrap();
    let opened = Opened::new(&path, settings);
    for round in 2..4u8 {
        // A checkpoint happens when there was no write for a while: this thread may not have run for that long.
        let grows = (0..20).any(|_| {
            opened.write(0, &vec![round; 6 << 20]);
            opened.atomic().sync().unwrap();
            journals(dir.path()) > 4 << 20
        });
        assert!(grows, "{} bytes: {settings:?}", journals(dir.path()));
        eventually("shrinking", || journals(dir.path()) <= 2 << 20);
        assert!(opened.read(0, 6 << 20) == vec![round; 6 << 20]);
    }
    opened.write(5, b"after");
    opened.atomic().sync().unwrap();
    drop(opened);
    assert_eq!(&std::fs::read(&path).unwrap()[3..12], b"\x03\x03after\x03\x03");
    assert_eq!(journals(dir.path()), 0);
}

#[test]
fn journals_in_place_give_their_space_back() {
    for (i, settings) in in_place_settings().iter().enumerate() {
        grows_and_shrinks(&Scratch::on_tmpfs(&format!("shrink{i}")), settings);
    }
}

#[test]
fn journals_of_records_give_their_space_back() {
    grows_and_shrinks(&Scratch::on_disk("shrink"), &Settings::default());
}

/// A few blocks that are rewritten without a pause: the journal is reused, and does not grow.
#[test]
fn a_busy_journal_of_records_stays_short() {
    let dir = Scratch::on_disk("short");
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0u8; 4 * 4096]).unwrap();
    let opened = Opened::new(&path, &Settings::default());
    let appended: u64 = 48 << 20;
    let mut longest = 0;
    // Records of four blocks and a head.
    for epoch in 1..=appended / (5 * 4096) {
        opened.write(0, &[epoch as u8; 4 * 4096]);
        opened.atomic().sync().unwrap();
        longest = longest.max(journals(dir.path()));
    }
    assert!(longest < appended / 2, "{longest} bytes for {appended} appended");
}
