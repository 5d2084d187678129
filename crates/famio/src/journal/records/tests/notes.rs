//! A note in a segment that is being used again: of what is written over it, the page with the note may reach the medium first.
//! Found by `tests/protocol-model`.

use super::lab::{Lab, SMALL, recover, rewrite};
use crate::journal::bytes::{u32_at, u64_at};
use crate::journal::testing::KERNEL;
use std::fs;

const PAGE: usize = 4096;
/// Pages of each of the two segments.
const LEN: usize = 8;

/// The pages of notes that do not lie in the segment of the last commit.
fn overwritable_notes(journal: &[u8]) -> Vec<usize> {
    let generation_of = |segment: usize| u64_at(journal, PAGE * (1 + segment * LEN) + 32);
    let mut commits = Vec::new();
    let mut notes = Vec::new();
    for page in 1..journal.len() / PAGE {
        let (at, segment) = (page * PAGE, (page - 1) / LEN);
        if &journal[at..at + 8] == b"FAMIOREC" && u64_at(journal, at + 32) == generation_of(segment) {
            match u32_at(journal, at + 8) {
                2 => commits.push((u64_at(journal, at + 40), segment)),
                3 => notes.push((segment, at)),
                _ => {}
            }
        }
    }
    let Some((_, last)) = commits.into_iter().max() else { return Vec::new() };
    notes.into_iter().filter(|(segment, _)| *segment != last).map(|(_, at)| at).collect()
}

#[test]
fn what_follows_a_missing_note_is_not_lost() {
    let mut lab = Lab::with(SMALL, 1, false);
    let mut tried = 0;
    for i in 1..=60u64 {
        lab.write((i % 7 * 64) as usize, &[i as u8; 64]);
        lab.commit().unwrap();
        let bytes = fs::read(lab.journal_path()).unwrap();
        for at in overwritable_notes(&bytes) {
            let mut torn = bytes.clone();
            torn[at..at + PAGE].fill(0xEE);
            let copy = lab.copy();
            rewrite(&copy, torn, false);
            let replayed = recover(&copy, &lab.data, &KERNEL).unwrap();
            assert_eq!(replayed.epoch, i, "without the note at byte {at}");
            assert!(lab.file() == lab.states[i as usize]);
            tried += 1;
        }
        lab.settle(i);
    }
    assert!(tried > 0, "no note was ever in a segment that could be used again");
}
