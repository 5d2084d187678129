//! An entry: one cache line that says to which file block a log block belongs, and which of its granules are valid.

use super::Key;
use crate::index::Version;
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use core::sync::atomic::{AtomicU64, Ordering};

const CHECK: usize = 0;
const BLOCK: usize = 1;
/// Words of a version: epoch word, granules, mirror of the granules.
const VERSION: [usize; 2] = [2, 5];
const EPOCH_BITS: u32 = 54;

/// The meaning of the bits in an entry's versions. Changes only after a checkpoint of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A set bit: the log block holds the granule's pre-image.
    Undo = 1,
    /// A set bit: the granule lives in the log block (redo and alternate).
    Map = 2,
}

impl Kind {
    /// From the number that a cell or a word holds.
    pub fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Undo),
            2 => Some(Self::Map),
            _ => None,
        }
    }
}

/// The part of an entry that is fixed while it belongs to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constants {
    /// Block of the file.
    pub block: u64,
    /// Log2 of the block's size.
    pub class: u8,
}

/// An entry as found on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Free.
    Free,
    /// In use.
    Used(Used),
    /// Neither free nor valid.
    Damaged(&'static str),
}

/// An entry in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// The block to which it belongs.
    pub constants: Constants,
    /// Its versions: kind, epoch and granules, and the granules as the mirror has them.
    pub versions: [Option<(Kind, Version, u64)>; 2],
}

/// An entry on the medium. Its words are stored in order within one cache line, and the hardware keeps that order:
/// after a crash, a prefix of the stores is there.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    words: &'a [AtomicU64; 8],
    medium: &'static dyn Medium,
}

/// The epoch word: epoch, kind, and in the top byte a fold of the other bytes, so that a change of one byte is
/// detected.
fn pack(kind: Kind, epoch: u64) -> u64 {
    debug_assert!(epoch != 0 && epoch < 1 << EPOCH_BITS);
    let payload = epoch | (kind as u64) << EPOCH_BITS;
    payload | fold(payload) << 56
}

fn fold(payload: u64) -> u64 {
    u64::from(payload.to_le_bytes()[..7].iter().fold(0xA5, |sum, byte| sum ^ byte))
}

impl<'a> Entry<'a> {
    pub fn new(words: &'a [AtomicU64; 8], medium: &'static dyn Medium) -> Self {
        Self { words, medium }
    }

    fn store(&self, word: usize, value: u64) {
        self.medium.store(&self.words[word], value);
    }

    /// Starts the write-back of the entry.
    #[inline]
    pub fn flush(&self) {
        // SAFETY: the words are mapped: they are borrowed.
        unsafe { self.medium.flush(self.words.as_ptr().cast(), 64) }
    }

    /// Assigns a free entry to a block: no versions, then the block, then the check that makes it valid.
    pub fn assign(&self, key: Key, number: u32, constants: Constants) {
        for version in VERSION {
            self.store(version, 0);
        }
        let block = constants.block | u64::from(constants.class) << 56;
        let words = [(BLOCK, block), (CHECK, key.check(number.into(), &[block]))];
        let [first, second] = if holds(Rule::OwnerBeforeCheck) { words } else { [words[1], words[0]] };
        self.store(first.0, first.1);
        self.store(second.0, second.1);
    }

    /// Frees the entry, by one store. It may be reused only after that is persistent (flush and fence).
    pub fn free(&self) {
        self.store(CHECK, 0);
        self.flush();
    }

    /// Begins version `which`: first invalidates the old one, and stores the epoch word last.
    #[inline]
    pub fn begin(&self, which: usize, kind: Kind, version: Version) {
        let at = VERSION[which];
        if holds(Rule::OldVersionFirstInvalid) {
            self.store(at, 0);
        }
        let granules = || self.set_granules(which, version.granules);
        let epoch = || self.store(at, pack(kind, version.epoch));
        if holds(Rule::GranulesBeforeEpochWord) {
            granules();
            epoch();
        } else {
            epoch();
            granules();
        }
    }

    /// Changes the granules of version `which`, and their mirror after them.
    #[inline]
    pub fn set_granules(&self, which: usize, granules: u64) {
        let at = VERSION[which];
        self.store(at + 1, granules);
        self.store(at + 2, !granules);
    }

