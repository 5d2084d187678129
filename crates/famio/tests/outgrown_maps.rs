//! Mapped files that grow beyond what their maps' memory was laid out for, while maps of them are stored to.

mod common;

use common::Scratch;
use famio::region::copy;
use famio::{AtomicFile, Region, Settings};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;

fn open(folder: &Scratch) -> Arc<AtomicFile> {
    let settings = Settings { map_memory: Some(MIB), ..Settings::default() };
    Arc::new(AtomicFile::options().create(true).settings(settings).open(folder.path().join("file")).unwrap())
}

fn each(name: &str, test: impl Fn(&Scratch)) {
    [Scratch::on_tmpfs(name), Scratch::on_disk(name)].iter().for_each(test);
}

fn store(region: &Region, at: usize, bytes: &[u8]) {
    // SAFETY: below the end, and no other thread uses it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.as_ptr().add(at), bytes.len()) };
}

fn read(file: &AtomicFile, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// As an engine that adds a chunk and maps it, again and again: by stores, by copies, by calls.
#[test]
fn stores_copies_and_calls_go_on_in_a_file_that_outgrows_its_memory() {
    each("outgrown-chunks", |folder| {
        let file = open(folder);
        let mut model = vec![0; CHUNK];
        file.set_len(CHUNK as u64).unwrap();
        let mut regions = vec![file.map(0..CHUNK as u64).unwrap()];
        for (round, size) in (1..=40u8).map(|mib| (mib, u64::from(mib) * MIB)) {
            file.set_len(size).unwrap();
            model.resize(size as usize, 0);
            let start = size - CHUNK as u64;
            let made = if round % 2 == 0 { file.map(start..size) } else { file.map_for_copies(start..size) }.unwrap();
            let stored = usize::from(round) * 100;
            match round % 2 {
                0 => store(&made, stored, &[round; 300]),
                _ => made.write_at(&[round; 300], stored).unwrap(),
            }
            model[start as usize + stored..][..300].fill(round);
            file.write_at(&[round + 100; 5000], start + 20_000).unwrap();
            model[start as usize + 20_000..][..5000].fill(round + 100);
            // Maps from before are as good as ever.
            let old = usize::from(round) / 2;
            regions[old].write_at(&[round; 10], 5).unwrap();
            let old_at = regions[old].offset() as usize;
            model[old_at + 5..][..10].fill(round);
            assert_eq!(read(&file, start, CHUNK), model[start as usize..], "{round}");
            let mut shown = vec![0; CHUNK];
            made.read_at(&mut shown, 0).unwrap();
            assert_eq!(shown, model[start as usize..], "{round}");
            regions.push(made);
            if round % 3 == 0 {
                file.sync().unwrap();
                assert_eq!(read(&file, 0, model.len()), model, "{round}");
            }
        }
        file.sync().unwrap();
        assert_eq!(read(&file, 0, model.len()), model);
        drop(regions);
        drop(file);
        assert!(std::fs::read(folder.path().join("file")).unwrap() == model);
    });
}

/// Copies within the file, whose ends overlap, across the place up to which its memory was laid out.
#[test]
fn overlapping_copies_cross_what_was_laid_out() {
    each("outgrown-overlap", |folder| {
        let file = open(folder);
        file.set_len(CHUNK as u64).unwrap();
        let all = file.map(0..32 * MIB).unwrap();
        file.set_len(32 * MIB).unwrap();
        let mut model: Vec<u8> = (0..32 * MIB).map(|at| (at / 7 % 251) as u8).collect();
        for at in (0..model.len()).step_by(1 << 20) {
            all.write_at(&model[at..][..1 << 20], at).unwrap();
        }
        let mut at = 100_000;
        while at < 31 << 20 {
            for (to, from, len) in [(at, at + 1000, 9000), (at + 700, at, 300_000)] {
                // SAFETY: both below the end.
                unsafe { copy(all.as_ptr().add(to), all.as_ptr().add(from), len) }.unwrap();
                model.copy_within(from..from + len, to);
            }
            at += 150_000;
        }
        file.sync().unwrap();
        assert!(read(&file, 0, model.len()) == model);
        drop(all);
        drop(file);
        assert!(std::fs::read(folder.path().join("file")).unwrap() == model);
    });
}
