//! Edits of a journal in place.

use crate::check::{check, epoch_word, key};
use crate::stage::Crashed;
use arbitrary::Arbitrary;

/// Offsets of the slots' page, and of the first segment's entries.
const SLOTS: usize = 4096;
const EXTENT: usize = 4160;
const SEGMENT: usize = 8192;
const BLOCKS: usize = 16384;

/// An interesting number.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Value {
    Raw(u64),
    Small(u8),
    /// Near the existing value.
    FastPath(i8),
    Flip(u8),
    Shifted(u8, u8),
}

impl Value {
    pub fn of(self, old: u64) -> u64 {
        match self {
            Self::Raw(value) => value,
            Self::Small(value) => value.into(),
            Self::FastPath(by) => old.wrapping_add_signed(by.into()),
            Self::Flip(bit) => old ^ 1 << (bit % 64),
            Self::Shifted(value, by) => u64::from(value) << (by % 64),
        }
    }
}

/// One edit. `fix`: corrects the check over it.
#[derive(Arbitrary, Clone, Debug)]
pub enum Edit {
    Byte {
        at: u32,
        xor: u8,
    },
    /// Epoch, size or the third word of a commit slot.
    Slot {
        slot: u8,
        copy: bool,
        word: u8,
        value: Value,
        fix: bool,
    },
    Extent {
        copy: bool,
        value: Value,
        fix: bool,
    },
    Segment {
        second: bool,
        word: u8,
        value: Value,
        fix: bool,
    },
    /// The block to which an entry belongs.
    Owner {
        entry: u8,
        block: Value,
        fix: bool,
    },
    Version {
        entry: u8,
        second: bool,
        epoch: Value,
        kind: u8,
        fix: bool,
    },
    Granules {
        entry: u8,
        second: bool,
        granules: Value,
        mirror: bool,
    },
    Free {
        entry: u8,
    },
    /// Copies an entry's line over another's.
    Copy {
        from: u8,
        to: u8,
        fix: bool,
    },
    Data {
        block: u8,
        at: u16,
        xor: u8,
    },
    Cut {
        length: u32,
    },
    Longer {
        by: u16,
    },
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
}

fn set(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// The offset of entry `number`; beyond the first segment only if there is a second.
fn entry(journal: &[u8], number: u8) -> (usize, u64) {
    let two = journal.len() > 278_528;
    let number = usize::from(number) % if two { 192 } else { 64 };
    let at = if number < 64 { SEGMENT + 64 + 64 * number } else { 278_528 + 64 + 64 * (number - 64) };
    (at, number as u64)
}

/// Applies the edits.
pub fn apply(crashed: &mut Crashed, edits: &[Edit]) {
    let key = key(crashed.header().journal_id);
    let journal = &mut crashed.journal;
    for edit in edits {
        match *edit {
            Edit::Byte { at, xor } => {
                // The header has checks of its own: see `hostile`.
                let at = 4096 + at as usize % (journal.len() - 4096);
                journal[at] ^= xor;
            }
            Edit::Slot { slot, copy, word: index, value, fix } => {
                let slot = usize::from(slot % 8);
                let at = SLOTS + slot * 256 + usize::from(copy) * 32;
                let place = at + usize::from(index % 4) * 8;
                let value = value.of(word(journal, place));
                set(journal, place, value);
                if fix {
                    let words = [word(journal, at), word(journal, at + 8), word(journal, at + 16)];
                    set(journal, at + 24, check(key, (slot * 2 + usize::from(copy)) as u64, &words));
                }
            }
            Edit::Extent { copy, value, fix } => {
                let at = EXTENT + usize::from(copy) * 16;
                let value = value.of(word(journal, at));
                set(journal, at, value);
                if fix {
                    set(journal, at + 8, check(key, u64::MAX - 1 + u64::from(copy), &[value]));
                }
            }
            Edit::Segment { second, word: index, value, fix } => {
                let start = if second { 278_528 } else { SEGMENT };
                let place = start + usize::from(index % 5) * 8;
                let value = value.of(word(journal, place));
                set(journal, place, value);
                if fix {
                    let words: [u64; 4] = core::array::from_fn(|i| word(journal, start + 8 * i));
                    set(journal, start + 32, check(key, start as u64, &words));
                }
            }
            Edit::Owner { entry: number, block, fix } => {
                let (at, number) = entry(journal, number);
                let value = block.of(word(journal, at + 8));
                set(journal, at + 8, value);
                if fix {
                    set(journal, at, check(key, number, &[value]));
                }
            }
            Edit::Version { entry: number, second, epoch, kind, fix } => {
                let at = entry(journal, number).0 + if second { 40 } else { 16 };
                let old = word(journal, at);
                let value = epoch.of(old & ((1 << 54) - 1));
                set(journal, at, if fix { epoch_word(value, kind.into()) } else { value });
            }
            Edit::Granules { entry: number, second, granules, mirror } => {
                let at = entry(journal, number).0 + if second { 48 } else { 24 };
                let value = granules.of(word(journal, at));
                set(journal, at, value);
                if mirror {
                    set(journal, at + 8, !value);
                }
            }
            Edit::Free { entry: number } => {
                let at = entry(journal, number).0;
                set(journal, at, 0);
            }
            Edit::Copy { from, to, fix } => {
                let (from, (to, number)) = (entry(journal, from).0, entry(journal, to));
                if from + 64 <= journal.len() && to + 64 <= journal.len() {
                    journal.copy_within(from..from + 64, to);
                    if fix {
                        let block = word(journal, to + 8);
                        set(journal, to, check(key, number, &[block]));
                    }
                }
            }
            Edit::Data { block, at, xor } => {
                let at = BLOCKS + usize::from(block % 64) * 4096 + usize::from(at % 4096);
                if let Some(byte) = journal.get_mut(at) {
                    *byte ^= xor;
                }
            }
            Edit::Cut { length } => journal.truncate(4096 + length as usize % (journal.len() - 4095)),
            Edit::Longer { by } => journal.resize(journal.len() + usize::from(by), 0),
        }
        if journal.len() <= 4096 {
            journal.resize(4097, 0);
        }
    }
}
