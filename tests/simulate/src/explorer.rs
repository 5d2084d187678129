//! What examines histories: how thoroughly, what it has counted, and what it finds.

use crate::case::Case;
use crate::oracle::Legal;
use crate::world::{FILE, World};
use famio::pmem::record::{Call, Image, Plan, Start};
use std::collections::HashSet;
use std::fmt;
use std::ops::AddAssign;
use xxhash_rust::xxh3::Xxh3;

/// How thoroughly to examine.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Images of one moment: all, if there are no more than this.
    pub exhaustive: u64,
    /// Otherwise, this many that differ from an extreme in one or two lines,
    pub deviations: usize,
    /// and this many at random.
    pub random: usize,
    /// For one of this many distinct states, the recovery is recorded and crashed.
    pub again: u64,
    /// One of this many is used after its recovery.
    pub after: u64,
    /// For one of this many moments, a kill is examined, too, with a power cut in the recovery after it.
    pub kills: u64,
}

impl Effort {
    /// For many histories.
    pub const QUICK: Effort = Effort { exhaustive: 48, deviations: 24, random: 8, again: 24, after: 48, kills: 3 };
    /// For one.
    pub const THOROUGH: Effort = Effort { exhaustive: 256, deviations: 200, random: 100, again: 4, after: 8, kills: 1 };

    /// For mutants, at first.
    pub const GLANCE: Effort = Effort { exhaustive: 24, deviations: 12, random: 4, again: 150, after: 1000, kills: 8 };
    /// For mutants: every recovery and every kill.
    pub const CLOSE: Effort = Effort { exhaustive: 64, deviations: 48, random: 16, again: 2, after: 16, kills: 1 };

    /// For a mutant and the history made for it: which recoveries are crashed does not depend on chance.
    pub const WHOLE: Effort = Effort { again: 1, ..Effort::CLOSE };

    pub(crate) fn plan(&self, seed: u64) -> Plan {
        Plan { exhaustive: self.exhaustive, deviations: self.deviations, random: self.random, seed }
    }

    /// For the moments of a recovery: fewer.
    pub(crate) fn again_plan(&self, seed: u64) -> Plan {
        Plan { exhaustive: self.exhaustive / 4, deviations: self.deviations / 4, random: self.random / 4, seed }
    }
}

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories.
    pub histories: u64,
    /// Moments at which something became certain.
    pub moments: u64,
    /// Images that were built.
    pub images: u64,
    /// Distinct images: each was recovered and compared.
    pub states: u64,
    /// Of these, those left by a power cut in the middle of a recovery.
    pub in_recovery: u64,
    /// And those left by a kill, for a recovery in the same boot.
    pub killed: u64,
    /// States of histories in which a call failed.
    pub failed_calls: u64,
    /// Files that were used after their recovery.
    pub used: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.histories += other.histories;
        self.moments += other.moments;
        self.images += other.images;
        self.states += other.states;
        self.in_recovery += other.in_recovery;
        self.killed += other.killed;
        self.failed_calls += other.failed_calls;
        self.used += other.used;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} histories, {} moments, {} images, {} distinct states recovered ({} of crashed recoveries, {} of kills, {} with a failed call), {} files used after",
            self.histories,
            self.moments,
            self.images,
            self.states,
            self.in_recovery,
            self.killed,
            self.failed_calls,
            self.used
        )
    }
}

/// A state that is not legal.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its history.
    pub case: Case,
    /// The call that failed in it.
    pub fail: Option<(Call, usize)>,
    /// What is wrong, and where it was.
    pub what: String,
}

impl Failure {
    /// Its history and the call that failed, in a line.
    pub fn short(&self) -> String {
        let fail = self.fail.map_or(String::new(), |(call, nth)| format!(" --fail {call:?}:{nth}"));
        format!("'{}'{fail}", self.case)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "history: {}", self.case)?;
        writeln!(f, "seed: {:#x}", self.case.seed())?;
        write!(f, "again: cargo run --release -p famio-simulate -- replay {}", self.short())
    }
}

/// Looks at histories, each state once.
pub struct Explorer {
    pub world: World,
    seen: HashSet<u128>,
    pub counts: Counts,
    pub effort: Effort,
}

impl Explorer {
    /// With its own world.
    pub fn new(effort: Effort) -> Self {
        Self::with(World::new(), effort)
    }

    /// The same, for [mutants](crate::mutants).
    pub fn listing(effort: Effort) -> Self {
        Self::with(World::listing(), effort)
    }

    fn with(world: World, effort: Effort) -> Self {
        Self { world, seen: HashSet::new(), counts: Counts::default(), effort }
    }

    /// Whether this state was not examined yet.
    pub(crate) fn is_new(&mut self, image: &Image, legal: &Legal<'_>, boot: u8) -> Option<u128> {
        self.is_new_with(image, 0, legal, boot)
    }

    /// The same, for what a kill leaves: less of it may be on the medium.
    pub(crate) fn is_new_kill(&mut self, image: &Image, start: &Start, legal: &Legal<'_>) -> Option<u128> {
        self.is_new_with(image, start.hash(FILE) | 1, legal, 1)
    }

    fn is_new_with(&mut self, image: &Image, of_medium: u128, legal: &Legal<'_>, boot: u8) -> Option<u128> {
        let mut hash = Xxh3::new();
        hash.update(&image.hash(FILE).to_le_bytes());
        hash.update(&of_medium.to_le_bytes());
        hash.update(legal.kept);
        for open in &legal.open {
            hash.update(b"open");
            hash.update(open);
        }
        hash.update(&[boot, u8::from(legal.anything)]);
        let hash = hash.digest128();
        self.seen.insert(hash).then_some(hash)
    }
}
