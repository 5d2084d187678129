//! The images that a crash can have left, all of them or, where they are too many, a choice.

use super::model::{Model, Object, SECTOR, WORD, Write, put, resize};
use super::{ObjectId, Op, Trace};
use crate::pmem::LINE;
use core::ops::ControlFlow;
use std::collections::{HashMap, HashSet};

/// How many images to look at.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All images, if there are no more than this.
    pub exhaustive: u64,
    /// Otherwise: nothing, everything, and these with one and two lines (or sectors) the other way, up to this many;
    pub deviations: usize,
    /// and this many at random,
    pub random: usize,
    /// from this seed.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { exhaustive: 1 << 10, deviations: 400, random: 100, seed: 1 }
    }
}

/// What a crash left: the bytes of each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    objects: Vec<Vec<u8>>,
}

impl Image {
    /// The bytes of an object, a file's as long as the file is; `None`: it was not watched yet.
    pub fn get(&self, object: ObjectId) -> Option<&[u8]> {
        self.objects.get(object.0).map(Vec::as_slice)
    }
}

/// A trace being replayed: the medium after the first few operations.
pub struct Replay {
    trace: Trace,
    next: usize,
    model: Model,
    marks: Vec<u64>,
}

/// One thing that a crash decides, by a number below `options`. 0: it did not arrive.
struct Choice {
    /// Choices of one line, or sector, have one group.
    group: usize,
    options: u64,
    what: What,
}

enum What {
    /// How many of a line's ordered writes arrived.
    Stores(ObjectId, u64),
    /// Whether a word, or a sector, of an operation arrived.
    Piece(ObjectId, usize, u64),
    /// How many changes of a file's size arrived.
    Sizes(ObjectId),
}

impl Replay {
    pub(super) fn new(trace: Trace) -> Self {
        let model = Model::new(trace.domain);
        Self { trace, next: 0, model, marks: Vec::new() }
    }

    /// Goes on to the next moment after which fewer images are possible, or to the end; every image of the moments
    /// skipped is possible here too. False when there is none left.
    pub fn advance(&mut self) -> bool {
        if self.next >= self.trace.len() {
            return false;
        }
        loop {
            let (thread, op) = &self.trace.ops[self.next];
            self.model.apply(self.next, *thread, op);
            if let Op::Mark(mark) = op {
                self.marks.push(*mark);
            }
            self.next += 1;
            match self.trace.ops.get(self.next) {
                Some((_, next)) if !self.model.is_boundary(next) => {}
                _ => return true,
            }
        }
    }

    /// How many operations are done.
    pub fn position(&self) -> usize {
        self.next
    }

    /// What was promised by now, in order.
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Calls `visit` with images that a crash now could leave. Gives how many there were to see, and what `visit` broke
    /// with.
    pub fn crashes<B>(&self, plan: &Plan, mut visit: impl FnMut(&Image) -> ControlFlow<B>) -> (usize, Option<B>) {
        let choices = self.choices();
        let mut seen = 0;
        let mut look = |picks: &[u64]| {
            seen += 1;
            visit(&self.image(&choices, picks))
        };
        let result = enumerate(&choices, plan, &mut look);
        (seen, result.break_value())
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let mut group = 0;
        for (number, object) in self.model.objects.iter().enumerate() {
            let id = ObjectId(number);
            for (&line, writes) in &object.lines {
                group += 1;
                let open = writes.iter().filter(|write| write.ordered && !write.certain).count() as u64;
                if open > 0 {
                    choices.push(Choice { group, options: open + 1, what: What::Stores(id, line) });
                }
                for (i, write) in writes.iter().enumerate().filter(|(_, write)| !write.ordered && !write.certain) {
                    for piece in pieces(write, WORD).filter(|&piece| matters(object, writes, i, piece, WORD)) {
                        choices.push(Choice { group, options: 2, what: What::Piece(id, write.seq, piece) });
                    }
                }
            }
            for file in object.file.iter().filter(|file| !file.write.certain) {
                for piece in pieces(&file.write, SECTOR) {
                    group += 1;
                    choices.push(Choice { group, options: 2, what: What::Piece(id, file.write.seq, piece) });
                }
            }
            let sizes = object.file.iter().filter(|file| file.size.is_some() && !file.write.certain).count() as u64;
            if sizes > 0 {
                group += 1;
                choices.push(Choice { group, options: sizes + 1, what: What::Sizes(id) });
            }
        }
        choices
    }

