//! Hostile bytes as mark, header, journal, file and arena, and in the mark of a file without a journal.
#![no_main]

use arbitrary::Arbitrary;
use famio::journal::header::{COPY_LEN, Header};
use famio::journal::{Identity, Mark};
use famio::{JournalChoice, PolicyChoice, Settings};
use famio_fuzz::growing_mark::{Edit, add_run, apply};
use famio_fuzz::{Crashed, Stage};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Bytes written over the journal's, at some offset.
    journal: Vec<(u32, Vec<u8>)>,
    /// Bytes written over the header's fields, from 16 on; its hash is corrected.
    header: Vec<(u16, u8)>,
    mark: Option<Vec<u8>>,
    arena: Option<Vec<u8>>,
    file: Vec<u8>,
    length: Option<u32>,
    raw: Vec<u8>,
    /// Edits of the mark of a file without a journal, in place of all other edits but those of the file.
    growing: Option<Vec<Edit>>,
}

/// A crash with a journal.
static CRASH: LazyLock<(Stage, Settings, Crashed)> = LazyLock::new(|| {
    let stage = Stage::on_tmpfs("hostile");
    let settings = Settings { policy: PolicyChoice::Alternate, journal: JournalChoice::Always, ..Settings::default() };
    let crashed = stage.crash(&[7; 9000], &settings, |opened| {
        opened.write(10, &[1; 5000]).expect("a write");
        opened.sync().expect("a commit");
        let committed = opened.read(1 << 20).expect("a read");
        opened.write(20, &[2; 5000]).expect("a write");
        committed
    });
    (stage, settings, crashed)
});

/// Crashes without a journal: some appended bytes are uncommitted; or committed bytes were overwritten, and only the mark
/// has the new ones.
static GROWING: LazyLock<(Stage, [Crashed; 2])> = LazyLock::new(|| {
    let stage = Stage::on_tmpfs("growing");
    let settings = Settings::default();
    let initial: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
    let appended = stage.crash(&initial, &settings, |opened| {
        opened.write(9000, &[1; 500]).expect("a write");
        opened.sync().expect("a commit");
        let committed = opened.read(1 << 20).expect("a read");
        opened.write(9500, &[2; 500]).expect("a write");
        committed
    });
    let mut overwritten = stage.crash(&initial, &settings, |opened| {
        opened.write(9000, &[1; 500]).expect("a write");
        opened.sync().expect("a commit");
        opened.read(1 << 20).expect("a read")
    });
    for at in [0, 700, 9460] {
        overwritten.committed[at..at + 40].fill(9);
        add_run(overwritten.mark.as_mut().expect("a mark"), at as u64, &[9; 40]);
    }
    for crashed in [&appended, &overwritten] {
        assert!(crashed.journal.is_empty(), "no journal");
        stage.put(crashed);
        assert!(stage.recover(crashed, &settings).as_ref() == Some(&crashed.committed), "the sound one");
    }
    (stage, [appended, overwritten])
});

fuzz_target!(|input: Input| {
    if let Some(edits) = &input.growing {
        let (stage, crashes) = &*GROWING;
        let mut crashed = crashes[edits.len() % 2].clone();
        apply(crashed.mark.as_mut().expect("a mark"), edits);
        replace_start(&mut crashed.file, &input.file);
        stage.put(&crashed);
        stage.recover(&crashed, &Settings::default());
        return;
    }
    let _ = Mark::decode(&input.raw);
    let _ = Header::read(&input.raw);
    if let Some(bytes) = input.raw.first_chunk::<{ Identity::LEN }>() {
        let _ = Identity::decode(bytes);
    }
    let (stage, settings, crashed) = &*CRASH;
    let mut crashed = crashed.clone();
    for (at, bytes) in &input.journal {
        let at = *at as usize % crashed.journal.len();
        let end = (at + bytes.len()).min(crashed.journal.len());
        crashed.journal[at..end].copy_from_slice(&bytes[..end - at]);
    }
    if !input.header.is_empty() {
        for copy in [0, COPY_LEN] {
            for &(at, byte) in &input.header {
                crashed.journal[copy + 16 + usize::from(at) % (COPY_LEN - 32)] ^= byte;
            }
            let page = &mut crashed.journal[copy..copy + COPY_LEN];
            let hash = xxhash_rust::xxh3::xxh3_128(&page[..COPY_LEN - 16]);
            page[COPY_LEN - 16..].copy_from_slice(&hash.to_le_bytes());
        }
    }
    if let Some(length) = input.length {
        crashed.journal.truncate(length as usize % (crashed.journal.len() + 1));
    }
    if let Some(mark) = &input.mark {
        // The file system accepts no longer ones.
        crashed.mark = (!mark.is_empty()).then(|| mark[..mark.len().min(2000)].to_vec());
    }
    replace_start(&mut crashed.file, &input.file);
    stage.put(&crashed);
    if let Some(arena) = &input.arena {
        stage.put_arena(arena);
    }
    stage.recover(&crashed, settings);
});

fn replace_start(of: &mut [u8], by: &[u8]) {
    let len = by.len().min(of.len());
    of[..len].copy_from_slice(&by[..len]);
}
