//! The calls of one thread. A new stream with the same parameters gives the same calls: so the check at the end knows
//! the last writes, without records in the measured loop.

use crate::bench::document::workload::{Pattern, Workload};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The number of the piece of the file.
    pub unit: u64,
    pub is_read: bool,
}

/// The part of the file on which a thread works, in pieces of the workload's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub end: u64,
}

impl Part {
    /// In sequential patterns, threads that share a file each get a part of it, so that they do not write the same
    /// pieces.
    pub fn of(workload: &Workload, units: u64, lane: u32) -> Self {
        let lanes = u64::from(if workload.own_files { 1 } else { workload.lanes() });
        let lane = if workload.own_files { 0 } else { u64::from(lane) };
        Self { first: units * lane / lanes, end: units * (lane + 1) / lanes }
    }
}

/// An endless stream of calls.
pub struct Stream {
    pattern: Pattern,
    units: u64,
    part: Part,
    next: u64,
    state: u64,
    /// A call reads if its 32 random bits are below this.
    reads_below: u64,
    /// Places by Zipf's law, drawn in advance.
    drawn: Vec<u32>,
}

/// After this many, they repeat.
const DRAWN: usize = 1 << 18;
/// As in YCSB.
const EXPONENT: f64 = 0.99;

impl Stream {
    pub fn new(workload: &Workload, units: u64, measurement: u32, lane: u32) -> Self {
        let part = Part::of(workload, units, lane);
        let mut random = fastrand::Rng::with_seed(u64::from(measurement) << 32 | u64::from(lane));
        let drawn = match workload.pattern {
            Pattern::Zipf => (0..DRAWN).map(|_| zipf(units, random.f64()) as u32).collect(),
            _ => Vec::new(),
        };
        let reads_below = (u64::from(workload.reads) << 32) / 100;
        Self { pattern: workload.pattern, units, part, next: part.first, state: random.u64(..), reads_below, drawn }
    }

    /// The next 32 random bits, by one multiplication.
    #[inline]
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 32
    }

    #[inline]
    pub fn next(&mut self) -> Op {
        let unit = match self.pattern {
            Pattern::Sequential => {
                let unit = self.next;
                self.next = if unit + 1 == self.part.end { self.part.first } else { unit + 1 };
                unit
            }
            Pattern::Random => (self.random() * self.units) >> 32,
            Pattern::Zipf => {
                self.next = (self.next + 1) % DRAWN as u64;
                self.drawn[self.next as usize].into()
            }
            Pattern::Same => self.part.first,
        };
        let is_read = match self.reads_below {
            0 => false,
            always if always == 1 << 32 => true,
            share => self.random() < share,
        };
        Op { unit, is_read }
    }
}

/// A place by Zipf's law, for a random number from 0 to 1.
pub fn zipf(units: u64, share: f64) -> u64 {
    // Neighbours by rank are not neighbours in the file. A prime: each place once.
    zipf_rank(units, share) * 1_000_003 % units
}

/// The inverse of Zipf's distribution, taken as continuous: no table, so that it also works for many places.
pub fn zipf_rank(units: u64, share: f64) -> u64 {
    let power = 1.0 - EXPONENT;
    let rank = (((units as f64 + 1.0).powf(power) - 1.0) * share + 1.0).powf(1.0 / power) as u64 - 1;
    rank.min(units - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: Pattern, reads: u32) -> (Vec<u64>, u64) {
        let mut stream = Stream::new(&Workload::new(pattern, 4096, reads), 100, 1, 0);
        let (mut units, mut read) = (vec![0; 100], 0);
        for _ in 0..100_000 {
            let op = stream.next();
            units[op.unit as usize] += 1;
            read += u64::from(op.is_read);
        }
        (units, read)
    }

    #[test]
    fn patterns_reach_what_they_should() {
        assert_eq!(counts(Pattern::Sequential, 0).0, [1000; 100]);
        assert!(counts(Pattern::Random, 0).0.iter().all(|count| (800..1200).contains(count)));
        let zipf = counts(Pattern::Zipf, 0).0;
        assert!(zipf.iter().all(|&count| count > 0) && zipf[0] > 12_000);
        assert_eq!(counts(Pattern::Same, 0).0[0], 100_000);
    }

    #[test]
    fn the_share_of_reads_is_kept() {
        assert_eq!([0, 100].map(|share| counts(Pattern::Random, share).1), [0, 100_000]);
        assert!((29_000..31_000).contains(&counts(Pattern::Random, 30).1));
    }

    #[test]
    fn a_stream_can_be_repeated_and_threads_differ() {
        let take = |lane| {
            let mut stream = Stream::new(&Workload::new(Pattern::Random, 64, 50).threads(2), 1 << 20, 7, lane);
            (0..100).map(|_| stream.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(0), take(0));
        assert_ne!(take(0), take(1));
        let workload = Workload::write(Pattern::Sequential, 64).threads(2);
        assert_eq!(Part::of(&workload, 101, 1), Part { first: 50, end: 101 });
        assert_eq!(Part::of(&workload.own_files(), 101, 1), Part { first: 0, end: 101 });
    }
}
