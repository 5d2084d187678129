//! A journal in place whose checks are all right and whose contents point outside: made to do harm. `EIO`, both files
//! named, nothing touched.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::Scratch;
use crash::{Crashed, in_place};
use xxhash_rust::xxh3::xxh3_64;

#[test]
fn crash_child() {
    crash::child();
}

const SLOTS: usize = 4096;
const SEGMENT: usize = 8192;
const ENTRIES: usize = SEGMENT + 64;
const BLOCKS: u64 = 1 << 36; // of 4 KiB: 256 TiB

/// The journal's own check words, as `docs/format.md` has them.
struct Forger {
    key: u64,
    bytes: Vec<u8>,
}

impl Forger {
    fn new(journal: &[u8]) -> Self {
        let copy: [u8; 2048] = journal[..2048].try_into().unwrap();
        let header = famio::journal::Header::decode(&copy).unwrap();
        let [a, b] = [0, 8].map(|at| u64::from_le_bytes(header.journal_id.0[at..at + 8].try_into().unwrap()));
        Self { key: a ^ b.rotate_left(32), bytes: journal.to_vec() }
    }

    fn check(&self, number: u64, words: &[u64]) -> u64 {
        let all: Vec<u8> = [self.key, number].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
        0xFA31 << 48 | xxh3_64(&all) >> 16
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn put(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn slot(&mut self, epoch: u64, size: u64) {
        let slot = (epoch % 8) as usize;
        for copy in 0..2 {
            let at = SLOTS + slot * 256 + copy * 32;
            let words = [epoch, size, size];
            let check = self.check((slot * 2 + copy) as u64, &words);
            for (i, word) in words.into_iter().chain([check]).enumerate() {
                self.put(at + 8 * i, word);
            }
        }
    }

    fn entry(&mut self, number: usize, block: u64, class: u8, versions: [(u64, u64, u64); 2]) {
        let at = ENTRIES + 64 * number;
        let word = block | u64::from(class) << 56;
        let check = self.check(number as u64, &[word]);
        self.put(at, check);
        self.put(at + 8, word);
        for (i, (kind, epoch, granules)) in versions.into_iter().enumerate() {
            let payload = epoch | kind << 54;
            let fold = payload.to_le_bytes()[..7].iter().fold(0xA5, |sum, byte| sum ^ byte);
            let packed = if epoch == 0 { 0 } else { payload | u64::from(fold) << 56 };
            self.put(at + 16 + 24 * i, packed);
            self.put(at + 24 + 24 * i, granules);
            self.put(at + 32 + 24 * i, !granules);
        }
    }

    /// The last commit: (epoch, size).
    fn last(&self) -> (u64, u64) {
        let slots = (0..8).map(|slot| SLOTS + slot * 256).map(|at| (self.word(at), self.word(at + 8)));
        slots.max().unwrap()
    }

    fn free_entry(&self) -> usize {
        (0..64).find(|i| self.word(ENTRIES + 64 * i) == 0).unwrap()
    }

    fn used_entry(&self) -> usize {
        (0..64).find(|i| self.word(ENTRIES + 64 * i) != 0).unwrap()
    }
}

#[test]
fn the_forger_forges_what_is_believed() {
    for settings in in_place() {
        let crashed = Crashed::usual(Scratch::on_tmpfs("forged"), &settings);
        let mut forger = Forger::new(&crashed.journal);
        // The same commit again, and an entry whose version holds nothing.
        let (epoch, size) = forger.last();
        forger.slot(epoch, size);
        let free = forger.free_entry();
        forger.entry(free, 1000, 12, [(2, epoch, 0), (0, 0, 0)]);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        assert!(crashed.is_told_or_right(&forger.bytes, "forged and harmless"), "{settings:?}: told");
    }
}

fn each(what: &str, forge: impl Fn(&mut Forger)) {
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("{what}{i}").replace(' ', "-")), &settings);
        let mut forger = Forger::new(&crashed.journal);
        forge(&mut forger);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        let checked = famio::recovery::check(&crashed.path, &settings).unwrap();
        let problem = checked[0].problems.iter().find(|problem| problem.at.is_some());
        assert!(problem.is_some(), "{settings:?}, {what}: not named: {checked:?}");
        assert!(!crashed.is_told_or_right(&forger.bytes, what), "{settings:?}, {what}: recovered");
        let report = crashed.recover(famio::recovery::Use::Journal);
        assert!(crash::is_stopped(&report.outcome), "{what}: {report:?}");
        assert!(std::fs::read(&crashed.path).unwrap() == crashed.raw, "{what}");
    }
}

