//! Reads, writes, sizes, SYNC and clean close, with every policy and every kind of journal, compared with a model.

mod common;

use common::{Opened, Scratch, in_place_settings};
use famio_test_support::random::Random;

#[test]
fn journals_in_place_match_a_model_and_leave_nothing_behind() {
    random_writes(&Scratch::on_tmpfs("model"), &in_place_settings(), 3000);
}

#[test]
fn journals_of_records_match_a_model_and_leave_nothing_behind() {
    random_writes(&Scratch::on_disk("model"), &[famio::Settings::default()], 3000);
}

#[test]
fn tiered_journals_match_a_model_and_leave_nothing_behind() {
    random_writes(&Scratch::on_disk("model-tier"), &[false, true].map(common::tiered_settings), 3000);
}

fn random_writes(dir: &Scratch, all: &[famio::Settings], steps: u64) {
    for (i, settings) in all.iter().enumerate() {
        let path = dir.path().join(format!("file{i}"));
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let mut model = vec![7u8; 10_000];
        let opened = Opened::new(&path, settings);
        let mut random = Random::new(12345 + i as u64);
        let mut random = |below| random.below(below);
        for step in 0..steps {
            match random(20) {
                0 => opened.atomic().sync().unwrap(),
                1 => {
                    let size = random(60_000);
                    opened.atomic().set_size(size).unwrap();
                    model.resize(size as usize, 0);
                }
                2..=6 => {
                    let (offset, len) = (random(60_000), random(9000) as usize);
                    let got = opened.read(offset, len);
                    let from = model.len().min(offset as usize);
                    let to = model.len().min(offset as usize + len);
                    assert!(got == model[from..to], "step {step} of {settings:?}");
                }
                7 => {
                    let (from, len) = (random(60_000), random(20_000));
                    opened.atomic().zero(from, from + len).unwrap();
                    let end = model.len().min((from + len) as usize);
                    model[(from as usize).min(end)..end].fill(0);
                }
                8 => {
                    let size = random(60_000);
                    opened.atomic().grow(size).unwrap();
                    model.resize(model.len().max(size as usize), 0);
                }
                _ => {
                    let (offset, len) = (random(50_000) as usize, 1 + random(9000) as usize);
                    let data = vec![step as u8; len];
                    opened.write(offset as u64, &data);
                    if model.len() < offset + len {
                        model.resize(offset + len, 0);
                    }
                    model[offset..offset + len].copy_from_slice(&data);
                }
            }
            assert_eq!(opened.atomic().size(), model.len() as u64);
        }
        drop(opened);
        assert!(std::fs::read(&path).unwrap() == model, "{settings:?}");
        assert!(!dir.path().join(".famio").exists());
    }
}
