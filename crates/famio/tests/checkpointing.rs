//! Checkpoints of files on disks, with interference: cuts during a pass, and failing calls.

mod common;

use common::{Opened, Scratch};

use famio::Settings;
use famio::pmem::record::{Call, Recorder};
use famio::pmem::{Domain, stand_in};
use std::sync::Mutex;

/// The recorder affects the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const BLOCK: u64 = 4096;

/// Data written above a cut during a pass must not be cut off with the old data.
#[test]
fn a_cut_in_the_middle_of_a_pass() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("cut-in-a-pass");
    let blocks = (48 << 20) / BLOCK;
    for checkpointed in [1, blocks / 4, blocks / 2] {
        let path = dir.path().join(format!("file-{checkpointed}"));
        let length = || std::fs::metadata(&path).unwrap().len();
        {
            let opened = Opened::new(&path, &Settings::default());
            for block in (0..blocks).step_by(256) {
                opened.write(block * BLOCK, &vec![1; 256 * BLOCK as usize]);
            }
            opened.atomic().sync().unwrap();
            // The background is at work, in file order.
            assert!(common::comes_true(|| length() >= checkpointed * BLOCK));
            opened.atomic().set_size(0).unwrap();
            for block in (0..blocks).step_by(7) {
                opened.write(block * BLOCK, &[2; 100]);
            }
            opened.atomic().sync().unwrap();
            assert!(common::comes_true(|| length() == (blocks - 1) / 7 * 7 * BLOCK + 100));
            for block in (0..blocks).step_by(7) {
                assert!(opened.read(block * BLOCK, 100) == [2; 100], "block {block}, {checkpointed} checkpointed");
            }
        }
        let data = std::fs::read(&path).unwrap();
        for at in (0..data.len()).step_by(7 * BLOCK as usize) {
            assert!(data[at..at + 100] == [2; 100], "closed: byte {at}, {checkpointed} checkpointed");
        }
    }
}

/// A close that failed in the middle leaves everything that is not in the file yet to the next one.
#[test]
fn a_close_that_failed_is_done_again_whole() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("close-again");
    for nth in 1..=3 {
        // If this thread did not run for long, the background has checkpointed it meanwhile: try again, with another
        // file.
        let (path, opened) = (0..20)
            .find_map(|round| {
                let path = dir.path().join(format!("file-{nth}-{round}"));
                let recorder = Recorder::new(Domain::PageCache);
                stand_in(Some(recorder));
                let opened = Opened::new(&path, &Settings::default());
                for block in 0..5 {
                    opened.write(block * BLOCK, &[block as u8 + 1; BLOCK as usize]);
                }
                opened.atomic().sync().unwrap();
                recorder.fail(Call::Pwritev, nth, libc::ENOSPC);
                let error = opened.atomic().checkpoint().err()?;
                assert_eq!(error.errno(), libc::ENOSPC);
                Some((path, opened))
            })
            .expect("a close that fails");
        opened.atomic().checkpoint().unwrap();
        stand_in(None);
        let data = std::fs::read(&path).unwrap();
        drop(opened);
        for (block, data) in data.chunks(BLOCK as usize).enumerate() {
            assert!(data.iter().all(|&byte| byte == block as u8 + 1), "block {block}, call {nth}");
        }
        assert_eq!(data.len(), 5 * BLOCK as usize);
    }
}

/// After a failed flush at a close, the success of another flush says nothing about what the first one covered: the
/// journal stays.
#[test]
fn a_flush_that_failed_at_a_close_is_for_good() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("close-flush");
    let mut failed = 0;
    for nth in 1..10 {
        let path = dir.path().join(format!("file-{nth}"));
        let recorder = Recorder::new(Domain::PageCache);
        stand_in(Some(recorder));
        let opened = Opened::new(&path, &Settings::default());
        for byte in [6, 7] {
            opened.write(0, &[byte; BLOCK as usize]); // with one commit, the header need not be flushed
            opened.atomic().sync().unwrap();
        }
        recorder.fail(Call::Fdatasync, nth, libc::EIO);
        if let Err(error) = opened.atomic().checkpoint() {
            assert_eq!(error.errno(), libc::EIO);
            assert_eq!(opened.atomic().checkpoint().unwrap_err().errno(), libc::EIO, "flush {nth}");
            failed += 1;
            std::mem::forget(opened); // its last close would fail, too
        }
        stand_in(None);
    }
    assert!(failed >= 2, "of the file, and of the journal's header");
}

/// Buffers are reused after the file was closed and attached again.
#[test]
fn sessions_use_the_same_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let dir = Scratch::on_disk("same-memory");
    let path = dir.path().join("file");
    let opened = Opened::new(&path, &Settings::default());
    for round in 0..20 {
        opened.write(0, &vec![round; 1 << 20]);
        opened.atomic().checkpoint().unwrap();
    }
    assert!(std::fs::metadata(common::arenas::arena(&path)).unwrap().len() < 4 << 20);
    assert_eq!(opened.read(0, 1 << 20), vec![19; 1 << 20]);
}
