//! Journals that are damaged, or that Famio would not have written.

use super::test_hooks::TestHooks;
use crate::journal::testing::KERNEL;
use proptest::prelude::*;

fn sample() -> TestHooks {
    let mut test_hooks = TestHooks::new(1 << 20, &KERNEL);
    for epoch in 0..12usize {
        test_hooks.write(epoch * 1000, &vec![epoch as u8 + 1; 3000]);
        test_hooks.commit().unwrap();
        if epoch == 5 {
            test_hooks.checkpointed = 4;
            test_hooks.log.release(4);
        }
    }
    test_hooks
}

/// Where the head lines and lists of the sample's records lie, found by an independent walk.
fn lines_of_records(bytes: &[u8]) -> Vec<usize> {
    let mut lines = Vec::new();
    for at in (8192 + 64..bytes.len()).step_by(64) {
        let word = |i: usize| u64::from_le_bytes(bytes[at + 8 * i..at + 8 * i + 8].try_into().unwrap());
        // A check has fixed top bytes; data does not.
        if word(0) >> 48 == 0xFA31 && word(1) > 0 {
            lines.push(at);
        }
    }
    lines
}

#[test]
fn a_changed_byte_of_what_is_committed_is_told_or_changes_nothing() {
    let test_hooks = sample();
    let (bytes, last) = (test_hooks.bytes(), test_hooks.states.len() - 1);
    let records = lines_of_records(&bytes);
    assert!(records.len() >= 12, "{}", records.len());
    let mut told = 0;
    let slots = (4096..8192).step_by(64);
    for at in slots.chain(records.iter().copied()).chain(records.iter().map(|at| at + 64)) {
        for byte in (0..64).step_by(5) {
            let mut changed = bytes.clone();
            changed[at + byte] ^= 0x24;
            match test_hooks.recovered(&changed, test_hooks.checkpointed) {
                Ok((epoch, file)) => {
                    assert!(
                        epoch as usize == last && file == test_hooks.states[last],
                        "byte {} is lost unsaid",
                        at + byte
                    );
                }
                Err(e) => {
                    assert_eq!(e.errno(), libc::EIO, "{e}");
                    told += 1;
                }
            }
        }
    }
    assert!(told > 100, "{told}");
}

#[test]
fn one_that_was_cut_is_told() {
    let test_hooks = sample();
    let bytes = test_hooks.bytes();
    for len in [4096, 8191, 8192, 8192 + 4096, bytes.len() - 4096] {
        let error = test_hooks.recovered(&bytes[..len], test_hooks.checkpointed).unwrap_err();
        assert_eq!(error.errno(), libc::EIO, "{len}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_is_never_more_than_an_error(
        holes in proptest::collection::vec((4096..80_000usize, proptest::collection::vec(any::<u8>(), 1..200)), 1..6),
    ) {
        let test_hooks = sample();
        let mut bytes = test_hooks.bytes();
        for (at, nonsense) in holes {
            let at = at.min(bytes.len() - nonsense.len());
            bytes[at..at + nonsense.len()].copy_from_slice(&nonsense);
        }
        // Data has no check of its own, as in a journal in place: only nothing worse may happen.
        if let Err(e) = test_hooks.recovered(&bytes, test_hooks.checkpointed) {
            prop_assert_eq!(e.errno(), libc::EIO, "{}", e);
        }
    }
}
