//! The operations of exhaustive sequences, independent of what came before, and the sequences.

use crate::workload::{By, Op, Step, initial};
use famio::PolicyChoice;
use std::ops::RangeInclusive;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Small,
    AcrossLines,
    AcrossBlocks,
    Large,
    Append,
    Down,
    Up,
    Rewrite,
    Sync,
    Checkpoint,
    Policy,
    Close,
    Reopen,
    /// In a map: a copy within a granule.
    MapCopy,
    /// A store through a pointer, within a granule.
    MapStore,
    /// A copy across two blocks.
    MapCopyAcross,
    /// A store across two blocks.
    MapStoreAcross,
    /// A store across the end of the file, into the rest of its last page.
    MapEnd,
    /// The map is given up.
    Unmap,
}

impl Kind {
    /// Operations without a map.
    pub const PLAIN: &[Kind] = &[
        Kind::Small,
        Kind::AcrossLines,
        Kind::AcrossBlocks,
        Kind::Large,
        Kind::Append,
        Kind::Down,
        Kind::Up,
        Kind::Rewrite,
        Kind::Sync,
        Kind::Checkpoint,
        Kind::Policy,
        Kind::Close,
        Kind::Reopen,
    ];

    /// Stores in the map.
    pub const STORES: &[Kind] =
        &[Kind::MapCopy, Kind::MapStore, Kind::MapCopyAcross, Kind::MapStoreAcross, Kind::MapEnd];

    /// All operations.
    pub fn all() -> Vec<Kind> {
        [Self::PLAIN, Self::STORES, &[Kind::Unmap]].concat()
    }

    /// Whether it stores in a map.
    pub fn stores(self) -> bool {
        Self::STORES.contains(&self)
    }
}

/// Turns kinds into steps: tracks the file's size, and the place of the last write.
pub struct Maker {
    size: u64,
    last: (u64, u64),
    policy: PolicyChoice,
    /// The steps so far.
    pub steps: Vec<Step>,
}

impl Maker {
    /// For a file as created by [`initial`].
    pub fn new(policy: PolicyChoice) -> Self {
        Self { size: initial().len() as u64, last: (64, 128), policy, steps: Vec::new() }
    }

    fn write(&mut self, at: u64, len: u64) {
        self.last = (at, len);
        self.size = self.size.max(at + len);
        self.steps.push(Op::Write { at, len }.into());
    }

    fn store(&mut self, at: u64, len: u64, by: By) {
        // Bytes beyond the end do not belong to the file.
        match len.min(self.size.saturating_sub(at)) {
            0 => {}
            len => self.last = (at, len),
        }
        self.steps.push(Op::Map { at, len, by }.into());
    }

    /// Adds one of a kind.
    pub fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Small => self.write(100, 60),
            Kind::AcrossLines => self.write(4096 + 40, 50),
            Kind::AcrossBlocks => self.write(4000, 200),
            Kind::Large => self.write(1000, 7000),
            Kind::Append => {
                self.last = (self.size, 300);
                self.size += 300;
                self.steps.push(Op::Append { len: 300 }.into());
            }
            Kind::Down => self.set_size(self.size * 2 / 3),
            Kind::Up => self.set_size(self.size + 2500),
            Kind::Rewrite => self.write(self.last.0, self.last.1),
            Kind::Sync => self.steps.push(Op::Sync.into()),
            Kind::Checkpoint => self.steps.push(Op::Checkpoint.into()),
            Kind::Policy => {
                self.policy = match self.policy {
                    PolicyChoice::Undo => PolicyChoice::Redo,
                    PolicyChoice::Redo => PolicyChoice::Alternate,
                    _ => PolicyChoice::Undo,
                };
                self.steps.push(Op::Policy(self.policy).into());
            }
            Kind::Close => self.steps.push(Op::Close.into()),
            Kind::Reopen => self.steps.push(Op::Reopen.into()),
            // Two granules that a small write partly shares.
            Kind::MapCopy => self.store(132, 40, By::Copy),
            Kind::MapStore => self.store(90, 30, By::Pointer),
            Kind::MapCopyAcross => self.store(3900, 300, By::Copy),
            Kind::MapStoreAcross => self.store(4080, 90, By::Pointer),
            Kind::MapEnd => self.store(self.size.saturating_sub(30), 100, By::Pointer),
            Kind::Unmap => self.steps.push(Op::Unmap.into()),
        }
    }

    fn set_size(&mut self, size: u64) {
        self.size = size;
        self.steps.push(Op::Size(size).into());
    }
}

