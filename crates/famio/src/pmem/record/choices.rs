//! What may or may not have arrived at a given moment, in groups: each cache line, each sector, each large copy, each
//! file's sizes, each name. A group has a few patterns of pieces that have arrived. One pattern of every group gives
//! an image.

use super::image::Image;
use super::model::{Model, Object, SECTOR, WORD, Write, put, resize};
use super::names::{Name, Versions, at};
use super::object::Content;
use crate::pmem::LINE;
use core::ops::ControlFlow;
use std::collections::{BTreeMap, HashSet};

/// How many images to look at.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All images, if there are no more than this.
    pub exhaustive: u64,
    /// Otherwise: nothing, everything, and these with one and two lines (or sectors) different, up to this many;
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

/// A copy of this many lines is data: it is torn in a few ways, not in all.
const DATA_LINES: usize = 10;
/// For a line with more combinations, only the significant ones are tried.
const OF_A_LINE: u64 = 64;

/// A change of an object's bytes, in the order of the operations.
struct Event<'a> {
    seq: usize,
    what: Change<'a>,
    when: When,
    /// When it was written out.
    out: Option<usize>,
}

enum Change<'a> {
    Bytes(u64, &'a [u8]),
    /// The size; whether bytes above it are cut off.
    Size(u64, bool),
}

#[derive(Clone, Copy)]
enum When {
    Always,
    /// Applies if the group's pattern has this piece.
    Piece(usize, usize),
    /// Applies if the group's pick is above this.
    Above(usize, u32),
}

enum Group {
    /// Which pieces have arrived: the first pattern is none, the last is all.
    Patterns(Vec<Vec<bool>>),
    /// How many of these have arrived, in order.
    Prefix(u32),
}

impl Group {
    fn options(&self) -> u32 {
        match self {
            Group::Patterns(patterns) => patterns.len() as u32,
            Group::Prefix(most) => most + 1,
        }
    }
}

/// A piece to be put into a group.
struct Piece<'a> {
    seq: usize,
    at: u64,
    bytes: &'a [u8],
    ordered: bool,
    out: Option<usize>,
}

/// See the module.
pub(super) struct Choices<'a> {
    model: &'a Model,
    groups: Vec<Group>,
    events: Vec<Vec<Event<'a>>>,
    names: BTreeMap<&'a Name, usize>,
    /// If names change in order: the group that says how many changes have arrived, and when they were made.
    order: Option<(usize, Vec<usize>)>,
}

impl<'a> Choices<'a> {
    pub fn of(model: &'a Model) -> Self {
        let mut this = Self { model, groups: Vec::new(), events: Vec::new(), names: BTreeMap::new(), order: None };
        for object in &model.objects {
            let events = this.object(object);
            this.events.push(events);
        }
        this.names(&model.names);
        this
    }

    fn names(&mut self, names: &'a Versions) {
        if self.model.is_ordered() {
            let times = names.pending();
            let group = self.group(Group::Prefix(times.len() as u32));
            self.order = Some((group, times));
            return;
        }
        for (name, versions) in &names.all {
            let group = self.group(Group::Prefix(versions.len() as u32 - 1));
            self.names.insert(name, group);
        }
    }

    fn group(&mut self, group: Group) -> usize {
        self.groups.push(group);
        self.groups.len() - 1
    }

