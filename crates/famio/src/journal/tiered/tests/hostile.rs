//! Journals that are damaged, or that Famio would not have written.

use super::lab::Lab;
use crate::journal::testing::KERNEL;
use proptest::prelude::*;

fn sample() -> Lab {
    let mut lab = Lab::new(1 << 20, &KERNEL);
    for epoch in 0..12usize {
        lab.write(epoch * 1000, &vec![epoch as u8 + 1; 3000]);
        lab.commit().unwrap();
        if epoch == 5 {
            lab.settled = 4;
            lab.log.release(4);
        }
    }
    lab
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
    let lab = sample();
    let (bytes, last) = (lab.bytes(), lab.states.len() - 1);
    let records = lines_of_records(&bytes);
    assert!(records.len() >= 12, "{}", records.len());
    let mut told = 0;
    let slots = (4096..8192).step_by(64);
    for at in slots.chain(records.iter().copied()).chain(records.iter().map(|at| at + 64)) {
        for byte in (0..64).step_by(5) {
            let mut changed = bytes.clone();
            changed[at + byte] ^= 0x24;
            match lab.recovered(&changed, lab.settled) {
                Ok((epoch, file)) => {
                    assert!(epoch as usize == last && file == lab.states[last], "byte {} is lost unsaid", at + byte);
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
    let lab = sample();
    let bytes = lab.bytes();
    for len in [4096, 8191, 8192, 8192 + 4096, bytes.len() - 4096] {
        let error = lab.recovered(&bytes[..len], lab.settled).unwrap_err();
        assert_eq!(error.errno(), libc::EIO, "{len}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_is_never_more_than_an_error(
        holes in proptest::collection::vec((4096..80_000usize, proptest::collection::vec(any::<u8>(), 1..200)), 1..6),
    ) {
        let lab = sample();
        let mut bytes = lab.bytes();
        for (at, nonsense) in holes {
            let at = at.min(bytes.len() - nonsense.len());
            bytes[at..at + nonsense.len()].copy_from_slice(&nonsense);
        }
        // Data has no check of its own, as in a journal in place: only nothing worse may happen.
        if let Err(e) = lab.recovered(&bytes, lab.settled) {
            prop_assert_eq!(e.errno(), libc::EIO, "{}", e);
        }
    }
}