#[test]
fn a_commit_with_a_size_that_no_file_has() {
    for (i, size) in [u64::MAX, 1 << 63, BLOCKS * 4096 + 1].into_iter().enumerate() {
        each(&format!("size {i}"), |forger| {
            let (epoch, _) = forger.last();
            forger.slot(epoch, size);
        });
    }
}

#[test]
fn an_entry_of_a_block_that_no_file_has() {
    for (i, block) in [BLOCKS, (1 << 56) - 1].into_iter().enumerate() {
        each(&format!("block {i}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, block, 12, [(2, epoch, 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_a_class_that_there_is_not() {
    for class in [0, 11, 13, 21, 255] {
        each(&format!("class {class}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, 1, class, [(2, epoch, 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_an_epoch_that_is_not_yet() {
    for (i, beyond) in [2u64, 1 << 20, (1 << 54) - 100].into_iter().enumerate() {
        each(&format!("epoch {i}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, 100, 12, [(2, (epoch + beyond).min((1 << 54) - 1), 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_a_kind_that_there_is_not() {
    each("kind", |forger| {
        let ((epoch, _), free) = (forger.last(), forger.free_entry());
        forger.entry(free, 100, 12, [(3, epoch, 1), (0, 0, 0)]);
    });
}

#[test]
fn two_entries_of_one_block() {
    each("twice", |forger| {
        let ((epoch, _), free, used) = (forger.last(), forger.free_entry(), forger.used_entry());
        let block = forger.word(ENTRIES + 64 * used + 8) & ((1 << 56) - 1);
        forger.entry(free, block, 12, [(2, epoch, 1), (0, 0, 0)]);
    });
}

#[test]
fn a_segment_that_lies_elsewhere() {
    for (i, (field, value)) in [(1, 7u64), (2, 1 << 40), (3, u64::MAX), (3, 0)].into_iter().enumerate() {
        each(&format!("segment {i}"), |forger| {
            forger.put(SEGMENT + 8 * field, value);
            let words: Vec<u64> = (0..4).map(|i| forger.word(SEGMENT + 8 * i)).collect();
            let check = forger.check(SEGMENT as u64, &words);
            forger.put(SEGMENT + 32, check);
        });
    }
}

#[test]
fn no_commit_at_all() {
    each("no slot", |forger| forger.bytes[SLOTS..SLOTS + 4096].fill(0));
}

/// A redo's copy was in the file, its bit about to go, when the power failed; and once more when recovery had cut the file,
/// but not yet made that durable. File and log differ then above the size, where nothing counts.
#[test]
fn granules_and_mirror_that_differ_where_nothing_counts() {
    use crash::{Size, Sync, write};
    let steps = [write(0, 100, 1), Size(15_990), Sync, write(0, 50, 2)];
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::new(Scratch::on_tmpfs(&format!("mirror{i}")), &settings, &steps);
        let mut forger = Forger::new(&crashed.journal);
        let ((epoch, size), free, granule) = (forger.last(), forger.free_entry(), 57);
        let (from, end) = (3 * 4096 + granule * 64, size as usize);
        forger.entry(free, 3, 12, [(2, epoch, 0), (0, 0, 0)]);
        forger.put(ENTRIES + 64 * free + 32, !(1 << granule));
        let log = 16_384 + 4096 * free + granule * 64;
        forger.bytes[log..log + 64].fill(0xEE);
        forger.bytes[log..log + end - from].copy_from_slice(&crashed.raw[from..end]);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        let checked = famio::recovery::check(&crashed.path, &settings).unwrap();
        assert!(checked[0].problems.is_empty(), "{settings:?}: {checked:?}");
        assert!(crashed.is_told_or_right(&forger.bytes, "differs above the size"), "{settings:?}: told");
        // Below the size it is damage.
        crashed.restore();
        forger.bytes[log] ^= 1;
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        assert!(!crashed.is_told_or_right(&forger.bytes, "differs below the size"), "{settings:?}: recovered");
    }
}
