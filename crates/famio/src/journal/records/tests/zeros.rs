//! What a new journal is filled with before it is used.

use super::super::Geometry;
use super::life::{goes_on, left_by};
use super::test_hooks::TestHooks;
use core::sync::atomic::Ordering;
use std::fs;

/// Bytes that were written to the journal.
fn written(test_hooks: &TestHooks) -> u64 {
    (i64::MAX - test_hooks.medium.bytes_to_live.load(Ordering::Relaxed)) as u64
}

/// A session of a moment waited for 256 KiB of zeros. One that goes on gets them in a few pieces, each with a commit.
#[test]
fn the_first_segment_is_zeroed_as_it_is_used() {
    let mut test_hooks = TestHooks::with(Geometry::default(), 1 << 30, true);
    assert_eq!(fs::metadata(test_hooks.journal_path()).unwrap().len(), 4096 + (256 << 10), "it reads as zeros");
    let of_header = 2 * 4096;
    assert!(written(&test_hooks) <= (32 << 10) + of_header, "{}", written(&test_hooks));
    let mut zeros = Vec::new();
    for round in 1..29 {
        let (before, records) = (written(&test_hooks), test_hooks.log.written());
        test_hooks.write(0, &[round; 4096]);
        test_hooks.commit().unwrap();
        zeros.push(written(&test_hooks) - before - (test_hooks.log.written() - records));
    }
    let pieces: Vec<u64> = zeros.into_iter().filter(|&bytes| bytes > 0).collect();
    assert_eq!(pieces, [36 << 10, 76 << 10, 100 << 10]);
    test_hooks.recovers_to(28);
}

/// What another process has written behind the last record must not be overwritten.
#[test]
fn a_log_that_goes_on_fills_nothing() {
    let mut test_hooks = TestHooks::with(Geometry::default(), 1 << 30, true);
    test_hooks.write(0, b"begun");
    test_hooks.commit().unwrap();
    let words = left_by(&mut test_hooks.log);
    goes_on(&mut test_hooks.log, &words);
    let (before, records) = (written(&test_hooks), test_hooks.log.written());
    test_hooks.write(0, &[1; 64 << 10]);
    test_hooks.commit().unwrap();
    assert_eq!(written(&test_hooks) - before, test_hooks.log.written() - records);
    test_hooks.recovers_to(2);
}