    /// The entry's bytes, with mirrors that match its granules.
    pub fn with_mirrors(&self) -> [u8; 64] {
        let mut words: [u64; 8] = core::array::from_fn(|i| self.words[i].load(Ordering::Acquire));
        for at in VERSION {
            if words[at] != 0 {
                words[at + 2] = !words[at + 1];
            }
        }
        let mut bytes = [0; 64];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads and checks the entry numbered `number` of the journal with `key`.
    pub fn read(&self, key: Key, number: u32) -> Stored {
        let word = |i: usize| self.words[i].load(Ordering::Acquire);
        let check = word(CHECK);
        if check == 0 {
            return Stored::Free;
        }
        let block = word(BLOCK);
        if check != key.check(number.into(), &[block]) && holds(Rule::EntryHasCheck) {
            return Stored::Damaged("its check word does not fit its block");
        }
        let mut versions = [None, None];
        for (version, at) in versions.iter_mut().zip(VERSION) {
            let packed = word(at);
            if packed == 0 {
                continue;
            }
            let payload = packed & ((1 << 56) - 1);
            let kind = Kind::from_number(payload >> EPOCH_BITS);
            let fits = packed >> 56 == fold(payload) || !holds(Rule::EpochWordHasCheck);
            let (Some(kind), true) = (kind, fits) else {
                return Stored::Damaged("an epoch word does not fit its own check");
            };
            let epoch = payload & ((1 << EPOCH_BITS) - 1);
            *version = Some((kind, Version { epoch, granules: word(at + 1) }, !word(at + 2)));
        }
        let constants = Constants { block: block & ((1 << 56) - 1), class: (block >> 56) as u8 };
        Stored::Used(Used { constants, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmem::{Domain, medium};

    const KEY: Key = Key(77);

    fn sample() -> [AtomicU64; 8] {
        let words: [AtomicU64; 8] = Default::default();
        let entry = Entry::new(&words, medium(Domain::Process, false));
        entry.assign(KEY, 5, Constants { block: 1234, class: 12 });
        entry.begin(0, Kind::Map, Version { epoch: 7, granules: 0b1011 });
        entry.begin(1, Kind::Map, Version { epoch: 8, granules: 0b0011 });
        words
    }

    fn read(words: &[AtomicU64; 8]) -> Stored {
        Entry::new(words, medium(Domain::Process, false)).read(KEY, 5)
    }

    #[test]
    fn reads_back_what_was_stored() {
        let Stored::Used(used) = read(&sample()) else { panic!() };
        assert_eq!(used.constants, Constants { block: 1234, class: 12 });
        assert_eq!(used.versions[0], Some((Kind::Map, Version { epoch: 7, granules: 0b1011 }, 0b1011)));
        assert_eq!(used.versions[1], Some((Kind::Map, Version { epoch: 8, granules: 0b0011 }, 0b0011)));
    }

    #[test]
    fn every_changed_byte_shows() {
        let sound = read(&sample());
        for byte in 0..64 {
            for change in [1u8, 0x80, 0xFF, 0x55] {
                let words = sample();
                let (word, shift) = (byte / 8, byte % 8 * 8);
                words[word].fetch_xor(u64::from(change) << shift, Ordering::Relaxed);
                match read(&words) {
                    Stored::Free => panic!("byte {byte} of the entry lost without notice"),
                    Stored::Damaged(_) => {}
                    Stored::Used(used) => {
                        assert!(used.versions.iter().flatten().any(|(_, v, mirror)| v.granules != *mirror));
                        assert_ne!(Stored::Used(used), sound);
                    }
                }
            }
        }
    }

    #[test]
    fn an_entry_of_another_journal_or_number_is_damage() {
        let words = sample();
        let entry = Entry::new(&words, medium(Domain::Process, false));
        assert!(matches!(entry.read(Key(78), 5), Stored::Damaged(_)));
        assert!(matches!(entry.read(KEY, 6), Stored::Damaged(_)));
    }

    #[test]
    fn epoch_words_are_never_one_byte_from_none() {
        for shift in 0..48 {
            for epoch in [1 << shift, 0xA5 << shift & ((1 << 48) - 1), (1 << 48) - 1] {
                if epoch != 0 {
                    let bytes = pack(Kind::Undo, epoch).to_le_bytes();
                    assert!(bytes.iter().filter(|b| **b != 0).count() >= 2, "epoch {epoch:#x}");
                }
            }
        }
    }
}
