//! A sound journal of records, edited with its checks corrected, is recovered or refused; nothing else happens.
#![no_main]

use famio::{JournalChoice, Settings};
use famio_fuzz::records::{Edit, apply};
use famio_fuzz::{Crashed, Stage};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::LazyLock;

/// Crashes with a short journal, and with one whose segments were reused. Made on a disk, and moved to tmpfs.
static CRASHES: LazyLock<(Stage, Vec<Crashed>)> = LazyLock::new(|| {
    let disk = Stage::new(Path::new(env!("CARGO_MANIFEST_DIR")), "records");
    let stage = Stage::on_tmpfs("records");
    let mut crashes = Vec::new();
    for (epochs, len) in [(3u64, 700usize), (6, 30_000), (60, 20_000)] {
        let settings = Settings { journal_limit: 1 << 20, journal: JournalChoice::Always, ..Settings::default() };
        let initial: Vec<u8> = (0..16_000u32).map(|i| (i % 251) as u8).collect();
        let mut crashed = disk.crash(&initial, &settings, |opened| {
            for epoch in 0..epochs {
                opened.write(epoch * 1009 % 40_000, &vec![epoch as u8 + 1; len]).expect("a write");
                opened.sync().expect("a commit");
            }
            let committed = opened.read(1 << 20).expect("a read");
            opened.write(50, &[9; 6000]).expect("a write");
            committed
        });
        stage.adopt(&mut crashed);
        stage.put(&crashed);
        let recovered = stage.recover(&crashed, &Settings::default());
        assert!(recovered.as_ref() == Some(&crashed.committed), "the sound one");
        crashes.push(crashed);
    }
    (stage, crashes)
});

fuzz_target!(|input: (u8, Vec<Edit>)| {
    let (stage, crashes) = &*CRASHES;
    let mut crashed = crashes[usize::from(input.0) % crashes.len()].clone();
    apply(&mut crashed, &input.1);
    stage.put(&crashed);
    stage.recover(&crashed, &Settings::default());
});
