//! A sound journal in place, edited with its checks corrected, is recovered or refused; nothing else happens.
#![no_main]

use famio::{JournalChoice, PolicyChoice, Settings};
use famio_fuzz::in_place::{Edit, apply};
use famio_fuzz::{Crashed, Stage};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Crashes with each policy, the last with two segments.
static CRASHES: LazyLock<(Stage, Vec<(Settings, Crashed)>)> = LazyLock::new(|| {
    let stage = Stage::on_tmpfs("in-place");
    let mut crashes = Vec::new();
    for (policy, blocks) in
        [(PolicyChoice::Undo, 3), (PolicyChoice::Redo, 3), (PolicyChoice::Alternate, 3), (PolicyChoice::Redo, 70)]
    {
        let settings = Settings { policy, journal: JournalChoice::Always, ..Settings::default() };
        let initial: Vec<u8> = (0..16_000u32).map(|i| (i % 251) as u8).collect();
        let crashed = stage.crash(&initial, &settings, |opened| {
            for (round, byte) in [1u8, 2, 3].into_iter().enumerate() {
                for block in 0..blocks {
                    opened.write(block * 4096 + 100 * round as u64, &[byte; 700]).expect("a write");
                }
                opened.sync().expect("a commit");
            }
            let committed = opened.read(1 << 20).expect("a read");
            opened.write(50, &[9; 6000]).expect("a write");
            opened.write(15_990, &[8; 3000]).expect("a write");
            committed
        });
        stage.put(&crashed);
        assert!(stage.recover(&crashed, &settings).as_ref() == Some(&crashed.committed), "the sound one");
        crashes.push((settings, crashed));
    }
    (stage, crashes)
});

fuzz_target!(|input: (u8, Vec<Edit>)| {
    let (stage, crashes) = &*CRASHES;
    let (settings, crashed) = &crashes[usize::from(input.0) % crashes.len()];
    let mut crashed = crashed.clone();
    apply(&mut crashed, &input.1);
    stage.put(&crashed);
    stage.recover(&crashed, settings);
});
