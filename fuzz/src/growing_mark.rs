//! Edits of the mark of a file without a journal.

use crate::check::seal_growing_mark;
use crate::in_place::Value;
use arbitrary::Arbitrary;

/// Its bytes without those of overwrites, and the offsets of its fields.
const LEN: usize = 64;
const FIELDS: [usize; 6] = [8, 16, 24, 32, 40, 48];
/// The most bytes that it is made longer by.
const LONGEST: usize = 4096;

/// Adds committed bytes that the file may not have.
pub fn add_run(mark: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    mark[8..12].copy_from_slice(&4u32.to_le_bytes());
    mark.extend(offset.to_le_bytes());
    mark.extend((bytes.len() as u32).to_le_bytes());
    mark.extend(bytes);
    seal_growing_mark(mark);
}

/// One edit. After the last the checksum is corrected.
#[derive(Arbitrary, Clone, Debug)]
pub enum Edit {
    Byte {
        at: u16,
        xor: u8,
    },
    Field {
        field: u8,
        value: Value,
    },
    /// Offset or length of a run, if the runs before it are sound.
    Run {
        number: u8,
        is_length: bool,
        value: Value,
    },
    Cut {
        by: u8,
    },
    Longer {
        by: u16,
    },
}

/// Applies the edits, and corrects the checksum.
pub fn apply(mark: &mut Vec<u8>, edits: &[Edit]) {
    for edit in edits {
        match *edit {
            Edit::Byte { at, xor } => {
                let at = usize::from(at) % mark.len();
                mark[at] ^= xor;
            }
            Edit::Field { field, value } => {
                let at = FIELDS[usize::from(field) % FIELDS.len()];
                let old = u64::from_le_bytes(mark[at..at + 8].try_into().expect("8 bytes"));
                mark[at..at + 8].copy_from_slice(&value.of(old).to_le_bytes());
            }
            Edit::Run { number, is_length, value } => edit_run(&mut mark[LEN..], number % 4, is_length, value),
            Edit::Cut { by } => mark.truncate(LEN.max(mark.len() - usize::from(by).min(mark.len()))),
            Edit::Longer { by } => mark.resize((mark.len() + usize::from(by)).min(LONGEST.max(mark.len())), 0),
        }
    }
    seal_growing_mark(mark);
}

fn edit_run(runs: &mut [u8], number: u8, is_length: bool, value: Value) {
    let mut at = 0;
    for _ in 0..number {
        let Some(length) = runs.get(at + 8..at + 12) else { return };
        at += 12 + u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
    }
    let place = if is_length { at + 8..at + 12 } else { at..at + 8 };
    let Some(place) = runs.get_mut(place) else { return };
    let mut word = [0; 8];
    word[..place.len()].copy_from_slice(place);
    let word = value.of(u64::from_le_bytes(word)).to_le_bytes();
    place.copy_from_slice(&word[..place.len()]);
}
