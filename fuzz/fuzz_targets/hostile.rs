//! Hostile bytes as mark, header, journal, file and arena.
#![no_main]

use arbitrary::Arbitrary;
use famio::journal::header::{COPY_LEN, Header};
use famio::journal::{Identity, Mark};
use famio::{PolicyChoice, Settings};
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
}

static CRASH: LazyLock<(Stage, Settings, Crashed)> = LazyLock::new(|| {
    let stage = Stage::on_tmpfs("hostile");
    let settings = Settings { policy: PolicyChoice::Alternate, ..Settings::default() };
    let crashed = stage.crash(&[7; 9000], &settings, |opened| {
        opened.write(10, &[1; 5000]).expect("a write");
        opened.sync().expect("a commit");
        let committed = opened.read(1 << 20).expect("a read");
        opened.write(20, &[2; 5000]).expect("a write");
        committed
    });
    (stage, settings, crashed)
});

fuzz_target!(|input: Input| {
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
    let len = input.file.len().min(crashed.file.len());
    crashed.file[..len].copy_from_slice(&input.file[..len]);
    stage.put(&crashed);
    if let Some(arena) = &input.arena {
        stage.put_arena(arena);
    }
    stage.recover(&crashed, settings);
});