    fn object(&mut self, object: &'a Object) -> Vec<Event<'a>> {
        let mut events = Vec::new();
        // Where a write to the file has not certainly arrived, its sectors include the lines in them.
        let mut sectors: BTreeMap<u64, Vec<Piece<'a>>> = BTreeMap::new();
        for file in &object.file {
            let unit = self.model.unit_of(&file.write);
            for (number, piece) in pieces(&file.write, unit) {
                let sector = number * unit / SECTOR;
                if file.write.certain {
                    events.push(always(&file.write, piece));
                } else {
                    sectors.entry(sector).or_default().push(of(&file.write, piece));
                }
            }
        }
        let mut lines: BTreeMap<u64, Vec<Piece<'a>>> = BTreeMap::new();
        for (&line, writes) in &object.lines {
            let sector = line * LINE as u64 / SECTOR;
            for write in writes {
                let unit = if write.ordered { LINE as u64 } else { WORD };
                for (_, piece) in pieces(write, unit) {
                    if write.certain {
                        events.push(always(write, piece));
                    } else if let Some(with) = sectors.get_mut(&sector) {
                        with.push(of(write, piece));
                    } else {
                        lines.entry(line).or_default().push(of(write, piece));
                    }
                }
            }
        }
        let is_cut = object.file.iter().any(|file| file.size.is_some() && file.write.bytes.is_empty());
        let is_out = object.file.iter().any(|file| file.write.out.is_some() && !file.write.certain);
        let known = |patterns: &mut Vec<Vec<bool>>, pieces: &[Piece<'_>]| {
            // Under a cut that may not have arrived, the bytes beneath depend on it. What is written out may have
            // arrived in spite of a pattern.
            if !is_cut && !is_out {
                drop_same(patterns, pieces, object);
            }
        };
        for (_, mut group) in sectors {
            group.sort_by_key(|piece| piece.seq);
            let mut patterns = combinations(&group);
            known(&mut patterns, &group);
            self.put(&mut events, group, patterns);
        }
        let mut large: BTreeMap<usize, Vec<Vec<Piece<'a>>>> = BTreeMap::new();
        for (_, group) in lines {
            if group.iter().all(|piece| !piece.ordered && piece.seq == group[0].seq) {
                large.entry(group[0].seq).or_default().push(group);
                continue;
            }
            let mut patterns = combinations(&group);
            known(&mut patterns, &group);
            self.put(&mut events, group, patterns);
        }
        for (_, lines) in large {
            if lines.len() < DATA_LINES {
                for group in lines {
                    let mut patterns = combinations(&group);
                    known(&mut patterns, &group);
                    self.put(&mut events, group, patterns);
                }
                continue;
            }
            let patterns = torn(&lines);
            let group: Vec<Piece<'a>> = lines.into_iter().flatten().collect();
            self.put(&mut events, group, patterns);
        }
        self.sizes(object, &mut events);
        events.sort_by_key(|event| event.seq);
        events
    }

    fn sizes(&mut self, object: &'a Object, events: &mut Vec<Event<'a>>) {
        let open = object.file.iter().filter(|file| file.size.is_some() && !file.write.certain).count() as u32;
        let group = self.group(Group::Prefix(open));
        let mut number = 0;
        for file in &object.file {
            let Some(size) = file.size else { continue };
            let when = if file.write.certain {
                When::Always
            } else {
                number += 1;
                When::Above(group, number - 1)
            };
            let what = Change::Size(size, file.write.bytes.is_empty());
            events.push(Event { seq: file.write.seq, what, when, out: file.write.out });
        }
    }

    fn put(&mut self, events: &mut Vec<Event<'a>>, pieces: Vec<Piece<'a>>, patterns: Vec<Vec<bool>>) {
        let group = self.group(Group::Patterns(patterns));
        for (number, piece) in pieces.into_iter().enumerate() {
            let what = Change::Bytes(piece.at, piece.bytes);
            events.push(Event { seq: piece.seq, what, when: When::Piece(group, number), out: piece.out });
        }
    }

    fn arrived(&self, when: When, picks: &[u32]) -> bool {
        match when {
            When::Always => true,
            When::Above(group, number) => picks[group] > number,
            When::Piece(group, number) => match &self.groups[group] {
                Group::Patterns(patterns) => patterns[picks[group] as usize][number],
                Group::Prefix(_) => false,
            },
        }
    }

    /// When the last change of a name was made that has arrived; 0: none, or they have no order.
    fn last_change(&self, picks: &[u32]) -> usize {
        let Some((group, times)) = &self.order else { return 0 };
        picks[*group].checked_sub(1).map_or(0, |last| times[last as usize])
    }

    /// The image of one pick for every group.
    pub fn image(&self, picks: &[u32]) -> Image {
        let last = self.last_change(picks);
        let version = |name: &Name| match self.order {
            Some(_) => self.model.names.all.get(name).map_or(0, |versions| at(versions, last)),
            None => self.names.get(name).map_or(0, |&group| picks[group] as usize),
        };
        let mut names = self.model.names.pick(version);
        names.nameless &= last == 0; // the name was there before
        let is_there = |event: &&Event<'_>| event.out.is_some_and(|out| out < last) || self.arrived(event.when, picks);
        let objects = self.model.objects.iter().zip(&self.events).map(|(object, events)| {
            let (mut bytes, mut size) = (object.bytes.clone(), object.size);
            for event in events.iter().filter(is_there) {
                match event.what {
                    Change::Bytes(at, new) => put(&mut bytes, at, new),
                    Change::Size(new, cuts) => {
                        if cuts {
                            resize(&mut bytes, new);
                        }
                        size = Some(new);
                    }
                }
            }
            let size = size.unwrap_or(bytes.len() as u64);
            bytes.truncate(size as usize);
            Content { bytes, size }
        });
        Image { objects: objects.collect(), names }
    }

    /// The image with nothing arrived that is not certain.
    pub fn oldest(&self) -> Image {
        self.image(&vec![0; self.groups.len()])
    }

    /// The image with everything arrived.
    pub fn newest(&self) -> Image {
        self.image(&self.all())
    }

    fn all(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.options() - 1).collect()
    }

