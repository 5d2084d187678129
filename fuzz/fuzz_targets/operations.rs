//! A program writes, commits, changes sizes, closes and opens again, and is killed: recovery gives the last commit.
#![no_main]

use arbitrary::Arbitrary;
use famio::{PolicyChoice, Settings};
use famio_fuzz::Stage;
use famio_fuzz::atomic::Opened;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Files are not longer than this.
const LONGEST: usize = 600_000;

#[derive(Arbitrary, Debug)]
enum Op {
    Small {
        at: u32,
        len: u8,
        byte: u8,
    },
    Large {
        at: u32,
        len: u16,
        byte: u8,
    },
    /// Granules of one block, repeatedly: where policies differ.
    Granule {
        block: u8,
        granule: u8,
        byte: u8,
    },
    Size(u32),
    Sync,
    Read,
}

#[derive(Arbitrary, Debug)]
struct Input {
    policy: u8,
    emulated: bool,
    /// Of the journal: from one segment on.
    limit: u8,
    initial: u16,
    /// Lives: each but the last ends with a close.
    lives: Vec<Vec<Op>>,
}

static STAGE: LazyLock<Stage> = LazyLock::new(|| Stage::on_tmpfs("operations"));

/// Executes the operations on a file and on a model of it: its contents, and its contents at the last commit.
fn run(opened: &Opened, ops: &[Op], model: &mut Vec<u8>, committed: &mut Vec<u8>) {
    for op in ops.iter().take(60) {
        let (at, len, byte) = match *op {
            Op::Small { at, len, byte } => (at as usize % (LONGEST - 300), usize::from(len), byte),
            Op::Large { at, len, byte } => (at as usize % (LONGEST - 70_000), usize::from(len), byte),
            Op::Granule { block, granule, byte } => {
                (usize::from(block % 8) * 4096 + usize::from(granule % 64) * 64, 64, byte)
            }
            Op::Size(size) => {
                let size = size as usize % LONGEST;
                match opened.set_size(size as u64) {
                    Ok(()) => model.resize(size, 0),
                    Err(e) => assert_eq!(e.errno(), libc::ENOSPC, "{e}"),
                }
                continue;
            }
            Op::Sync => {
                opened.sync().expect("a commit");
                committed.clone_from(model);
                continue;
            }
            Op::Read => {
                assert!(opened.read(LONGEST + 1).expect("a read") == *model, "read something else");
                continue;
            }
        };
        if len == 0 {
            continue;
        }
        match opened.write(at as u64, &vec![byte; len]) {
            Ok(()) => {
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].fill(byte);
            }
            // A full journal: how much was written is not known.
            Err(e) => {
                assert_eq!(e.errno(), libc::ENOSPC, "{e}");
                *model = opened.read(LONGEST + 1).expect("a read");
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let policy = match input.policy % 4 {
        0 => PolicyChoice::Undo,
        1 => PolicyChoice::Redo,
        2 => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    let journal_limit = if input.limit < 128 { 4 << 30 } else { 300_000 + u64::from(input.limit) * 4096 };
    let settings = Settings { policy, emulated: input.emulated, journal_limit, ..Settings::default() };
    let mut model: Vec<u8> = (0..u32::from(input.initial)).map(|i| (i % 251) as u8).collect();
    for life in input.lives.iter().take(4) {
        let initial = model.clone();
        let mut committed = initial.clone();
        let crashed = STAGE.crash(&initial, &settings, |opened| {
            run(opened, life, &mut model, &mut committed);
            committed.clone()
        });
        // Closing is a commit.
        assert!(std::fs::read(STAGE.file()).expect("the file") == model, "closed with something else");
        STAGE.put(&crashed);
        let recovered = STAGE.recover(&crashed, &settings);
        assert!(recovered.as_ref() == Some(&committed), "recovered to something else");
    }
});