fn all_of<T: Copy>(kinds: Vec<T>, lengths: RangeInclusive<usize>) -> impl Iterator<Item = Vec<T>> {
    lengths.flat_map(move |len| {
        let kinds = kinds.clone();
        (0..kinds.len().pow(len as u32)).map(move |mut number| {
            let mut sequence = Vec::new();
            for _ in 0..len {
                sequence.push(kinds[number % kinds.len()]);
                number /= kinds.len();
            }
            sequence
        })
    })
}

/// Every sequence of this many operations around the passes of a write cache that holds 10 blocks, the first ones the
/// longest.
pub fn around_passes(lengths: RangeInclusive<usize>) -> impl Iterator<Item = Vec<Step>> {
    let ops = [
        Op::Write { at: 100, len: 60 },
        Op::Write { at: 4096, len: 4096 },
        Op::Write { at: 8192 + 10, len: 8192 + 20_000 },
        Op::Size(5000),
        Op::Size(40_000),
        Op::Sync,
        Op::Blocks,
        Op::EndPass,
        Op::Flush,
    ];
    all_of(ops.map(Step::from).to_vec(), lengths)
}

/// Every sequence of this many kinds without a map.
pub fn sequences(lengths: RangeInclusive<usize>) -> impl Iterator<Item = Vec<Kind>> {
    all_of(Kind::PLAIN.to_vec(), lengths)
}

/// Every sequence of this many kinds with at least one store in a map, where an unmap finds a map.
pub fn with_maps(lengths: RangeInclusive<usize>) -> impl Iterator<Item = Vec<Kind>> {
    let makes_sense = |sequence: &Vec<Kind>| {
        let mut mapped = false;
        let gives_up_its_own = sequence.iter().all(|&kind| {
            let had = mapped;
            mapped = (mapped || kind.stores()) && !matches!(kind, Kind::Unmap | Kind::Reopen);
            had || kind != Kind::Unmap
        });
        gives_up_its_own && sequence.iter().any(|kind| kind.stores())
    };
    all_of(Kind::all(), lengths).filter(makes_sense)
}

/// All pairs of sequences with this many kinds together: before a hand-over, and after it.
pub fn around(together: usize) -> impl Iterator<Item = (Vec<Kind>, Vec<Kind>)> {
    let split = move |kinds: Vec<Kind>| (0..=together).map(move |at| (kinds[..at].to_vec(), kinds[at..].to_vec()));
    sequences(together..=together).flat_map(split)
}

/// The same for stores in maps: one store, with at most one kind before it, between it and the hand-over, or after
/// that; the map stays, or has been dropped by then.
pub fn around_with_maps() -> impl Iterator<Item = (Vec<Kind>, Vec<Kind>)> {
    let ends: [&[Kind]; 2] = [&[], &[Kind::Unmap]];
    Kind::STORES.iter().flat_map(move |&store| {
        ends.into_iter().flat_map(move |end| {
            let with = move |kind| {
                let stored = [&[store], end].concat();
                let before = (kind != Kind::Unmap).then(|| ([&[kind], &stored[..]].concat(), Vec::new()));
                let after = (kind != Kind::Unmap || end.is_empty()).then(|| (stored.clone(), vec![kind]));
                let between = (![Kind::Unmap, Kind::Reopen].contains(&kind))
                    .then(|| ([&[store, kind], end].concat(), Vec::new()));
                [before, between, after].into_iter().flatten()
            };
            std::iter::once(([&[store], end].concat(), Vec::new())).chain(Kind::all().into_iter().flat_map(with))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_sequences_as_there_should_be() {
        assert_eq!(sequences(1..=3).count(), 13 + 13 * 13 + 13 * 13 * 13);
        assert_eq!((0..=2).flat_map(around).count(), 1 + 2 * 13 + 3 * 13 * 13);
    }

    #[test]
    fn every_sequence_with_a_store_in_a_map_is_there_once() {
        // Without unmapping: all of 18 kinds except those of 13.
        let kept = |len: u32| 18usize.pow(len) - 13usize.pow(len);
        let of = |len| with_maps(len..=len).filter(|sequence| !sequence.contains(&Kind::Unmap)).count();
        assert_eq!([of(1), of(2), of(3)], [kept(1), kept(2), kept(3)]);
        // Two: a store and the unmap. Three: one kind before, one between that leaves the map, one after that is not
        // a second unmap.
        let gone = |len| with_maps(len..=len).filter(|sequence| sequence.contains(&Kind::Unmap)).count();
        assert_eq!([gone(1), gone(2), gone(3)], [0, 5, 5 * 18 + 5 * 12 + 5 * 18]);
        assert_eq!(around_with_maps().count(), 5 * (1 + 18 + 17 + 18) + 5 * (1 + 18 + 17 + 19));
    }
}
