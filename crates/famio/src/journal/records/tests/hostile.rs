//! Damaged and malicious journals.

use super::super::scan::{Scan, scan_as};
use super::super::{Geometry, PAGE};
use super::test_hooks::{SMALL, TestHooks, recover, rewrite};
use crate::error::Result;
use crate::journal::Header;
use crate::journal::testing::KERNEL;
use famio_test_support::random::Random;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A journal with a history: reused segments, parts, a note, cuts.
fn history() -> TestHooks {
    let mut test_hooks = TestHooks::new();
    for i in 0..14u64 {
        test_hooks.write(i as usize * 700, &[i as u8 + 1; 5000]);
        if i == 9 {
            test_hooks.append(false).unwrap();
            test_hooks.truncate(6000);
        }
        test_hooks.commit().unwrap();
        if i < 9 {
            test_hooks.checkpoint(i);
        }
    }
    test_hooks
}

fn scan_bytes(file: &File, strict: bool) -> Result<Scan> {
    let (header, _) = Header::load(file.as_fd())?;
    scan_as(file.as_fd(), &header, strict)
}

/// The records that would be applied.
fn essence(scan: &Scan) -> (u64, u64, Option<u64>, Vec<(u64, u128)>) {
    (scan.committed, scan.tail, scan.size, scan.records.iter().map(|r| (r.position, r.hash)).collect())
}

#[test]
fn every_flipped_byte_is_told_or_does_not_matter() {
    let test_hooks = history();
    let path = test_hooks.copy();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let good = fs::read(&path).unwrap();
    let right = essence(&scan_bytes(&file, true).unwrap());
    assert_eq!(right.0, 14);
    let (mut told, mut dropped) = (0, 0);
    // Every byte of heads, and a sample of the others.
    let interesting = |at: &usize| at % PAGE < 300 || at.is_multiple_of(7);
    for at in (0..good.len()).filter(interesting) {
        file.write_all_at(&[good[at] ^ 0x40], at as u64).unwrap();
        match scan_bytes(&file, true) {
            Ok(scan) => assert_eq!(essence(&scan), right, "byte {at}"),
            Err(error) => {
                assert_eq!(error.errno(), libc::EIO, "byte {at}: {error}");
                assert!(error.to_string().contains("the journal") || error.to_string().contains("at byte"), "{error}");
                told += 1;
            }
        }
        // After a power cut, damage to the last epoch cannot be told from an epoch that did not happen.
        match scan_bytes(&file, false) {
            Ok(scan) if scan.committed == 13 => dropped += 1,
            Ok(scan) => assert_eq!(essence(&scan), right, "byte {at}"),
            Err(error) => assert_eq!(error.errno(), libc::EIO, "byte {at}: {error}"),
        }
        file.write_all_at(&[good[at]], at as u64).unwrap();
    }
    assert!(told > 1000 && dropped > 100, "{told} {dropped}");
    assert_eq!(essence(&scan_bytes(&file, true).unwrap()), right);
}

#[test]
fn every_length_is_told() {
    let test_hooks = history();
    let path = test_hooks.copy();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    for cut in (0..length).rev().filter(|cut| cut % 512 < 2 || cut % 97 == 0) {
        file.set_len(cut).unwrap();
        let error = recover(&path, &test_hooks.data, &KERNEL).unwrap_err();
        assert_eq!(error.errno(), libc::EIO);
        let text = error.to_string();
        assert!(text.contains("too short") || text.contains("its header tells of"), "{text}");
    }
}

#[test]
fn damage_leaves_the_file_alone() {
    let test_hooks = history();
    let path = test_hooks.copy();
    let (good, before) = (fs::read(&path).unwrap(), test_hooks.file());
    let mut bad = good.clone();
    let at = scan_bytes(&File::open(&path).unwrap(), true).unwrap().last[0].0 as usize;
    bad[at + 500] ^= 1;
    rewrite(&path, bad.clone(), true);
    for _ in 0..2 {
        let changed = fs::read(&path).unwrap();
        assert!(recover(&path, &test_hooks.data, &KERNEL).is_err());
        assert!(fs::read(&path).unwrap() == changed && test_hooks.file() == before);
    }
}