    /// Calls `look` with all combinations of picks or, if there are too many, with those that the plan says.
    pub fn enumerate<B>(&self, plan: &Plan, look: &mut impl FnMut(&[u32]) -> ControlFlow<B>) -> ControlFlow<B> {
        let all = self.all();
        let open: Vec<usize> = (0..all.len()).filter(|&group| all[group] > 0).collect();
        let none = vec![0; all.len()];
        let count = open.iter().try_fold(1u64, |n, &group| n.checked_mul(u64::from(all[group]) + 1));
        if count.is_some_and(|count| count <= plan.exhaustive) {
            let mut picks = none;
            loop {
                look(&picks)?;
                // Counts up, the first group fastest.
                let Some(at) = open.iter().position(|&group| picks[group] < all[group]) else {
                    return ControlFlow::Continue(());
                };
                open[..at].iter().for_each(|&group| picks[group] = 0);
                picks[open[at]] += 1;
            }
        }
        look(&none)?;
        look(&all)?;
        let mut random = Random(plan.seed | 1);
        // One group at a time, with each of its patterns, from both extremes; then two groups, from one extreme to
        // the other.
        let singles: Vec<(usize, u32)> =
            open.iter().flat_map(|&group| (0..=all[group]).map(move |pick| (group, pick))).collect();
        let chosen = singles.len() * 2 > plan.deviations * 2 / 3; // too many to try all
        for n in 0..plan.deviations {
            let from = if n % 2 == 0 { &none } else { &all };
            let mut picks = from.clone();
            if if chosen { n < plan.deviations * 2 / 3 } else { n / 2 < singles.len() } {
                let (group, pick) =
                    if chosen { singles[random.below(singles.len() as u64) as usize] } else { singles[n / 2] };
                picks[group] = pick;
            } else {
                for _ in 0..2 {
                    let group = open[random.below(open.len() as u64) as usize];
                    picks[group] = if n % 2 == 0 { all[group] } else { 0 };
                }
            }
            look(&picks)?;
        }
        for _ in 0..plan.random {
            let picks: Vec<u32> = all.iter().map(|&most| random.below(u64::from(most) + 1) as u32).collect();
            look(&picks)?;
        }
        ControlFlow::Continue(())
    }
}

/// The pieces of a write, in units of `unit` bytes: the unit's number, and the bytes of the write in it.
fn pieces(write: &Write, unit: u64) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> {
    let (at, end) = (write.at, write.end());
    let units = if write.bytes.is_empty() { 0..0 } else { at / unit..end.div_ceil(unit) };
    units.map(move |n| (n, (at.max(n * unit) - at) as usize..(end.min((n + 1) * unit) - at) as usize))
}

fn of(write: &Write, piece: core::ops::Range<usize>) -> Piece<'_> {
    let at = write.at + piece.start as u64;
    Piece { seq: write.seq, at, bytes: &write.bytes[piece], ordered: write.ordered, out: write.out }
}

fn always(write: &Write, piece: core::ops::Range<usize>) -> Event<'_> {
    let what = Change::Bytes(write.at + piece.start as u64, &write.bytes[piece]);
    Event { seq: write.seq, what, when: When::Always, out: None }
}