    fn image(&self, choices: &[Choice], picks: &[u64]) -> Image {
        let mut stores = HashMap::new();
        let mut sizes = HashMap::new();
        let mut arrived = HashSet::new();
        for (choice, &pick) in choices.iter().zip(picks) {
            match choice.what {
                What::Stores(object, line) => drop(stores.insert((object, line), pick)),
                What::Sizes(object) => drop(sizes.insert(object, pick)),
                What::Piece(object, seq, piece) if pick != 0 => drop(arrived.insert((object, seq, piece))),
                What::Piece(..) => {}
            }
        }
        let build = |(number, object): (usize, &Object)| {
            let id = ObjectId(number);
            let mut all: Vec<(&Write, Option<Option<u64>>)> =
                object.lines.values().flatten().map(|w| (w, None)).collect();
            all.extend(object.file.iter().map(|file| (&file.write, Some(file.size))));
            all.sort_by_key(|(write, _)| write.seq);
            let (mut bytes, mut size) = (object.bytes.clone(), object.size);
            let mut left_in_line: HashMap<u64, u64> = HashMap::new();
            let mut left_of_sizes = sizes.get(&id).copied().unwrap_or(0);
            for (write, file) in all {
                if write.ordered {
                    let line = write.at / LINE as u64;
                    let picked = || stores.get(&(id, line)).copied().unwrap_or(0);
                    if write.certain || take(left_in_line.entry(line).or_insert_with(picked)) {
                        put(&mut bytes, write.at, &write.bytes);
                    }
                    continue;
                }
                let unit = if file.is_some() { SECTOR } else { WORD };
                for piece in pieces(write, unit) {
                    if write.certain || arrived.contains(&(id, write.seq, piece)) {
                        let start = write.at.max(piece * unit);
                        let end = write.end().min((piece + 1) * unit);
                        put(&mut bytes, start, &write.bytes[(start - write.at) as usize..(end - write.at) as usize]);
                    }
                }
                if let Some(Some(new)) = file
                    && (write.certain || take(&mut left_of_sizes))
                {
                    if write.bytes.is_empty() {
                        resize(&mut bytes, new);
                    }
                    size = Some(new);
                }
            }
            if let Some(size) = size {
                bytes.resize(size as usize, 0);
            }
            bytes
        };
        Image { objects: self.model.objects.iter().enumerate().map(build).collect() }
    }
}

/// Takes one if any is left.
fn take(left: &mut u64) -> bool {
    let any = *left > 0;
    *left -= any as u64;
    any
}

/// The numbers of the words, or sectors, that a write touches.
fn pieces(write: &Write, unit: u64) -> core::ops::Range<u64> {
    if write.bytes.is_empty() { 0..0 } else { write.at / unit..write.end().div_ceil(unit) }
}

/// Whether it can be told if this piece of a write arrived: not when something certain lies over it, nor when it
/// writes what was there.
fn matters(object: &Object, writes: &[Write], at: usize, piece: u64, unit: u64) -> bool {
    let write = &writes[at];
    let (start, end) = (write.at.max(piece * unit), write.end().min((piece + 1) * unit));
    if writes[at + 1..].iter().any(|later| later.certain && later.at <= start && later.end() >= end) {
        return false;
    }
    let under = writes[..at].iter().any(|earlier| earlier.at < end && earlier.end() > start);
    let old = object.bytes.get(start as usize..end as usize);
    under
        || !object.file.is_empty()
        || old != Some(&write.bytes[(start - write.at) as usize..(end - write.at) as usize])
}

fn enumerate<B>(choices: &[Choice], plan: &Plan, look: &mut impl FnMut(&[u64]) -> ControlFlow<B>) -> ControlFlow<B> {
    let count = choices.iter().try_fold(1u64, |n, choice| n.checked_mul(choice.options));
    let none = vec![0; choices.len()];
    if count.is_some_and(|count| count <= plan.exhaustive) {
        let mut picks = none;
        loop {
            look(&picks)?;
            // Counts on, the first choice fastest.
            let Some(at) = picks.iter().zip(choices).position(|(pick, choice)| pick + 1 < choice.options) else {
                return ControlFlow::Continue(());
            };
            picks[..at].fill(0);
            picks[at] += 1;
        }
    }
    let all: Vec<u64> = choices.iter().map(|choice| choice.options - 1).collect();
    look(&none)?;
    look(&all)?;
    let mut random = Random(plan.seed | 1);
    let mut groups: Vec<usize> = choices.iter().map(|choice| choice.group).collect();
    groups.dedup();
    let deviate = |from: &[u64], to: &[u64], which: &[usize]| -> Vec<u64> {
        let pick = |i: usize| if which.contains(&choices[i].group) { to[i] } else { from[i] };
        (0..choices.len()).map(pick).collect()
    };
    let pairs = groups.len() * (groups.len() + 1) / 2;
    for n in 0..(2 * pairs).min(plan.deviations) {
        let (first, second) = if 2 * pairs <= plan.deviations {
            pair(n / 2, groups.len())
        } else if n / 2 < groups.len() && 4 * groups.len() <= plan.deviations {
            (n / 2, n / 2)
        } else {
            (random.below(groups.len() as u64) as usize, random.below(groups.len() as u64) as usize)
        };
        let which = [groups[first], groups[second]];
        look(&if n % 2 == 0 { deviate(&none, &all, &which) } else { deviate(&all, &none, &which) })?;
    }
    for _ in 0..plan.random {
        let picks: Vec<u64> = choices.iter().map(|choice| random.below(choice.options)).collect();
        look(&picks)?;
    }
    ControlFlow::Continue(())
}

/// The `n`-th of the pairs (i, j), i ≤ j < len: (0, 0), (0, 1), …
fn pair(mut n: usize, len: usize) -> (usize, usize) {
    let mut first = 0;
    while n >= len - first {
        n -= len - first;
        first += 1;
    }
    (first, first + n)
}

/// Marsaglia's xorshift: the same images for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_all_there_once() {
        let pairs: Vec<_> = (0..10).map(|n| pair(n, 4)).collect();
        assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]);
    }
}