#[test]
fn segments_of_another_journal_are_not_ours() {
    let (test_hooks, other) = (history(), history());
    let path = test_hooks.copy();
    let (good, foreign) = (fs::read(&path).unwrap(), fs::read(other.journal_path()).unwrap());
    let file = File::open(&path).unwrap();
    let right = essence(&scan_bytes(&file, true).unwrap());
    let places: Vec<_> = SMALL.places().take_while(|place| place.end() <= good.len() as u64).collect();
    for from in &places {
        for to in &places {
            for source in [&good, &foreign] {
                // A head page replaced by zeros looks like one that was never written.
                let head = from.offset as usize..from.offset as usize + PAGE;
                if from == to && core::ptr::eq(source, &good) || source[head] == [0; PAGE] {
                    continue;
                }
                let mut bad = good.clone();
                let len = from.len.min(to.len) as usize;
                let (from, to) = (from.offset as usize, to.offset as usize);
                bad[to..to + len].copy_from_slice(&source[from..from + len]);
                fs::write(&path, &bad).unwrap();
                assert!(scan_bytes(&file, true).is_err(), "segment {from} at {to}");
                match scan_bytes(&file, false) {
                    Ok(scan) => assert!(essence(&scan) == right || scan.committed == 13, "segment {from} at {to}"),
                    Err(error) => assert_eq!(error.errno(), libc::EIO),
                }
            }
        }
    }
}

#[test]
fn older_segments_of_the_same_journal_do_not_come_back() {
    let mut test_hooks = TestHooks::new();
    let mut images = Vec::new();
    for i in 0..20u64 {
        test_hooks.write(i as usize * 300, &[i as u8 + 1; 6000]);
        test_hooks.commit().unwrap();
        images.push(fs::read(test_hooks.journal_path()).unwrap());
        test_hooks.checkpoint(i.saturating_sub(1));
    }
    let path = test_hooks.copy();
    let good = fs::read(&path).unwrap();
    let file = File::open(&path).unwrap();
    let right = essence(&scan_bytes(&file, true).unwrap());
    for image in images {
        for place in SMALL.places().take_while(|place| place.end() <= image.len() as u64) {
            let mut bad = good.clone();
            let range = place.offset as usize..place.end() as usize;
            bad[range.clone()].copy_from_slice(&image[range]);
            fs::write(&path, &bad).unwrap();
            match scan_bytes(&file, false) {
                Ok(scan) => {
                    assert!(essence(&scan) == right || (18..20).contains(&scan.committed), "{}", scan.committed)
                }
                Err(error) => assert_eq!(error.errno(), libc::EIO),
            }
        }
    }
}

#[test]
fn geometry_that_points_outside_is_told() {
    let test_hooks = history();
    let path = test_hooks.copy();
    let file = File::open(&path).unwrap();
    let (header, _) = Header::load(file.as_fd()).unwrap();
    for (word, value) in [(0, 0), (0, 1 << 62), (1, 4096), (2, u64::MAX), (3, 5000), (3, u64::MAX), (0, 100)] {
        let mut bad = header.clone();
        bad.geometry[word] = value;
        let error = scan_as(file.as_fd(), &bad, false).unwrap_err();
        assert!(error.to_string().contains("header tells of"), "{error}");
    }
    let mut other = header.clone();
    Geometry { first: 9 * 4096, ..SMALL }.put(2, &mut other.geometry);
    assert!(scan_as(file.as_fd(), &other, true).is_err());
}

#[test]
fn noise_is_survived() {
    let test_hooks = history();
    let path = test_hooks.copy();
    let good = fs::read(&path).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut random = Random::new(1);
    let mut next = |below: usize| random.below(below as u64) as usize;
    for _ in 0..2000 {
        let mut bad = good.clone();
        for _ in 0..1 + next(3) {
            let (at, len) = (4096 + next(good.len() - 4096), 1 + next(6000));
            let end = (at + len).min(good.len());
            match next(3) {
                0 => bad[at..end].fill(0),
                1 => bad[at..end].fill_with(|| next(256) as u8),
                _ => {
                    let from = 4096 + next(good.len() - 4096);
                    let len = (end - at).min(good.len() - from);
                    bad[at..at + len].copy_from_slice(&good[from..from + len]);
                }
            }
        }
        file.write_all_at(&bad, 0).unwrap();
        for strict in [true, false] {
            if let Err(error) = scan_bytes(&file, strict) {
                assert_eq!(error.errno(), libc::EIO, "{error}");
            }
        }
    }
}