/// Which pieces of a line or sector may have arrived: a prefix of the ordered ones, and any of the others.
fn combinations(pieces: &[Piece<'_>]) -> Vec<Vec<bool>> {
    let ordered = pieces.iter().filter(|piece| piece.ordered).count();
    let others = pieces.len() - ordered;
    let pattern = |prefix: usize, bits: &dyn Fn(usize) -> bool| {
        let (mut done, mut other) = (0, 0);
        let arrived = |piece: &Piece<'_>| {
            if piece.ordered {
                done += 1;
                done <= prefix
            } else {
                other += 1;
                bits(other - 1)
            }
        };
        pieces.iter().map(arrived).collect::<Vec<bool>>()
    };
    let mut all = Vec::new();
    if others < 6 && (ordered as u64 + 1) << others <= OF_A_LINE {
        for bits in 0..1u64 << others {
            all.extend((0..=ordered).map(|prefix| pattern(prefix, &|i| bits >> i & 1 == 1)));
        }
        return all;
    }
    for prefix in 0..=ordered {
        all.push(pattern(prefix, &|_| false));
    }
    for which in 0..others {
        all.push(pattern(ordered, &|i| i == which));
        all.push(pattern(ordered, &|i| i != which));
        all.push(pattern(0, &|i| i != which));
    }
    for prefix in 0..=ordered {
        all.push(pattern(prefix, &|_| true));
    }
    all
}

/// How a large copy is torn: nothing, its first line only, its first half, all but the first line, but the last, but
/// a middle one, but a word; everything.
fn torn(lines: &[Vec<Piece<'_>>]) -> Vec<Vec<bool>> {
    let (count, middle) = (lines.len(), lines.len() / 2);
    let whole = |keep: &dyn Fn(usize) -> bool| -> Vec<bool> {
        lines.iter().enumerate().flat_map(|(n, line)| line.iter().map(|_| keep(n)).collect::<Vec<_>>()).collect()
    };
    let mut word = whole(&|_| true);
    let at = lines[..middle].iter().map(Vec::len).sum::<usize>();
    word[at] = false;
    vec![
        whole(&|_| false),
        whole(&|n| n == 0),
        whole(&|n| n < middle),
        whole(&|n| n != 0),
        whole(&|n| n != count - 1),
        whole(&|n| n != middle),
        word,
        whole(&|_| true),
    ]
}

/// Drops patterns that give the same bytes as another one. The last stays the last.
fn drop_same(patterns: &mut Vec<Vec<bool>>, pieces: &[Piece<'_>], object: &Object) {
    let from = pieces.iter().map(|piece| piece.at).min().unwrap_or(0);
    let to = pieces.iter().map(|piece| piece.at + piece.bytes.len() as u64).max().unwrap_or(0);
    let mut before = vec![0; (to - from) as usize];
    let there = object.bytes.get(from as usize..).unwrap_or(&[]);
    let there = &there[..there.len().min(before.len())];
    before[..there.len()].copy_from_slice(there);
    // Between the pieces there are bytes that are certain but not applied yet, because something uncertain comes
    // before them.
    let lines = object.lines.range(from / LINE as u64..=to / LINE as u64).flat_map(|(_, writes)| writes);
    let mut certain: Vec<&Write> =
        lines.chain(object.file.iter().map(|file| &file.write)).filter(|write| write.certain).collect();
    certain.sort_by_key(|write| write.seq);
    let content = |pattern: &[bool]| {
        let mut bytes = before.clone();
        let mut rest = &certain[..];
        let mut lay = |at: u64, new: &[u8]| {
            let (start, end) = (at.max(from), (at + new.len() as u64).min(to));
            if start < end {
                bytes[(start - from) as usize..(end - from) as usize]
                    .copy_from_slice(&new[(start - at) as usize..(end - at) as usize]);
            }
        };
        for (piece, _) in pieces.iter().zip(pattern).filter(|(_, arrived)| **arrived) {
            while let Some((first, later)) = rest.split_first().filter(|(first, _)| first.seq < piece.seq) {
                lay(first.at, &first.bytes);
                rest = later;
            }
            lay(piece.at, piece.bytes);
        }
        rest.iter().for_each(|write| lay(write.at, &write.bytes));
        bytes
    };
    let Some(last) = patterns.pop() else { return };
    let mut seen = HashSet::from([content(&last)]);
    patterns.retain(|pattern| seen.insert(content(pattern)));
    patterns.push(last);
}

/// Marsaglia's xorshift: the same images for the same seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}
